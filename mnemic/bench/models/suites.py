"""Measurements of whole models, kept one by one in a file so that a broken run goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from mnemic.bench import Told
from mnemic.bench.models import curves, decoding, training
from mnemic.bench.models.subjects import EACH, NAMED_AFTER, SHAPE, TRANSFORMER, key, versions
from mnemic.bench.report import Figure, Report
from mnemic.bench.store import Store
from mnemic.bench.suites import Asked as Asked


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
        InvalidSpec: a spec that is not compiled.
    """
    chosen = SUITES[suite]
    lesson, jobs = chosen.jobs(tuple(dict.fromkeys((TRANSFORMER, *(asked.specs or EACH)))), asked)
    keys = {job.model: key(job.model) for job in jobs}  # what is no spec is told before all else
    store = Store(asked.out, f"mnemic bench {suite}", {**versions(), "sizes": lesson})
    found: dict[str, dict[str, Any]] = {}
    for index, job in enumerate(jobs):
        told(f"{job.name} ({index + 1} of {len(jobs)})")
        known = None if asked.again else store.known(job.name, keys[job.model])
        if known is None:
            store.keep(job.name, keys[job.model], job.measure())
            known = store.known(job.name, keys[job.model])
        assert known is not None
        found[job.name] = known
    return Report(tuple(chosen.figures(found)), (lesson,))


def setting() -> str:
    """Return the versions on one line."""
    told = versions()
    return ", ".join(
        f"{name} {told[name]}" for name in ("torch", "transformers", "python", "machine")
    )


# -- curves --------------------------------------------------------------------------------------


def _curves(models: tuple[str, ...], asked: Asked) -> tuple[str, list[Job]]:
    """Return a run for each seed and model, all models of one seed before the next."""
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


# -- speed ---------------------------------------------------------------------------------------

SIZES: Final = (
    f"{SHAPE.blocks} blocks of {SHAPE.dim} channels, {SHAPE.heads} heads, one sequence, float32, "
    "processor time"
)
OVERHEAD: Final = 1.1
"""How many times as long as its layers and products a model may take."""


def _each(
    measure: Callable[[str, int], dict[str, Any]], longest: int
) -> Callable[[tuple[str, ...], Asked], tuple[str, list[Job]]]:
    def jobs(models: tuple[str, ...], asked: Asked) -> tuple[str, list[Job]]:
        most = asked.length or longest
        found = [Job(model, model, partial(measure, model, most))
                 for model in models if model != TRANSFORMER]  # fmt: skip
        return f"up to {most} tokens; {SIZES}", found

    return jobs


def _training_figures(found: dict[str, dict[str, Any]]) -> Iterator[Figure]:
    for name, one in found.items():
        for length, seconds in one["seconds"].items():
            goal = 1.0 if name == NAMED_AFTER and int(length) >= training.OVERTAKES else None
            what = f"{name}, training, transformer over model at T={length}"
            yield Figure(what, seconds[TRANSFORMER] / seconds["model"], "x", _times(seconds), goal)
        parts = one["parts"]
        yield Figure(f"{name}, model over its layers and products", parts["model"] / parts["parts"],
                     "x", _times(parts), most=OVERHEAD)  # fmt: skip


def _decoding_figures(found: dict[str, dict[str, Any]]) -> Iterator[Figure]:
    for name, one in found.items():
        for context, seconds in one["seconds"].items():
            goal = 1.0 if name == NAMED_AFTER and int(context) >= decoding.OVERTAKES else None
            what = f"{name}, decoding, transformer over model after {context}"
            kept = ", ".join(f"{kind} {x:,} bytes" for kind, x in one["bytes"][context].items())
            detail = f"{_times(seconds)}; {kept}"
            yield Figure(what, seconds[TRANSFORMER] / seconds["model"], "x", detail, goal)


def _times(seconds: dict[str, float]) -> str:
    return ", ".join(f"{name} {x * 1e3:.1f} ms" for name, x in seconds.items())


@dataclass(frozen=True)
class Suite:
    """One kind of measurement: the sizes in words with its jobs, and how results are told."""

    jobs: Callable[[tuple[str, ...], Asked], tuple[str, list[Job]]]
    figures: Callable[[dict[str, dict[str, Any]]], Iterator[Figure]]


SUITES: Final = {
    "curves": Suite(_curves, _curves_figures),
    "training": Suite(_each(training.run, training.LENGTHS[-1]), _training_figures),
    "decoding": Suite(_each(decoding.run, decoding.CONTEXTS[-1]), _decoding_figures),
}
