"""``benchmarks/gpu.py``: a prepared folder runs with torch alone; results are told right."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
BLOCKED = (
    "import sys; sys.modules.update({n: None for n in "
    "('mnemic', 'pydantic', 'optuna', 'typer', 'rapidfuzz')}); "
)
"""Of what mnemic needs, all that torch does not need itself."""

ROWS = ("mamba2", "gated delta, long", "huber", "decay after", "least squares", "batch 1")


def command(script: Path, *arguments: str | Path, blocked: bool = True) -> Any:
    given = ["gpu.py", *map(str, arguments)]
    code = f"{BLOCKED if blocked else ''}import sys, runpy; sys.argv = {given!r}; "
    code += f"runpy.run_path({str(script)!r}, run_name='__main__')"
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def prepared(place: Path, *rows: str) -> Path:
    done = command(BENCHMARKS / "gpu.py", "prepare", place, *rows, blocked=False)
    assert done.returncode == 0, done.stderr
    return place


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of the rows."""
    return prepared(tmp_path_factory.mktemp("gpu") / "prepared", "mamba2")


@pytest.mark.full
def test_a_dry_run_with_torch_alone(tmp_path: Path) -> None:
    folder = prepared(tmp_path / "prepared", *ROWS)
    out = tmp_path / "results" / "dry.json"
    done = command(folder / "gpu.py", "run", *ROWS, "--dry", "--forms", "chunk", "-o", out)
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert found["dry"]
    assert found["versions"]["torch"]
    rows = {one["row"]["name"]: one for one in found["rows"]}
    assert set(rows) == {"mamba2-like", "gated delta, long", "huber", "delta, decay after",
                         "least squares", "decode, batch 1"}  # fmt: skip
    for name, one in rows.items():
        ways = {"forward"} if one["row"]["decode"] else {"forward", "forward+backward"}
        assert set(one["ways"]) == ways, name
        assert all(one["ways"][way]["mnemic chunk"]["eager"] > 0 for way in ways)
    for name in ("mamba2-like", "gated delta, long"):  # the peer is given the same arguments
        assert rows[name]["runners"]["fla"]["apart"] <= 1e-5
    assert not rows["least squares"]["runners"]["fla"]["same"]
    assert "A dry run: the times mean nothing." in done.stdout
    shown = command(folder / "gpu.py", "table", out)
    assert "| gated delta, long | 1 × 40 × 2 × 16 | forward | mnemic chunk |" in shown.stdout


