"""`mnemic new`: a spec from options or from answers."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

import mnemic as package
from mnemic.dsl.coefficients import WORDS
from mnemic.dsl.draft import SCALARS, STARTS, draft, questions, refused
from mnemic.dsl.load import load


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """The working folder is empty."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_is_proposed_is_a_gated_delta_rule(mnemic, here):
    done = mnemic("new", "my-rule", "--yes")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("wrote my-rule.yaml; what next:\n  mnemic derive my-rule.yaml")
    assert [path.name for path in here.iterdir()] == ["my-rule.yaml"]
    found, known = load("my-rule.yaml"), load("gated-deltanet")
    plain = {"name": "x", "title": None, "source": None, "published": (), "notes": None}
    assert found.model_copy(update=plain) == known.model_copy(update=plain)


def test_options_answer(mnemic, here):
    done = mnemic("new", "mine", "--bias", "sqrt(1 + e**2) - 1", "--decay", "channel", "--json",
                  "-o", "a.yaml", "--method", "momentum", "--momentum", "0.9")  # fmt: skip
    assert done.json["file"] == "a.yaml"
    assert done.json["spec"]["bias"] == {"expr": "sqrt(1 + e**2) - 1"}
    rule = package.derive(here / "a.yaml")
    assert rule.problem.spec.retention.decay.per == "key"
    assert rule.problem.spec.optimizer.momentum.value == 0.9


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--bias", "hubber"), 3, "bias: read 'hubber', allowed: dot, l2, lp, huber"),
        (("--method", "momentum"), 3, "optimizer: method 'momentum' needs 'momentum'"),
        (("--decay", "1\nname: other"), 2, "retention.decay: read '1\\nname: other', one line"),
        (("--rate", "{"), 3, "optimizer.rate:1:10: expected the node content"),
    ],
)
def test_what_makes_no_sense_writes_nothing(mnemic, here, options, code, words):
    done = mnemic("new", "mine", *options)
    assert (done.code, done.out) == (code, "")
    assert words in done.err
    assert not any(here.iterdir())


def test_a_name_that_is_none(mnemic, here):
    done = mnemic("new", "My Rule")
    assert (done.code, done.out) == (3, "")
    assert "name" in done.err
    assert not any(here.iterdir())


def test_a_file_that_is_there_is_kept(mnemic, here):
    (here / "mine.yaml").write_text("mine\n")
    done = mnemic("new", "mine")
    assert (done.code, done.err) == (2, "mnemic: mine.yaml: is there already; name another file "
                                        "with -o\n")  # fmt: skip
    assert (here / "mine.yaml").read_text() == "mine\n"


def test_it_asks_on_a_terminal(here):
    """A wrong answer is told at once and asked for again; Enter takes what is proposed."""
    ours, theirs = pty.openpty()
    answers = ["", "", "hubber", "huber", *[""] * 20]
    os.write(ours, "".join(f"{answer}\n" for answer in answers).encode())
    done = subprocess.run(
        [sys.executable, "-m", "mnemic", "new", "asked", "--order", "after"],
        stdin=theirs, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    os.close(ours)
    os.close(theirs)
    assert done.returncode == 0, done.stderr
    assert "bias: read 'hubber', allowed: dot, l2," in done.stderr
    assert "retention.order:" not in done.stderr, "an option has told it"
    assert "\n  huber         Huber's loss: " in done.stderr
    found = load(here / "asked.yaml")
    assert (found.bias.word(), found.retention.order) == ("huber", "after")


def test_every_word_of_a_coefficient_is_explained():
    assert SCALARS.keys() == WORDS.keys()


ALONE = {"weights": {"uniform", "token"}, "optimizer.momentum": {"none"},
         "window": set(), "optimizer.method": {"gd", "flow"}}  # fmt: skip
"""What may be answered where all before it is as proposed; elsewhere everything that is told."""


@pytest.mark.parametrize("question", questions(), ids=lambda question: question.place)
def test_what_is_told_as_allowed_is_allowed(question):
    assert question.about
    allowed = {word for word in question.answers if refused(question, word, {}) is None}
    assert allowed >= ALONE.get(question.place, question.answers.keys())
    assert refused(question, question.proposed, {}) is None


def test_comments_are_short_lines_and_tell_all_that_is_asked():
    text = draft("mine", {})
    assert max(map(len, text.splitlines())) <= 100
    keys = {place.rpartition(".")[2] for place in STARTS}
    assert all(f"{key}: " in text for key in keys)
    assert "#   huber: Huber's loss: " in text
