"""What a search costs beside the training, and what it gains over chance.

    python benchmarks/search.py rate examples/search/recall.yaml --trials 20 --jobs 2
    python benchmarks/search.py stored --trials 10000
    python benchmarks/search.py curves examples/search/recall.yaml --trials 60 --seeds 5

``rate``: trials an hour at the smallest rung that trains, and where the time goes. ``stored``: the
time of a question and an answer on a study of many trials. ``curves``: the best skill so far over
trials, the space's sampler beside random search, on the same budget. Each goes on where it was
broken off; ``--run`` is the folder.
"""

import argparse
import contextlib
import json
import statistics
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import optuna

from mnemic.search.report.importance import first_skills
from mnemic.search.space.space import Space, load_space
from mnemic.search.study.records import (
    FINISHED,
    KIND,
    LOOK,
    LOOKED,
    RUNG,
    SPEC,
    training_seconds,
)
from mnemic.search.study.search import Search, open_search
from mnemic.search.study.trial import _Trial
from mnemic.search.study.worker import work_on

SMALL = Path(__file__).parents[1] / "examples" / "search" / "small.yaml"


def smallest(path: str, **changes: object) -> Space:
    """The space with nothing but the first rung that trains, once for every point."""
    space = load_space(path)
    rung = next(rung for rung in space.settings.rungs if rung.steps is not None)
    told = {"rungs": (rung.model_copy(update={"keep": 1.0}),), "start": (), **changes}
    return replace(space, settings=space.settings.model_copy(update=told))


def rate(asked: argparse.Namespace) -> dict[str, object]:
    """Trials an hour, and where the time goes."""
    space = smallest(asked.space, trials=asked.trials)
    with contextlib.closing(open_search(space, asked.run / "rate", tell=say)) as search:
        before = len(search.records())
        done = work_on(search, asked.jobs)
        found = search.records()[before:]
    counted = [one for one in found if one.counts]
    training = training_seconds(counted)
    looking = sum(float(one.attributes.get(LOOKED, 0.0)) for one in found)
    whole = done.seconds * asked.jobs
    return {
        "trials": len(counted),
        "seconds": done.seconds,
        "trials an hour": 3600 * len(counted) / done.seconds,
        "training": training / whole,
        "deriving, compiling, building": looking / whole,
        "search": 1 - (training + looking) / whole,
    }


def stored(asked: argparse.Namespace) -> dict[str, object]:
    """Seconds of each part of a trial but the training, on a study of many."""
    space = load_space(str(SMALL))
    with contextlib.closing(open_search(space, asked.run / "stored", tell=say)) as search:
        fill(search, asked.trials)
    opened = time.perf_counter()
    with contextlib.closing(open_search(space, asked.run / "stored", tell=say)) as search:
        first = time.perf_counter()
        search.records()
        parts = [once(search) for _ in range(10)]
        return {
            "trials": len(search.records()),
            "open": first - opened,
            **{name: statistics.median(part[name] for part in parts) for name in parts[0]},
            "slowest question and answer": max(part["whole"] for part in parts),
        }


def fill(search: Search, count: int) -> None:
    """Trials as a search leaves them, with made-up skills."""
    source = optuna.create_study(sampler=optuna.samplers.RandomSampler())
    with search.storage.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA journal_mode = WAL")
    for number in range(len(search.records()), count):
        search.study.add_trial(made(search, source))
        if number % 1000 == 0:
            say(f"{number} of {count} stored")


