"""The command that draws specs at random: it tells what came of them, and keeps what fails."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

SCRIPT = Path(__file__).with_name("fuzz.py")
GOOD = {"mnemic": 1, "name": "drawn", "bias": "l2", "optimizer": {"rate": "token"}}


@pytest.fixture
def fuzz(monkeypatch):
    """The script as a module, and what it imports."""
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    import fuzz

    return fuzz


def ran(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", SCRIPT, *map(str, arguments)],
        capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


@pytest.mark.full
def test_drawn_specs_and_going_on(tmp_path):
    done = ran("--specs", 2, "--seed", 5, "--folder", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("seed 5: ")
    came = (tmp_path / "5" / "came.jsonl").read_text().splitlines()
    assert [json.loads(line)["number"] for line in came] == list("01")
    assert not list(tmp_path.rglob("*.yaml"))
    again = ran("--specs", 2, "--seed", 5, "--folder", tmp_path)
    assert again.stdout == done.stdout
    assert (tmp_path / "5" / "came.jsonl").read_text().splitlines() == came


@pytest.mark.full
def test_a_file_of_specs_is_tried_again(tmp_path):
    again = tmp_path / "again.jsonl"
    again.write_text(json.dumps(GOOD) + "\n" + json.dumps({**GOOD, "bias": "l3"}) + "\n")
    done = ran("--again", again, "--kernels", "--folder", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 right" in done.stdout
    assert "1 refused" in done.stdout


def test_numbers_draw_the_same_specs_with_rare_entries(fuzz):
    import fuzz_draw

    found = [fuzz_draw.drawn(3, number) for number in range(300)]
    assert found == [fuzz_draw.drawn(3, number) for number in range(300)]
    text = str(found)
    rare = ("muon", "adam", "implicit", "batch", "phase", "'rate': 0", "inner_steps", "levels",
            "kernel", "simplex", "every", "chain", "**0.25", "'window': 5", "f-divergence",
            "'predict': 'own'", "normalized", "smooth", "1 - alpha", "ftrl")  # fmt: skip
    assert not [entry for entry in rare if entry not in text]


@pytest.mark.full
def test_what_fails_is_kept_and_a_process_that_ends_does_not_end_the_run(fuzz, tmp_path):
    worker = fuzz.Worker(3, interpret=False)
    found = worker.ask(GOOD, ["no such check"], 60)
    assert found["came"] == "FAILED"
    assert worker.ask({**GOOD, "bias": "l3"}, ["forms"], 60)["came"] == "refused"
    late = worker.ask({**GOOD, "bias": {"expr": "log(cosh(e))"}}, ["layers"], -1)
    assert late["came"] == "FAILED"
    assert "no answer" in late["why"]
    assert worker.ask({**GOOD, "bias": "l3"}, ["forms"], 60)["came"] == "refused"
    worker.end()
    fuzz.keep(tmp_path, "12", GOOD, "forms: wrong\nnumbers")
    kept = (tmp_path / "12.yaml").read_text()
    assert kept.startswith("# forms: wrong\n# numbers\n")
    assert yaml.safe_load(kept) == GOOD


ZERO = torch.zeros(1)
DIVERGES = {**GOOD, "bias": {"expr": "-exp(2*y)"}, "optimizer": {"rate": 5}}


@pytest.fixture
def checks(monkeypatch):
    """What is held of a spec."""
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    monkeypatch.syspath_prepend(str(SCRIPT.parent / "codegen"))
    import fuzz_checks

    return fuzz_checks


def test_what_diverges_is_compared_until_it_does(checks):
    assert checks.forms(GOOD) == "forms agree"
    assert checks.forms(DIVERGES) == "wild"
    assert checks.layers(DIVERGES) == "wild"


def test_a_recurrence_that_diverges_alone_is_wrong(checks, monkeypatch):
    import test_own_expressions

    import mnemic.compiler.oracle.interpret

    read = test_own_expressions.interpreted

    def calm(*arguments):
        out, state = read(*arguments)
        return 0 * out.nan_to_num(), {n: 0 * x.nan_to_num() for n, x in state.items()}

    monkeypatch.setattr(test_own_expressions, "interpreted", calm)
    with pytest.raises(AssertionError, match="only the recurrence diverges"):
        checks.forms(DIVERGES)
    monkeypatch.setattr(mnemic.compiler.oracle.interpret, "interpret", lambda *_, **__: (ZERO, {}))
    with pytest.raises(AssertionError, match="the recurrence diverges, its interpreter does not"):
        checks.layers(DIVERGES)


@pytest.mark.parametrize(("moved", "right"), [(0.2, True), (1e-4, False)])
def test_chunks_may_be_off_by_what_a_rounding_decides(checks, moved, right):
    """Steps of one size whatever the gradient may make anything of a rounding."""
    import fuzz_layers

    from mnemic.codegen.support.compared import Own

    far = {None: 0.3, 0: 1e-4, 1: moved, 2: 0.0, 3: 1e-4}

    def run(dtype, form="recurrent", chunk=None, draw=None):
        return {"output": 1 + torch.ones(3, dtype=torch.float64) * far[draw]}

    class Made:
        rule = type("Rule", (), {"forms": ("recurrent", "chunk")})

    own = {"output": Own(1e-7)}
    exact = {"output": torch.ones(3, dtype=torch.float64)}
    with contextlib.nullcontext() if right else pytest.raises(AssertionError, match=r"0\.15 off"):
        fuzz_layers._chunks(Made, run, exact, own)
