"""MAD's five tasks, at sizes that a CPU can train, beside the tables of Miras and Atlas."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from mnemic.claims.claim import Told
from mnemic.claims.numbers import mean, shown, spread
from mnemic.claims.outcome import Curve, Outcome, Panel, Part
from mnemic.claims.trained import Budget, Learned, learned

SOLVED: Final = 0.99


class Setting(NamedTuple):
    """A task with our options, and the name of its column."""

    name: str
    title: str
    options: Mapping[str, Any]


TASKS: Final = (
    Setting("compression", "compression", {"vocabulary": 8, "length": 8}),
    Setting("noisy-recall", "noisy recall", {"length": 64}),
    Setting("fuzzy-recall", "fuzzy recall",
            {"vocabulary": 8, "length": 48, "key_size": 2, "value_size": 2}),
    Setting("selective-copying", "selective copying", {"vocabulary": 8, "length": 24, "copies": 4}),
    Setting("memorisation", "memorisation", {"vocabulary": 1024}),
)  # fmt: skip
MODELS: Final = {
    "Transformer": "softmax-attention", "Gated DeltaNet": "gated-deltanet", "Titans": "titans",
    "YAAD": "yaad",
}  # fmt: skip
PRINTED: Final = {
    "Transformer": (49.4, 100.0, 48.2, 95.9, 83.8),
    "Gated DeltaNet": (44.8, 100.0, 32.5, 96.2, 81.7),
    "Titans": (49.6, 100.0, 49.7, 99.4, 83.5), "YAAD": (51.9, 100.0, 50.2, 99.6, 85.7),
}  # fmt: skip
"""Per cent, in the order of the tasks: Miras, table 8; all but YAAD are in Atlas, table 4, too."""

Scores = Mapping[str, list[list[float]]]
"""Of each model, for each task, the last score of each seed."""


def run(seeds: int, quick: bool, told: Told) -> Outcome:
    """Train one layer of each system on each task."""
    from mnemic.search.tasks import get

    budget = Budget(steps=500, every=100, dim=32, heads=2, batch=16, lr=1e-2, seconds=600)
    if quick:
        budget = replace(budget, steps=1, every=1, batch=2)
    runs: dict[str, list[list[Learned]]] = {label: [] for label in MODELS}
    for setting in TASKS:
        task = get(setting.name).configure(setting.options)
        for label, spec in MODELS.items():
            told(f"{setting.title}: {label}")
            found = [learned(spec, task, budget, seed) for seed in range(seeds)]
            told(f"  {shown([one.last for one in found])}")
            runs[label].append(found)
    scores = {label: [[one.last for one in own] for own in every] for label, every in runs.items()}
    rows = tuple(
        {"task": setting.title, "model": label, "printed": f"{PRINTED[label][i]:.1f} %",
         "measured": shown(scores[label][i])}
        for i, setting in enumerate(TASKS) for label in MODELS
    )  # fmt: skip
    cut = [f"{label}, {TASKS[i].title}" for label, every in runs.items()
           for i, own in enumerate(every) if any(one.cut for one in own)]  # fmt: skip
    sizes: dict[str, Any] = {setting.title: dict(setting.options) for setting in TASKS}
    sizes |= {"dim": budget.dim, "layers": 1, "heads": budget.heads, "steps": budget.steps,
              "batch": budget.batch, "lr": budget.lr, "seeds": seeds}  # fmt: skip
    if cut:
        sizes["cut off by their time"] = cut
    return Outcome("mad", () if quick else _parts(scores), _panels(scores), sizes, rows=rows)


def _panels(scores: Scores) -> tuple[Panel, ...]:
    at = tuple(float(i) for i in range(1, len(TASKS) + 1))
    tasks = ", ".join(f"{i} {s.title}" for i, s in enumerate(TASKS, 1))
    theirs = tuple(
        Curve(label, at, tuple(x / 100 for x in PRINTED[label]), printed=True) for label in MODELS
    )
    ours = tuple(
        Curve(label, at, tuple(map(mean, own)), tuple(map(spread, own)))
        for label, own in scores.items()
    )
    axis = "task (" + tasks.replace(", 4", ",\n4") + ")"
    return (
        Panel("the papers' tables", axis, "accuracy", theirs),
        Panel("ours", axis, "accuracy", ours),
    )


def _parts(scores: Scores) -> tuple[Part, ...]:
    averages = {label: _averages(own) for label, own in scores.items()}
    others = [label for label in MODELS if label != "YAAD"]
    fuzzy = {label: own[2] for label, own in scores.items()}
    known = {label: own[4] for label, own in scores.items()}
    noisy = {label: own[1] for label, own in scores.items()}
    small = "one layer of 32 channels and 500 steps do not show it"
    return (
        Part("YAAD has the best average, before Transformers, Gated DeltaNet and Titans",
             first(averages, "YAAD", others), seen(averages), small),
        Part("all recall among noise", _all_solve(noisy), seen(noisy), small),
        Part("Gated DeltaNet is behind the others in fuzzy recall",
             last(fuzzy, "Gated DeltaNet"), seen(fuzzy), small),
        Part("YAAD memorises more than Transformers, Gated DeltaNet and Titans",
             first(known, "YAAD", others), seen(known),
             "with fresh sequences at every step every model comes to know all of the facts; the "
             "papers' training set has 256 sequences"),
    )  # fmt: skip


def _averages(own: list[list[float]]) -> list[float]:
    """Return the average over tasks of each seed."""
    return [mean(list(column)) for column in zip(*own, strict=True)]


def _all_solve(scores: Mapping[str, list[float]]) -> bool | None:
    return all(mean(own) >= SOLVED for own in scores.values()) or None


def first(scores: Mapping[str, list[float]], one: str, others: list[str]) -> bool | None:
    """Return whether one's worst run beats all the others' best; None if their ranges overlap."""
    best = max(max(scores[label]) for label in others)
    if min(scores[one]) > best:
        return True
    ahead = [label for label in others if min(scores[label]) > max(scores[one])]
    tied = all(mean(scores[label]) >= SOLVED for label in (one, *others))
    return False if ahead or tied else None


def last(scores: Mapping[str, list[float]], one: str) -> bool | None:
    """Return whether one's best run is below all the others' worst; None if ranges overlap."""
    others = [own for label, own in scores.items() if label != one]
    if max(scores[one]) < min(map(min, others)):
        return True
    return False if any(max(own) < min(scores[one]) for own in others) else None


def seen(scores: Mapping[str, list[float]]) -> str:
    """Return every model's score in words."""
    return ", ".join(f"{label} {shown(own)}" for label, own in scores.items())
