"""The page of several devices: its example and its script run, in two processes."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from in_processes import in_processes

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "distributed.md").read_text(encoding="utf-8")
SCRIPT = ROOT / "examples" / "cut_sequence.py"


def test_its_example_runs(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.+?)```", PAGE, re.DOTALL)
    in_processes(2, tmp_path, lambda: exec(compile(code, "distributed.md", "exec"), {}))


def script(processes: int, place: Path, spec: str) -> list[list[float]]:
    place.mkdir()
    found = importlib.util.spec_from_file_location("cut_sequence", SCRIPT)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return in_processes(processes, place, lambda: module.train(spec, 48, 16, 2, steps=3))


@pytest.mark.some(1)
@pytest.mark.parametrize("spec", ["gated-deltanet", "titans-mag", "memora"])
def test_its_script_learns_the_same_in_three_processes_as_in_one(tmp_path: Path, spec: str) -> None:
    (expected,) = script(1, tmp_path / "one", spec)
    for losses in script(3, tmp_path / "three", spec):
        assert losses == pytest.approx(expected, rel=1e-5)
