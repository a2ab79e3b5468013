"""The command that draws specs at random: it tells what came of them, and keeps what fails."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("fuzz.py")
GOOD = {"name": "drawn", "bias": "l2", "optimizer": {"rate": "token"}}


@pytest.fixture(scope="module")
def fuzz():
    """The script as a module."""
    place = importlib.util.spec_from_file_location("fuzz", SCRIPT)
    found = importlib.util.module_from_spec(place)
    place.loader.exec_module(found)
    return found


def ran(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", SCRIPT, *map(str, arguments)],
        capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def test_drawn_specs(tmp_path):
    done = ran("--specs", 4, "--seed", 5, "--kept", tmp_path / "kept.jsonl")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("seed 5: ")
    assert not (tmp_path / "kept.jsonl").exists()


def test_a_file_of_specs_is_tried_again(tmp_path):
    again = tmp_path / "again.jsonl"
    again.write_text(json.dumps(GOOD) + "\n" + json.dumps({**GOOD, "bias": "l3"}) + "\n")
    done = ran("--again", again, "--kernels", "--kept", tmp_path / "kept.jsonl")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 kernels agree" in done.stdout
    assert "1 refused" in done.stdout


@pytest.mark.parametrize("error", [NameError("a name"), AssertionError("not the same")])
def test_what_fails_is_kept(fuzz, tmp_path, capsys, error):
    def check(spec):
        raise error

    assert fuzz.tried(GOOD, check, tmp_path / "kept.jsonl") == "FAILED"
    assert json.loads((tmp_path / "kept.jsonl").read_text()) == GOOD
    assert str(error) in capsys.readouterr().out
