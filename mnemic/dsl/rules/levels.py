"""Rules about levels, and about coefficients that no expression may read."""

from collections.abc import Iterator

from mnemic.dsl.readout import Readout
from mnemic.dsl.rules.rule import Rule, deep, keeps_pairs
from mnemic.dsl.spec import Spec
from mnemic.dsl.texts import texts
from mnemic.errors import Issue


def levels_of_a_linear_memory(spec: Spec) -> Iterator[Issue]:
    """Refuse levels unless the memory is a sum of writes, and ``max_levels`` without levels."""
    readout, where = spec.readout, "readout.levels"
    if readout.levels is None:
        if readout.max_levels != Readout().max_levels:
            yield Issue("there are no levels to count", "readout.max_levels", hint="leave it out")
        return
    for holds, why, hint in (
        (deep(spec), "a deep memory is no sum of what its tokens wrote", "use memory: linear"),
        (keeps_pairs(spec), "a memory of kept pairs has no buckets", "use memory: linear"),
        (not spec.features.finite, "behind a kernel the pairs are kept", "use finite features"),
        (readout.normalizer != "none", "a normaliser covers one memory", "leave normalizer out"),
        (readout.memory != "after", "the newest level is the token's own write", "memory: after"),
        (bool(getattr(spec.memory, "slots", None)), "slots are read through a softmax", "no slots"),
    ):
        if holds:
            reason = f"levels weigh what each bucket of tokens wrote to a memory, and {why}"
            yield Issue(reason, where, hint=hint)


def read_by_nothing(spec: Spec) -> Iterator[Issue]:
    """Refuse expressions that read levels, window weights or the phase: the first two have several
    numbers a token, and the phase turns keys before anything else is computed."""
    apart = {
        "levels": (
            spec.readout.levels is not None,
            "levels has one number for each level, and this expression has no levels",
        ),
        "gamma": (
            spec.weights.word() == "window",
            "gamma has one number for each token of the window, and this expression has no window",
        ),
        "phase": (
            spec.retention.phase is not None,
            "the phase turns keys and queries before anything else is computed",
        ),
    }
    for text in texts(spec):
        for name, (there, reason) in apart.items():
            if there and name in text.names:
                yield Issue(reason, text.where, text.text)


RULES: tuple[Rule, ...] = (levels_of_a_linear_memory, read_by_nothing)
