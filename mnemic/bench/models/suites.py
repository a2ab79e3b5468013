"""Measurements of whole models, kept one by one in a file so that a broken run goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from mnemic.bench import Told
from mnemic.bench.models import curves
from mnemic.bench.models.subjects import EACH, TRANSFORMER, key, versions
from mnemic.bench.report import Figure, Report
from mnemic.bench.store import Store
from mnemic.bench.suites import Asked


@dataclass(frozen=True)
class Job:
    """One measurement: of which model, under which name it is kept, and what measures it."""

    model: str
    name: str
    measure: Callable[[], dict[str, Any]]


def run(suite: str, asked: Asked, told: Told = lambda what: None) -> Report:
    """Measure the specs beside the transformer (one of each class, if none is named).

    Raises:
        UsageError: no such spec, or a file that holds something else.
        InvalidSpec: a spec that does not compile.
    """
    chosen = SUITES[suite]
    lesson, jobs = chosen.jobs(tuple(dict.fromkeys((TRANSFORMER, *(asked.specs or EACH)))), asked)
    store = Store(asked.out, f"mnemic bench {suite}", {**versions(), "sizes": lesson})
    found: dict[str, dict[str, Any]] = {}
    for index, job in enumerate(jobs):
        told(f"{job.name} ({index + 1} of {len(jobs)})")
        known = None if asked.again else store.known(job.name, key(job.model))
        if known is None:
            store.keep(job.name, key(job.model), job.measure())
            known = store.known(job.name, key(job.model))
        assert known is not None
        found[job.name] = known
    return Report(tuple(chosen.figures(found)), ())


# -- curves --------------------------------------------------------------------------------------


def _curves(models: tuple[str, ...], asked: Asked) -> tuple[str, list[Job]]:
    """A run for each seed and model, all models of one seed before the next."""
    lesson = replace(curves.Lesson(), steps=asked.length or curves.STEPS)
    jobs = [
        Job(model, f"{model} seed {seed}", partial(curves.run, model, seed, lesson))
        for seed in curves.SEEDS
        for model in models
    ]
    return f"{lesson.steps} steps; {lesson}", jobs


def _curves_figures(found: dict[str, dict[str, Any]]) -> Iterator[Figure]:
    for name, one in found.items():
        detail = f"{one['steps'][-1]} steps, {one['seconds'][-1]:.0f} s, {one['parameters']:,}"
        yield Figure(f"{name}, held-out text", one["bits"][-1], "bits a byte", detail)


@dataclass(frozen=True)
class Suite:
    """One kind of measurement: the sizes in words with its jobs, and how results are told."""

    jobs: Callable[[tuple[str, ...], Asked], tuple[str, list[Job]]]
    figures: Callable[[dict[str, dict[str, Any]]], Iterator[Figure]]


SUITES: Final = {"curves": Suite(_curves, _curves_figures)}
