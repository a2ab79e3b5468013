"""Training in processes of its own: one that is killed, and two that share the work."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

TOLD = (
    "train", "gated-deltanet", "--data", "books", "--dim", "16", "--layers", "1", "--length", "32",
    "--steps", "12", "--eval-every", "4", "--warmup", "1",
)  # fmt: skip
ALONE = {"OMP_NUM_THREADS": "1"}

WAYS = [(), ("--shard",), ("--sequence-parallel", "2")]

pytestmark = pytest.mark.full


@pytest.fixture(autouse=True)
def _books(tmp_path: Path) -> None:
    (tmp_path / "books").mkdir()
    for i in range(25):
        (tmp_path / "books" / f"{i}.txt").write_text(f"book {i} says again: book {i} is short\n")


def started(place: Path, *command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", *command], cwd=place, text=True, env={**os.environ, **ALONE},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip


def done(place: Path, *command: str) -> None:
    with started(place, *command) as process:
        _, told = process.communicate(timeout=300)
    assert process.returncode == 0, told


def table(place: Path) -> list[dict[str, str]]:
    with next(place.glob("runs/*/curve.csv")).open() as stream:
        return [{k: x for k, x in row.items() if k != "seconds"} for row in csv.DictReader(stream)]


def losses(place: Path, steps: int = 12) -> list[Any]:
    state = next(place.glob(f"runs/*/checkpoint-{steps}/trainer_state.json")).read_text()
    return [e.get("loss", e.get("eval_loss")) for e in json.loads(state)["log_history"]]


def test_a_killed_process_ends_as_one_that_was_not(tmp_path: Path) -> None:
    places = [tmp_path / name for name in ("whole", "cut")]
    for place in places:
        place.mkdir()
        (place / "books").symlink_to(tmp_path / "books")
    whole, cut = places
    done(whole, "mnemic", *TOLD)
    with started(cut, "mnemic", *TOLD) as process:
        until = time.monotonic() + 120
        while not list(cut.glob("runs/*/checkpoint-*")) and time.monotonic() < until:
            time.sleep(0.02)
        process.kill()  # while the first checkpoint is written, or soon after
    assert process.returncode == -signal.SIGKILL
    done(cut, "mnemic", *TOLD, "--resume")
    assert losses(cut) == losses(whole)
    assert table(cut) == table(whole)


def workers(torchrun: int) -> dict[int, int]:
    """The processes that torchrun has begun, by rank."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            told = (entry / "environ").read_bytes().split(b"\0") if parent == torchrun else []
        except (OSError, ValueError):
            continue
        ranks = [int(x.removeprefix(b"RANK=")) for x in told if x.startswith(b"RANK=")]
        found |= dict.fromkeys(ranks, int(entry.name))
    return found


def steps_of(place: Path) -> int:
    """The steps of the last whole checkpoint; 0 where there is none yet."""
    whole = place.glob("runs/*/checkpoint-*/trainer_state.json")
    found = [int(path.parent.name.rpartition("-")[2]) for path in whole]
    return max(found, default=0)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are found in /proc")
@pytest.mark.parametrize("how", WAYS)
def test_a_kill_in_each_of_two_processes_ends_as_a_run_without(
    tmp_path: Path, how: tuple[str, ...]
) -> None:
    told = (*TOLD, "--batch", "2", "--steps", "28", *how)  # room for both kills
    two = ("torch.distributed.run", "--nproc-per-node", "2", "--standalone", "-m", "mnemic", *told)
    places = [tmp_path / name for name in ("whole", "cut")]
    for place in places:
        place.mkdir()
        (place / "books").symlink_to(tmp_path / "books")
    whole, cut = places
    done(whole, *two)
    for rank in (1, 0):
        resumed = ("--resume",) * (rank == 0)
        before = steps_of(cut)
        with started(cut, *two, *resumed) as process:
            until = time.monotonic() + 240
            while steps_of(cut) == before and process.poll() is None and time.monotonic() < until:
                time.sleep(0.02)
            os.kill(workers(process.pid)[rank], signal.SIGKILL)
            process.communicate(timeout=240)
        assert process.returncode != 0
        assert before < steps_of(cut) < 28
    done(cut, *two, "--resume")
    assert losses(cut, 28) == losses(whole, 28)
    assert table(cut) == table(whole)


@pytest.mark.parametrize("how", WAYS)
def test_two_processes_learn_what_one_does(tmp_path: Path, how: tuple[str, ...]) -> None:
    places = [tmp_path / name for name in ("one", "two")]
    for place in places:
        place.mkdir()
        (place / "books").symlink_to(tmp_path / "books")
    one, two = places
    done(one, "mnemic", *TOLD, "--batch", "4")
    batch = "4" if "--sequence-parallel" in how else "2"
    done(two, "torch.distributed.run", "--nproc-per-node", "2", "--standalone",
         "-m", "mnemic", *TOLD, "--batch", batch, *how)  # fmt: skip
    for row, expected in zip(table(two), table(one), strict=True):
        found = {name: float(x) for name, x in row.items()}
        assert found == pytest.approx({name: float(x) for name, x in expected.items()}, rel=1e-4)
