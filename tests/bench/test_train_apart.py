"""Runs that are trained apart are those that a leaderboard would train, and it reads them."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from mnemic.models.files import claim
from mnemic.search.report import leaderboard as board
from mnemic.search.space.space import load_space
from mnemic.search.study import training

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "train_apart.py"
SPACE = """\
mnemic: 1
name: apart
search:
  tasks: {memorisation: tiny}
  model: {dim: 8, layers: 1}
  training: {batch: 4, eval_size: 16, warmup: 2}
  constraints: none
  rungs: [{steps: 6, seeds: 2}]
"""


def test_a_leaderboard_takes_runs_that_were_trained_apart(tmp_path):
    path, folder = tmp_path / "space.yaml", tmp_path / "board"
    path.write_text(SPACE)
    command = [sys.executable, SCRIPT, path, "gla", "-o", tmp_path / "apart", "--jobs", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("2 runs\n")
    assert done.stdout.endswith("all done\n")
    kept = {found.parent.name: json.loads(found.read_text())
            for found in (tmp_path / "apart").rglob(training.NAME)}  # fmt: skip
    claim(folder, "leaderboard")
    shutil.copytree(tmp_path / "apart", folder / "runs")
    (entry,) = board.leaderboard(load_space(path), ["gla"], folder, print)
    assert {run.key: run.seconds for run in entry.runs} == {
        key: run["seconds"] for key, run in kept.items()
    }
    again = subprocess.run(
        [*command, "--done", folder / board.RESULTS], capture_output=True, text=True, check=True
    )
    assert again.stdout == "0 runs\nall done\n"
