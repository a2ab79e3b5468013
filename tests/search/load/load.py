"""A search of thousands of trials by several workers on PostgreSQL, some of which are killed.

    .venv/bin/python tests/search/load/load.py --trials 2000 --workers 8 --seconds 3600

A grid of so many points is walked by workers of which, every few seconds, one taken at random is
killed (SIGKILL, or SIGTERM one time in four) and another started in its place; the first worker
lives on, and its memory is told. Trials sleep, so that the whole takes about as long as
``--seconds`` says; all else is as in ``mnemic search``: processes, heartbeats, retries, storage.
Then one worker walks the same grid unbroken, and the two are compared: no trial lost, none counted
twice, the same ranking. Ends with 1 where they differ; what was found is printed, and written as
JSON.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "study")]

import load_deeds  # noqa: E402
import psutil  # noqa: E402
from load_worker import BEAT  # noqa: E402
from optuna.trial import TrialState  # noqa: E402
from postgres import server  # noqa: E402

from mnemic.search.report.ranking import ranked  # noqa: E402
from mnemic.search.space.space import load_space  # noqa: E402
from mnemic.search.study.records import Record  # noqa: E402
from mnemic.search.study.search import open_search  # noqa: E402

SPACE = """\
mnemic: 1
name: {name}
bias: {{kind: huber, delta: {{range: [0.1, {high}], step: 0.1}}}}
retention: {{decay: {{choose: [token, channel]}}, order: {{choose: [before, after]}}}}
optimizer: {{rate: {{choose: [token, learned]}}}}
block: {{heads: 1, feed_forward: none, convolution: 0}}
search:
  tasks: {{memorisation: tiny}}
  model: {{dim: 8, layers: 1}}
  constraints: none
  rungs: [{{steps: 4, seeds: 2}}]
  sampler: grid
  trials: {trials}
  start: []
"""
WAYS = 8
"""Points of the grid for each value of delta."""


@dataclass
class Broken:
    """What happened in the run whose workers were killed."""

    seconds: float = 0.0
    killed: Counter[str] = field(default_factory=Counter)
    memory: list[tuple[int, float]] = field(default_factory=list)
    """Trials ended so far, and MiB that the first worker holds."""


def space_file(folder: Path, name: str, trials: int) -> Path:
    """Write a space whose grid has so many points."""
    path = folder / f"{name}.yaml"
    path.write_text(SPACE.format(name=name, trials=trials, high=round(trials / WAYS / 10, 1)))
    return path


def started(space: Path, run: Path, url: str, pause: float | str) -> "subprocess.Popen[bytes]":
    """Start a worker."""
    paths = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    told = {"OMP_NUM_THREADS": "1", "PYTHONPATH": paths, load_deeds.PAUSE: str(pause)}
    command = [sys.executable, str(HERE / "load_worker.py"), str(space), str(run), url]
    with (run.parent / "workers.log").open("ab") as log:
        return subprocess.Popen(command, env={**os.environ, **told}, stdout=log, stderr=log)


def broken(space: Path, folder: Path, url: str, asked: argparse.Namespace) -> Broken:
    """Walk the grid with workers that are killed until nothing is left to do."""
    found, chance, begun = Broken(), random.Random(asked.seed), time.monotonic()
    pause = 0.8 * asked.seconds * asked.workers / asked.trials
    numbers = iter(range(10**6))

    def another() -> "subprocess.Popen[bytes]":
        return started(space, folder / f"worker-{next(numbers)}", url, pause)

    workers = [another() for _ in range(asked.workers)]
    search = open_search(load_space(space), folder / "looker", url, BEAT)
    count = 0
    while workers[0].poll() is None:
        time.sleep(chance.expovariate(1 / asked.every))
        count = sum(one.state.is_finished() and one.counts for one in search.records())
        if workers[0].poll() is None:
            rss = psutil.Process(workers[0].pid).memory_info().rss / 2**20
            found.memory.append((count, round(rss, 1)))
        print(f"{time.monotonic() - begun:.0f} s: {count} trials", file=sys.stderr, flush=True)
        if count >= asked.trials - asked.workers:  # nobody is killed at the very end
            continue
        at = chance.randrange(1, asked.workers)
        name = chance.choice(["SIGKILL"] * 3 + ["SIGTERM"])
        if workers[at].poll() is None:
            workers[at].send_signal(getattr(signal, name))
            found.killed[name] += 1
            workers[at].wait(600)
        workers[at] = another()
    for one in workers:
        one.wait(300)
    found.seconds = time.monotonic() - begun
    search.close()
    return found


def unbroken(space: Path, folder: Path, url: str) -> None:
    """Walk the grid with one worker that nothing befalls."""
    assert started(space, folder / "unbroken", url, "none").wait() == 0


def kept(space: Path, folder: Path, url: str) -> tuple[list[Record], list[tuple[str, float]]]:
    """Return the records of a study, and its points in order with their skills."""
    read = load_space(space)
    search = open_search(read, folder / "reader", url, BEAT)
    records = search.records()
    search.close()
    order = [(load_deeds.digest(one.spec), one.skill.mean) for one in ranked(read, records)]
    return records, order


def faults(records: list[Record], trials: int) -> list[str]:
    """Return what is wrong with the records of a walk: lost, counted twice, or left."""
    counted = Counter(json.dumps(one.answers, sort_keys=True) for one in records if one.counts)
    twice = [point for point, times in counted.items() if times > 1]
    left = [one.number for one in records if not one.state.is_finished()]
    crashed = [one.number for one in records if one.counts and one.kind != "finished"]
    found = []
    if len(counted) != trials:
        found.append(f"{len(counted)} points counted, {trials} asked for")
    for what, which in (("counted twice", twice), ("left", left), ("without an end", crashed)):
        if which:
            found.append(f"{what}: {len(which)}, {which[:3]}")
    return found


def main() -> int:
    """Run both walks, compare, and tell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--every", type=float, default=20.0, help="seconds between deaths, in mean")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, server() as url:
        folder = Path(name)
        first, second = (space_file(folder, n, asked.trials) for n in ("killed", "unbroken"))
        happened = broken(first, folder, url, asked)
        unbroken(second, folder, url)
        records, order = kept(first, folder, url)
        calm, same = kept(second, folder, url)
        log = (folder / "workers.log").read_text()
    wrong = faults(records, asked.trials) + faults(calm, asked.trials)
    if order != same:
        wrong.append("the two rankings differ")
    if "Traceback" in log:
        wrong.append("a worker printed a traceback: " + log[log.index("Traceback") :][:2000])
    dead = sum(one.state is TrialState.FAIL and one.kind is None for one in records)
    put_back = sum(one.kind == "interrupted" for one in records)
    told = {
        "trials": asked.trials, "workers": asked.workers, "seconds": round(happened.seconds),
        "killed": dict(happened.killed), "trials of dead workers": dead, "put back": put_back,
        "memory": happened.memory[:: max(1, len(happened.memory) // 20)], "faults": wrong,
    }  # fmt: skip
    text = json.dumps(told, indent=1)
    print(text)
    if asked.output:
        asked.output.write_text(text + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
