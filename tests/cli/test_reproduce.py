"""The commands that measure, and draw what they measured: claims, capacity, influence, map."""

from __future__ import annotations

from pathlib import Path

import pytest

from mnemic.claims import CLAIMS

DRAWING = (
    ("reproduce", "exact-swaps", "--quick"), ("capacity", "gla"), ("influence", "gla"), ("map",),
)  # fmt: skip


def test_reproduce_lists_the_claims(mnemic) -> None:
    done = mnemic("reproduce", "--json")
    assert done.code == 0
    assert [claim["name"] for claim in done.json["claims"]] == [claim.name for claim in CLAIMS]
    assert sum(done.json["counts"].values()) == len(CLAIMS)


def test_reproduce_runs_one_and_draws_it(mnemic, tmp_path: Path) -> None:
    out = tmp_path / "swaps.svg"
    done = mnemic("reproduce", "exact-swaps", "--quick", "--seeds", "1", "-o", str(out), "--json")
    assert done.code == 0
    assert done.json["verdict"] == "holds"
    assert "exact-swaps" in out.read_text(encoding="utf-8")


def test_reproduce_refuses_what_it_does_not_know(mnemic) -> None:
    done = mnemic("reproduce", "switchin")
    assert done.code == 2
    assert "did you mean 'switching'" in done.err


def test_capacity_tells_pairs_and_formulas(mnemic, tmp_path: Path) -> None:
    out = tmp_path / "pairs.svg"
    done = mnemic("capacity", "linear-attention", "--dim", "8", "--pairs", "16", "--draws", "2",
                  "-o", str(out), "--json")  # fmt: skip
    assert done.code == 0
    assert done.json["features"] == 8
    assert len(done.json["predicted"]) == len(done.json["pairs"])
    assert out.is_file()


def test_the_page_shows_what_the_command_prints(mnemic) -> None:
    page = (Path(__file__).parents[2] / "docs" / "capacity.md").read_text(encoding="utf-8")
    command = next(line for line in page.splitlines() if line.startswith("$ mnemic capacity "))
    shown = page[page.index(command) :].partition("```")[0].splitlines()[1:]
    printed = mnemic(*command.split()[2:]).out.splitlines()
    assert len(shown) > 3
    assert [line for line in shown if line not in ("…", *printed)] == []


def test_influence_tells_decay_and_eigenvalues(mnemic, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("a text of some words", encoding="utf-8")
    told = ("--text", str(text), "--tokens", "12", "--dim", "4", "--json")
    done = mnemic("influence", "gated-deltanet", *told)
    assert done.code == 0
    assert len(done.json["measured"]) == 12
    assert max(done.json["spectrum"]["radii"]) < 1


def test_influence_of_attention_has_no_eigenvalues(mnemic) -> None:
    done = mnemic("influence", "softmax-attention", "--tokens", "4", "--dim", "4", "--json")
    assert done.code == 0
    assert done.json["spectrum"] is None
    assert "grows with the tokens" in done.json["spectrum_refused"]


@pytest.mark.parametrize("command", DRAWING, ids=" ".join)
def test_a_name_that_is_no_svg_is_refused_before_anything_is_measured(mnemic, command) -> None:
    done = mnemic(*command, "-o", "picture.png")
    assert done.code == 2
    message = "--output: read 'picture.png', allowed a name that ends in .svg"
    assert done.err.strip() == f"mnemic: {message}"
    assert done.out == ""


def test_a_drawing_in_a_folder_that_cannot_be_written(mnemic, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder", encoding="utf-8")
    out = tmp_path / "file" / "pairs.svg"
    options = ("--dim", "4", "--pairs", "4", "--draws", "1", "-o", str(out))
    done = mnemic("capacity", "linear-attention", *options)
    assert done.code == 2
    assert done.err.startswith(f"mnemic: cannot write {out}: ")
    assert done.err.count("\n") == 1