def made(search: Search, source: optuna.Study) -> optuna.trial.FrozenTrial:
    """A trial with answers by chance."""
    trial = source.ask()
    asked = object.__new__(_Trial)
    asked.trial = trial
    point = search.space.point(asked.suggest)
    number = time.perf_counter_ns()
    run = {"task": "mqar", "seed": 0, "score": 0.5, "skill": (number % 1000) / 1000,
           "seconds": 1.0, "step_seconds": 0.01, "curve": [[10, 0.1], [20, 0.2]]}  # fmt: skip
    look = {"identity": str(number), "kind": "affine", "parameters": 1, "state_bytes": 1,
            "flops": 1.0, "error": 0.1}  # fmt: skip
    rungs = {f"{RUNG}{i}": {"values": [-run["skill"], 1.0], "runs": [run], "seconds": 1.0}
             for i in range(3)}  # fmt: skip
    return optuna.create_trial(
        values=[run["skill"], 1.0], params=dict(point.answers),
        distributions=trial.distributions,
        user_attrs={LOOK: look, SPEC: {"name": "made"}, KIND: FINISHED, **rungs},
    )  # fmt: skip


def once(search: Search) -> dict[str, float]:
    """A question and an answer, part by part."""
    marks, processor = [time.perf_counter()], time.process_time()

    def mark() -> None:
        marks.append(time.perf_counter())

    search.wanted()
    mark()
    trial = search.ask()
    assert trial is not None, "no grid, whose points may have been taken"
    mark()
    asked = _Trial(search, trial)
    search.space.point(asked.suggest)
    mark()
    asked.known_before("a rule that nobody has seen")
    asked.goes_on(1, [-0.5, 1.0], "the same", 0.3)
    mark()
    search.study.tell(trial, [0.5, 1.0])
    mark()
    names = ("wanted", "ask", "choices", "stored before, goes on", "tell")
    parts = dict(zip(names, (b - a for a, b in pairwise(marks)), strict=True))
    return {**parts, "whole": marks[-1] - marks[0], "processor": time.process_time() - processor}


def curves(asked: argparse.Namespace) -> dict[str, object]:
    """By sampler and seed, the best mean skill after each trial."""
    found: dict[str, list[list[float]]] = {}
    own = load_space(asked.space).settings.sampler
    for seed in range(asked.seeds):
        for name in dict.fromkeys((own, "random")):
            say(f"{name}, seed {seed}")
            space = smallest(asked.space, trials=asked.trials, sampler=name, seed=seed)
            folder = asked.run / f"{name}-{seed}"
            with contextlib.closing(open_search(space, folder, tell=say)) as search:
                share(search, asked.run / "runs")
                work_on(search, asked.jobs)
                skills = [skill for _, skill in first_skills(space, search.records())]
            best = [max(skills[: i + 1]) for i in range(len(skills))]
            found.setdefault(name, []).append(best)
            draw(found, asked.run / "curves.png")
    return {"best so far": found}


def share(search: Search, runs: Path) -> None:
    """Let all searches of a comparison read one another's training runs."""
    runs.mkdir(parents=True, exist_ok=True)
    if not search.runs.exists():
        search.runs.symlink_to(runs.resolve())


def draw(found: dict[str, list[list[float]]], path: Path) -> None:
    """A thin line a seed, a thick one for their mean."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    for colour, (name, lines) in zip(("tab:blue", "tab:grey"), found.items(), strict=False):
        for line in lines:
            axis.step(range(1, len(line) + 1), line, color=colour, lw=0.6, where="post")
        mean = [sum(values) / len(values) for values in zip(*lines, strict=False)]
        axis.step(range(1, len(mean) + 1), mean, color=colour, lw=2.5, where="post", label=name)
    axis.set(xlabel="points trained", ylabel="best mean skill so far")
    axis.legend()
    figure.savefig(path, dpi=120)


def say(line: str) -> None:
    """A line of progress."""
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    """Measure what was asked for, and print it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("rate", "stored", "curves"))
    parser.add_argument("space", nargs="?", default=str(SMALL))
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--run", type=Path, default=Path("runs/benchmark-search"))
    asked = parser.parse_args()
    asked.run.mkdir(parents=True, exist_ok=True)
    measure = {"rate": rate, "stored": stored, "curves": curves}[asked.what]
    command = " ".join(["benchmarks/search.py", *sys.argv[1:]])
    print(json.dumps({"made_by": command, **measure(asked)}, indent=2))


if __name__ == "__main__":
    main()
