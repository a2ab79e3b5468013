"""The test that a compiled folder carries: it runs anywhere, and it fails when it should."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mnemic.pipeline import compile as compile_spec

BLOCKED = "import sys; sys.modules['mnemic'] = sys.modules['sympy'] = sys.modules['yaml'] = None; "


def run(script: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The script in a process where only torch can be imported."""
    code = f"{BLOCKED}import runpy; runpy.run_path({str(script)!r}, run_name='__main__')"
    return subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


@pytest.mark.parametrize("name", ["gated-deltanet", pytest.param("gsa", marks=pytest.mark.full)])
def test_a_folder_tests_itself(name: str, tmp_path: Path) -> None:
    """From another directory, under a name that is no identifier."""
    written = compile_spec(name, out=tmp_path / "first").folder
    moved = tmp_path / "a-name that.is odd"
    shutil.move(written, moved)
    done = run(moved / f"test_{name.replace('-', '_')}.py", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"{name}: forms recurrent, chunk")
    assert all(line.startswith("  ok ") for line in lines[1:])
    for part in ("gradients: chunks of 16", "split after", "layer: steps", "padding on the left"):
        assert part in done.stdout


def test_a_folder_with_a_fault_fails(tmp_path: Path) -> None:
    folder = compile_spec("gated-deltanet", out=tmp_path / "faulty").folder
    module = folder / "gated_deltanet.py"
    text = module.read_text(encoding="utf-8")
    assert "k_left = mix_end[..., None] * k" in text
    faulty = text.replace("k_left = mix_end[..., None] * k", "k_left = k")
    module.write_text(faulty, encoding="utf-8")
    done = run(folder / "test_gated_deltanet.py", tmp_path)
    assert done.returncode == 1
    assert "FAIL" in done.stdout
