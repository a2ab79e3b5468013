"""What starts fast imports little: `import mnemic` and `mnemic check` import nothing heavy."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiers import first_only

HEAVY = ("torch", "sympy", "networkx", "optuna", "matplotlib", "numpy", "triton")

PROGRAMS = {
    "import mnemic": "import mnemic",
    "errors": "import mnemic; mnemic.errors.InvalidSpec",
    "load": "import mnemic; mnemic.load('gated-deltanet')",
    "mnemic --help": "import sys; sys.argv = ['mnemic', '--help']\nRUN",
    "mnemic check": "import sys; sys.argv = ['mnemic', 'check', 'gated-deltanet']\nRUN",
    "mnemic check, invalid": "import sys; sys.argv = ['mnemic', 'check', 'gated-delta-net']\nRUN",
    "mnemic check --json": "import sys; sys.argv = ['mnemic', 'check', 'lp', '--json']\nRUN",
    "mnemic schema": "import sys; sys.argv = ['mnemic', 'schema']\nRUN",
}
RUN = """
from mnemic.cli import main
try:
    main()
except SystemExit:
    pass
"""
REPORT = f"\nimport sys; print('heavy:', *sorted(set({HEAVY!r}) & set(sys.modules)))"


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_heavy_is_imported(name: str) -> None:
    program = PROGRAMS[name].replace("RUN", RUN) + REPORT
    for _ in range(2):  # the warnings of a spec are derived when it is checked first, then kept
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )
    assert done.stdout.splitlines()[-1].split() == ["heavy:"]


@pytest.mark.parametrize("name", first_only(["gated-deltanet", "titans"], "gated-deltanet"))
def test_compiling_takes_neither_torch_nor_triton(name: str, tmp_path: Path) -> None:
    program = (
        f"import sys; sys.argv = ['mnemic', 'compile', {name!r}, '-o', {str(tmp_path / 'out')!r}]"
    )
    done = subprocess.run(
        [sys.executable, "-c", program + RUN + REPORT], capture_output=True, text=True, check=True,
        env={**os.environ, "MNEMIC_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip
    assert done.stdout.splitlines()[-1].split() == ["heavy:", "networkx", "sympy"]
    assert (tmp_path / "out" / "kernels.py").exists()