def test_a_dry_run_interprets_our_kernels(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "dry.json"
    done = command(folder / "gpu.py", "run", "mamba2", "--dry", "-o", out)
    assert done.returncode == 0, done.stderr
    (one,) = json.loads(out.read_text())["rows"]
    assert not any(name.startswith("mnemic") for name in one["failed"])
    assert one["ways"]["forward+backward"]["mnemic triton"]["eager"] > 0
    assert one["runners"]["fla"]["apart"] <= 1e-5


@pytest.mark.full
def test_a_row_of_ours_that_fails_ends_the_command(folder: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    kernels = broken / "mamba2" / "kernels.py"
    text = kernels.read_text("utf-8")
    kernels.write_text(text.replace("load_rows(", "load_nothing("), encoding="utf-8")
    asked = ("run", "mamba2", "--dry", "--forms", "triton", "-o", tmp_path / "dry.json")
    done = command(broken / "gpu.py", *asked)
    assert done.returncode == 4
    assert "FAILED mamba2-like: mnemic triton: " in done.stderr
    assert "load_nothing" in done.stderr


def test_a_prepared_folder_has_the_clock_of_a_device(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from on_gpu import subject

    clock = subject._clock(subject.load(folder / "mamba2"), "cuda")
    assert clock.__name__ == "on_device"


def test_no_gpu_is_said(folder: Path, tmp_path: Path) -> None:
    done = command(folder / "gpu.py", "run", "-o", tmp_path / "none.json")
    assert done.returncode == 5
    assert done.stderr == "gpu.py: torch finds no GPU; --dry tries everything on the CPU\n"


@pytest.mark.full
def test_the_checks_run_there_too(tmp_path: Path) -> None:
    folder = prepared(tmp_path / "prepared", "huber")
    done = command(folder / "gpu.py", "verify", "huber")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "huber-coordinate float32: passed, " in done.stdout
    kept = json.loads((folder / "huber-coordinate" / "verified.json").read_text())["entries"]
    assert [entry["passed"] for entry in kept] == [True]
    logs = sorted(path.name for path in folder.glob("verified-huber-coordinate-*.jsonl"))
    assert len(logs) == 3


def test_time_that_runs_out_leaves_what_was_found(folder: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    shutil.copytree(folder, kept)
    asked = ("verify", "mamba2", "--dtypes", "bfloat16", "--seconds", "0")
    done = command(kept / "gpu.py", *asked)
    assert done.returncode == 4
    assert done.stdout == "mamba2 bfloat16: cut short, 0 trials, 0 numbers compared, 0 s\n"
    assert not (kept / "mamba2" / "verified.json").exists()


def test_a_log_tells_what_is_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from on_gpu import shares

    share = shares.Share(tmp_path, "some", "bfloat16")
    right = {"form": "triton", "case": "T = 65", "part": "output", "error": 1e-3, "allowed": 1e-2,
             "told": ""}  # fmt: skip
    far = {**right, "part": "state W", "error": float("nan")}
    failed = {**right, "part": "run", "error": float("nan"), "allowed": None, "told": "no launch"}
    lines = [
        {"trial": "bfloat16, T = 65"},
        {"trial": "bfloat16, T = 65", "seconds": 1.0, "findings": [right, far, failed]},
        {"trial": "bfloat16, T = 1"},
    ]
    share.log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = [
        "triton, T = 65, state W: error nan, allowed 1.0e-02",
        "triton, T = 65, run: no launch",
    ]
    assert shares.wrong(share, shares.CUT) == found
    assert shares.wrong(share, "done") == ["bfloat16, T = 1: no process came back from it", *found]
    assert shares.lost(share.lines()) == ["bfloat16, T = 1"]
    first = "some bfloat16: FAILED, 1 trials, 2 numbers compared, 1 s"
    assert shares.told(share, shares.CUT) == [first, *(f"  {line}" for line in found)]


CHECK = """
import json, os, pathlib, sys
log, dies = pathlib.Path(sys.argv[1]), sys.argv[2] == "True"
begun = log.exists()
with log.open("a") as told:
    told.write(json.dumps({"trial": "second" if begun else "first"}) + "\\n")
if dies and not begun:
    os.kill(os.getpid(), 9)
found = {"form": "triton", "case": "T = 1", "part": "output", "error": 0, "allowed": 1, "told": ""}
with log.open("a") as told:
    line = {"trial": "second" if begun else "first", "seconds": 1, "findings": [found]}
    told.write(json.dumps(line) + "\\n")
"""
"""A process that does a trial, or takes the first one down with it."""


@pytest.mark.parametrize("dies", [False, True])
def test_a_spec_is_recorded_only_if_a_process_came_back_from_every_trial(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, dies: bool
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from on_gpu import shares

    recorded: list[str] = []
    monkeypatch.setattr(shares, "ended", lambda share: recorded.append(share.spec))
    old = shares.Share(tmp_path, "some", "float16")
    old.log.write_text(json.dumps({"trial": "of another device"}) + "\n")

    def process(share: shares.Share) -> list[str]:
        return [sys.executable, "-c", CHECK, str(share.log), str(dies)]

    code = shares.run(tmp_path, ["some"], shares.DTYPES, 2, 60.0, process)
    assert (code, recorded) == ((4, []) if dies else (0, ["some"]))
    trials = ["first", "second", "second"] if dies else ["first", "first"]
    assert [line["trial"] for line in old.lines()] == trials
    assert shares.lost(old.lines()) == (["first"] if dies else [])


def test_a_process_that_ends_is_told(folder: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    module = broken / "mamba2" / "mamba2.py"
    module.write_text("import os\nos.kill(os.getpid(), 11)\n", encoding="utf-8")
    done = command(broken / "gpu.py", "verify", "mamba2", "--processes", "2")
    assert done.returncode == 4
    assert done.stdout.count("ended with -11: , 0 trials, 0 numbers compared") == 3


def one(name: str, ways: dict[str, dict[str, float]], **row: Any) -> dict[str, Any]:
    """A row of results."""
    told = {"name": name, "batch": 1, "tokens": 1024, "heads": 1, "width": 64, "goal": 1.5,
            "own": None, "decode": False, "products": 0, **row}  # fmt: skip
    runners = {n: {"graph": s} for n, s in ways["forward"].items()}
    bytes_ = {"mnemic triton": {"bytes": {"forward": 3.35e9, "both": 6.7e9}}}
    return {"row": told, "ways": {"forward": runners}, "failed": {}, "runners": bytes_}


def test_goals_met_and_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from on_gpu import results

    found = {"device": {"name": "NVIDIA H100 80GB"}, "rows": [
        one("a", {"forward": {"mnemic triton": 2e-3, "fla": 4e-3}}),
        one("b", {"forward": {"mnemic triton": 5e-3, "fla": 4e-3}}, own=("a", 2.0)),
        one("c", {"forward": {"mnemic triton": 1.25e-3}}, decode=True),
        one(
            "d", {"forward": {"mnemic triton": 1e-3, "compiled chunk": 4e-3}}, products=966_000_000
        ),
    ]}  # fmt: skip
    assert list(results.goals(found)) == [
        "met    a, forward: 2.00× fla, 1.5× asked for",
        "MISSED b, forward: 0.80× fla, 1.5× asked for",
        "MISSED b, forward: 2.50× the time of 'a', 2× allowed",
        "MISSED c, forward: 80% of the bandwidth, 85% asked for",
        "MISSED d, forward: 4.00× compiled chunk, 5× asked for",
        "met    d, forward: 100% of the products' peak, 25% asked for",
    ]
