"""Without Triton, without matplotlib: the rest works, and what needs one says so in one line."""

import os
from pathlib import Path

import pytest
from faulty import begun, ended

BLOCKED = Path(__file__).with_name("blocked")
TRAIN = ("train", "deltanet", "--task", "memorisation", "--rung", "tiny", "--steps", "2")


def run(package, *arguments, cwd):
    """Run the command where a package is not installed."""
    paths = os.pathsep.join([str(BLOCKED), str(Path(__file__).parents[2])])
    told = {"BLOCKED": package, "PYTHONPATH": paths}
    return ended(begun(*arguments, environment=told, cwd=cwd))


@pytest.mark.parametrize("arguments", [("check", "deltanet", "--derive"), TRAIN])
@pytest.mark.parametrize("package", ["triton", "matplotlib"])
def test_the_rest_works(tmp_path, package, arguments):
    code, _, err = run(package, *arguments, cwd=tmp_path)
    assert code == 0, err
    assert "Traceback" not in err
    if arguments is TRAIN:
        names = {path.name for path in (tmp_path / "runs").rglob("*")}
        assert {"result.json", "curve.csv"} <= names
        assert ("curve.png" in names) == (package != "matplotlib")


KEPT = str(Path(__file__).parents[2] / "examples" / "search" / "recall")


def test_what_needs_matplotlib_says_so(tmp_path):
    code, out, err = run("matplotlib", "effects", KEPT, "-o", "e.md", cwd=tmp_path)
    assert (code, out) == (5, "")
    assert err == (
        "mnemic: matplotlib is not installed, and this command needs it: pip install matplotlib\n"
    )
    assert not any(tmp_path.iterdir())


def test_a_search_misses_matplotlib_before_it_trains(tmp_path):
    space = Path(__file__).parents[2] / "examples" / "search" / "small.yaml"
    code, _, err = run("matplotlib", "search", str(space), cwd=tmp_path)
    assert code == 5
    assert err.startswith("mnemic: matplotlib is not installed")
    assert not any(tmp_path.iterdir())


def test_doctor_tells_that_triton_is_missing(tmp_path):
    code, out, _ = run("triton", "doctor", cwd=tmp_path)
    assert code == 0
    assert "triton     -       not installed; the forms in PyTorch run without it" in out
