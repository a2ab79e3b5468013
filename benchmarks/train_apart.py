"""The training runs of a leaderboard, or of a confirmation, on a machine with torch and few wheels.

    python benchmarks/train_apart.py SPACE SPEC... --block FILE --device cuda --jobs 4 \
        --seconds 500 -o FOLDER
    cp -r FOLDER/. RUN/runs/          # into a leaderboard's folder; then the leaderboard again

A leaderboard reads the runs that its folder holds, wherever they were trained. Beside torch this
needs pydantic, rfc8785 and PyYAML, neither Optuna nor SciPy. Each run has a process of its own,
with one thread; ``--jobs`` run at a time, and after ``--seconds`` those that are not done are
ended: their checkpoints stay, for the same command on the same kind of device. ``--done
RUN/one-block.json`` leaves out what is in a file of results already. ``--seeds 1000:1003 --steps
800 --dim 128`` are those of a confirmation, with its longer and wider models. Exits with 4 where a
run is not done.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections.abc import Iterator
from multiprocessing.context import SpawnProcess
from pathlib import Path

from mnemic.models.device import Place
from mnemic.search.space.one_block import by_hand, with_block
from mnemic.search.space.space import Space, load_space
from mnemic.search.study import training
from mnemic.search.study.training import Budget, Job


def jobs(space: Space, asked: argparse.Namespace) -> Iterator[Job]:
    """Yield the runs of the specs, spec by spec, but those in a file of results."""
    settings = space.settings
    rung, model = settings.rungs[-1], settings.model
    steps = asked.steps or rung.steps
    assert steps is not None
    if asked.dim:
        model = model.model_copy(update={"dim": asked.dim})
    known = done(asked.done) if asked.done else set()
    first, last = map(int, asked.seeds.split(":")) if asked.seeds else (0, rung.seeds)
    place = Place(asked.device, settings.limits.memory, asked.compile)
    budget = Budget(model, settings.training, steps)
    for name in asked.specs:
        spec = by_hand(space, name)
        for seed in range(first, last):
            for task, entry in settings.tasks.items():
                job = Job(spec, task, entry, rung.sizes.get(task), budget, seed, place)
                if job.key not in known and task in (asked.tasks or settings.tasks):
                    yield job


def done(path: Path) -> set[str]:
    """Return the keys of the runs in a file of results."""
    kept = json.loads(path.read_text(encoding="utf-8"))
    return {run["key"] for one in kept.values() for run in (*one["runs"], *one.get("spare", ()))}


def trained(job: Job, folder: Path) -> None:
    """Do one run in this process, and print what came of it."""
    import torch

    torch.set_num_threads(1)
    found = training.run(job, folder)
    told = (
        f"skill {found.skill:.3f}, {found.seconds:.0f} s, {1e3 * found.step_seconds:.1f} ms a step"
    )
    print(f"{job.spec.name} {job.task} seed {job.seed}: {told}", flush=True)


def all_trained(waiting: list[Job], folder: Path, at_a_time: int, seconds: float) -> int:
    """Train the jobs, each in its process; return how many did not come to their end."""
    context = multiprocessing.get_context("spawn")  # CUDA bears no fork
    end, failed = time.monotonic() + seconds, 0
    running: list[SpawnProcess] = []
    while waiting or running:
        while waiting and len(running) < at_a_time:
            process = context.Process(target=trained, args=(waiting.pop(0), folder))
            process.start()
            running.append(process)
        time.sleep(0.2)
        over = [process for process in running if process.exitcode is not None]
        failed += sum(process.exitcode != 0 for process in over)
        running = [process for process in running if process not in over]
        if time.monotonic() > end:
            for process in running:
                process.kill()
            return failed + len(running) + len(waiting)
    return failed


def main() -> int:
    """Parse the command line and train."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("space")
    parser.add_argument("specs", nargs="+")
    parser.add_argument("--block")
    parser.add_argument("--tasks", nargs="+")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seeds", metavar="FIRST:END")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--dim", type=int)
    parser.add_argument("--done", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    asked = parser.parse_args()
    space = load_space(asked.space)
    space = space if asked.block is None else with_block(space, asked.block)
    every = list(jobs(space, asked))
    count = len(every)
    print(f"{count} runs")
    left = all_trained(every, asked.output, asked.jobs, asked.seconds)
    print(f"{left} of {count} runs are not done" if left else "all done")
    return 4 if left else 0


if __name__ == "__main__":
    raise SystemExit(main())
