"""Needles in noise: models trained on short texts, asked in longer ones."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from mnemic.claims.claim import Told
from mnemic.claims.mad import first, last, seen
from mnemic.claims.numbers import mean, shown, spread
from mnemic.claims.outcome import Curve, Outcome, Panel, Part
from mnemic.claims.trained import Budget, learned

TRAINED, LENGTHS = 64, (32, 64, 128, 256)
"""The length of training, and those of the questions: as 2K to 16K around a context of 4K."""
HAYSTACKS: Final = {"repeat": "one text over and over (S-NIAH-PK)",
                    "random": "random words (S-NIAH-N)"}  # fmt: skip
MODELS: Final = {
    "Mamba2": "mamba2", "DeltaNet": "deltanet", "Gated DeltaNet": "gated-deltanet",
    "Titans": "titans", "YAAD": "yaad",
}  # fmt: skip
PRINTED: Final[Mapping[str, Mapping[str, tuple[float, ...]]]] = {
    "repeat": {
        "Mamba2": (98.6, 61.4, 31.0), "DeltaNet": (96.8, 98.8, 98.6, 71.4),
        "Gated DeltaNet": (89.8, 91.4, 90.0), "Titans": (99.8, 98.4, 98.2, 96.2),
        "YAAD": (99.2, 98.6, 94.4),
    },
    "random": {
        "Mamba2": (98.4, 55.8, 14.2), "DeltaNet": (47.2, 15.4, 12.8, 5.4),
        "Gated DeltaNet": (99.2, 91.8, 26.4), "Titans": (100.0, 99.8, 93.4, 80.2),
        "YAAD": (99.8, 98.6, 93.2),
    },
}  # fmt: skip
"""Per cent at 2K, 4K, 8K (Miras, table 3) and 16K (Atlas, table 3, for DeltaNet and Titans)."""

LEARNED: Final = 0.9
"""The mean accuracy at the length of training from which on a model's others are compared."""

Scores = Mapping[tuple[str, str], list[list[float]]]
"""Of each haystack and model, at each length, the score of each seed."""
OPTIONS: Final[Mapping[str, Any]] = {"digits": 3, "keys": 8, "words": 32}


def run(seeds: int, quick: bool, told: Told) -> Outcome:
    """Train one layer of each system at one length, and ask it at four."""
    from mnemic.search.tasks import get

    budget = Budget(steps=600, every=100, dim=32, heads=2, batch=16, lr=1e-2, seconds=600)
    if quick:
        budget = replace(budget, steps=1, every=1, batch=2)
    scores: dict[tuple[str, str], list[list[float]]] = {}
    for hay in HAYSTACKS:
        tasks = [get("needles").configure({**OPTIONS, "haystack": hay, "length": n})
                 for n in (TRAINED, *LENGTHS)]  # fmt: skip
        for label, spec in MODELS.items():
            told(f"{hay}: {label}")
            found = [learned(spec, tasks[0], budget, seed, tasks[1:]) for seed in range(seeds)]
            columns = [list(column) for column in zip(*(f.elsewhere for f in found), strict=True)]
            scores[hay, label] = columns
            told(f"  {shown(columns[-1])}")
    rows = tuple(
        {"haystack": title, "model": label, "length": f"{n} for {2 * 2**i}K",
         "printed": f"{PRINTED[hay][label][i]:.1f} %" if i < len(PRINTED[hay][label]) else "",
         "measured": shown(scores[hay, label][i])}
        for hay, title in HAYSTACKS.items() for label in MODELS for i, n in enumerate(LENGTHS)
    )  # fmt: skip
    sizes = {**OPTIONS, "trained at": TRAINED, "asked at": list(LENGTHS), "dim": budget.dim,
             "layers": 1, "heads": budget.heads, "steps": budget.steps, "batch": budget.batch,
             "lr": budget.lr, "seeds": seeds, "scored": "digits"}  # fmt: skip
    return Outcome("needles", () if quick else _parts(scores), _panels(scores), sizes, rows=rows)


def _panels(scores: Scores) -> tuple[Panel, ...]:
    panels = []
    for hay, title in HAYSTACKS.items():
        printed = tuple(
            Curve(label, tuple(2.0**i * 2048 for i in range(len(own))),
                  tuple(x / 100 for x in own), printed=True)
            for label, own in PRINTED[hay].items()
        )  # fmt: skip
        ours = tuple(
            Curve(label, tuple(map(float, LENGTHS)), tuple(map(mean, scores[hay, label])),
                  tuple(map(spread, scores[hay, label])))
            for label in MODELS
        )  # fmt: skip
        panels += [Panel(f"the papers' tables: {hay}", "tokens", "accuracy", printed, "x"),
                   Panel(f"ours: {title}", "tokens", "accuracy", ours, "x")]  # fmt: skip
    return tuple(panels)


def _parts(scores: Scores) -> tuple[Part, ...]:
    twice, four = 2 * TRAINED, 4 * TRAINED
    long = ("DeltaNet", "Gated DeltaNet", "Titans", "YAAD")
    return (
        _part("in random words DeltaNet loses more with the length than Gated DeltaNet, Titans and "
              "YAAD", scores, "random", twice, long, lambda told: last(told, "DeltaNet")),
        _part("in one text over and over Mamba2 loses most with the length",
              scores, "repeat", twice, tuple(MODELS), lambda told: last(told, "Mamba2")),
        _part("in random words YAAD keeps more than Mamba2, DeltaNet and Gated DeltaNet at twice "
              "the length of training",
              scores, "random", twice, ("Mamba2", "DeltaNet", "Gated DeltaNet", "YAAD"),
              lambda told: first(told, "YAAD", ["Mamba2", "DeltaNet", "Gated DeltaNet"])),
        _part("in random words Titans keeps more than DeltaNet at four times the length of "
              "training", scores, "random", four, ("Titans", "DeltaNet"),
              lambda told: first(told, "Titans", ["DeltaNet"])),
    )  # fmt: skip


def _part(
    says: str, scores: Scores, hay: str, length: int, models: Sequence[str],
    judge: Callable[[Mapping[str, list[float]]], bool | None],
) -> Part:  # fmt: skip
    """Compare models at a length; open where one has not learned the task where it was trained."""
    home, away = LENGTHS.index(TRAINED), LENGTHS.index(length)
    told = {label: scores[hay, label][away] for label in models}
    unlearned = [label for label in models if mean(scores[hay, label][home]) < LEARNED]
    why = "one layer of 32 channels does not show it"
    if unlearned:
        why = f"{', '.join(unlearned)} had not learned it at {TRAINED} tokens, in training"
    return Part(says, None if unlearned else judge(told), f"at {length} tokens: {seen(told)}", why)
