"""Claims on trained models: swaps of five elements, and reachability in a graph.

The papers do not tell how long they train. That a model solves a task is therefore open, and not
refused, where it does not within our steps.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mnemic.claims.claim import Told
from mnemic.claims.numbers import mean, shown
from mnemic.claims.outcome import Outcome, Panel, Part
from mnemic.claims.trained import Budget, Learned, curve, learned

SOLVED = 0.99
"""The accuracy from which on a task counts as solved."""


@dataclass(frozen=True)
class Model:
    """A curve's label, the packaged spec of its layers, and their number."""

    label: str
    spec: str
    layers: int = 1


ROUND: Final = Model("DeltaFormer, κ1 = round", "deltaformer-round")
SOFTMAX: Final = Model("DeltaFormer, κ1 = softmax", "deltaformer-softmax")
ATTENTION: Final = tuple(
    Model(f"Transformer, {n} layer" + "s" * (n > 1), "softmax-attention", n) for n in (1, 2)
)
SPECS: Final = tuple(dict.fromkeys(model.spec for model in (ROUND, SOFTMAX, *ATTENTION)))
"""The packaged specs of all models here, each once."""


def swaps(seeds: int, quick: bool, told: Told) -> Outcome:
    """Train models to follow 16 swaps of five elements."""
    task, budget = {"length": 16}, Budget(steps=1500, every=100, batch=32)
    models = (ROUND, *ATTENTION, SOFTMAX)
    runs = _runs("swaps", task, models, budget, seeds, quick, told)
    best = _best(runs, ATTENTION)
    parts = (
        Part("one layer of DeltaFormer (κ1 = round) solves 16 swaps of five elements",
             _solved(runs[ROUND.label]) or None, _seen(runs, ROUND)),
        Part("transformers of one and two layers do not",
             not _solved(runs[best.label]), _seen(runs, best)),
        Part("κ1 = round learns more than κ1 = softmax", _above(runs, ROUND, SOFTMAX),
             f"{_seen(runs, ROUND)}; {_seen(runs, SOFTMAX)}"),
    )  # fmt: skip
    return _outcome("swaps", "accuracy, all positions", parts, runs, task, budget, seeds)


def reachability(seeds: int, quick: bool, told: Told) -> Outcome:
    """Train models to tell what the first of 32 nodes reaches."""
    task, budget = {"nodes": 32}, Budget(steps=1500, every=100, batch=32)
    models = (ROUND, *ATTENTION, SOFTMAX)
    runs = _runs("reachability", task, models, budget, seeds, quick, told)
    one, best = _best(runs, (ROUND, SOFTMAX)), _best(runs, ATTENTION)
    parts = (
        Part("one layer of DeltaFormer solves reachability among 32 nodes",
             _solved(runs[one.label]) or None, _seen(runs, one)),
        Part("one layer of DeltaFormer beats transformers of one and two layers",
             _above(runs, one, best), f"{_seen(runs, one)}; {_seen(runs, best)}"),
    )  # fmt: skip
    return _outcome("reachability", "accuracy", parts, runs, task, budget, seeds)


def curriculum(seeds: int, quick: bool, told: Told) -> Outcome:
    """Train a model on long sequences of swaps at once, and by doubled lengths."""
    length, start, budget = 32, 4, Budget(steps=800, every=100, batch=32)
    ways = {f"{start} to {length}": {"start": start}, f"{length} at once": {}}
    runs: dict[str, list[Learned]] = {}
    for way, own in ways.items():
        task = {"elements": 3, "length": length, **own}
        model = Model(way, ROUND.spec)
        runs |= _runs("swaps", task, (model,), budget, seeds, quick, told)
    doubled, direct = (Model(way, ROUND.spec) for way in ways)
    parts = (
        Part("with lengths doubled from few swaps the model learns more in as many steps",
             _above(runs, doubled, direct), f"{_seen(runs, doubled)}; {_seen(runs, direct)}",
             "at this size the whole length is learned at once as fast"
             if _solved(runs[direct.label]) else
             f"{budget.steps} steps are too few: neither way comes to the longest"),
        Part("with lengths doubled the model solves the longest",
             _solved(runs[doubled.label]) or None, _seen(runs, doubled),
             f"{budget.steps} steps are too few"),
    )  # fmt: skip
    task = {"elements": 3, "length": length, "first length": start}
    return _outcome("curriculum", f"accuracy at {length} swaps", parts, runs, task, budget, seeds)


Runs = Mapping[str, list[Learned]]


def _runs(
    name: str, options: Mapping[str, object], models: tuple[Model, ...], budget: Budget, seeds: int,
    quick: bool, told: Told,
) -> Runs:  # fmt: skip
    from dataclasses import replace

    from mnemic.search.tasks import get

    task = get(name).configure(options)
    if quick:
        budget = replace(budget, steps=2, every=1, batch=2)
    found: dict[str, list[Learned]] = {}
    for model in models:
        own = replace(budget, layers=model.layers)
        for seed in range(seeds):
            told(f"{model.label}, seed {seed}")
            found.setdefault(model.label, []).append(one := learned(model.spec, task, own, seed))
            told(f"  {one.last:.3f} after {one.steps[-1:]} steps")
    return found


def _outcome(
    name: str, score: str, parts: tuple[Part, ...], runs: Runs, task: Mapping[str, Any],
    budget: Budget, seeds: int,
) -> Outcome:  # fmt: skip
    panel = Panel(name, "steps", score, tuple(curve(label, own) for label, own in runs.items()))
    rows = tuple(
        {"model": label, "seed": i, "steps": run.steps[-1:], "score": run.last, "cut": run.cut}
        for label, own in runs.items() for i, run in enumerate(own)
    )  # fmt: skip
    sizes = {**task, "dim": budget.dim, "steps": budget.steps, "batch": budget.batch,
             "lr": budget.lr, "seeds": seeds}  # fmt: skip
    return Outcome(name, parts, (panel,), sizes, rows=rows)


def _solved(runs: list[Learned]) -> bool:
    """Return whether the better half of the runs ends above `SOLVED`."""
    return sorted(run.last for run in runs)[len(runs) // 2] >= SOLVED


def _above(runs: Runs, one: Model, other: Model) -> bool | None:
    """Return whether one's worst run ends above the other's best; None where runs mix."""
    ours, theirs = ([run.last for run in runs[m.label]] for m in (one, other))
    if min(ours) > max(theirs):
        return True
    return False if max(ours) < min(theirs) else None


def _best(runs: Runs, models: tuple[Model, ...]) -> Model:
    return max(models, key=lambda m: mean([run.last for run in runs[m.label]]))


def _seen(runs: Runs, model: Model) -> str:
    own = runs[model.label]
    cut = ", cut off by its time" if any(run.cut for run in own) else ""
    return f"{model.label}: {shown([run.last for run in own])}{cut}"
