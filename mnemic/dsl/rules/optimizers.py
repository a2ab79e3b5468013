"""Rules about optimizers, windows and weights: the options that each method uses or refuses."""

from collections.abc import Iterator, Mapping
from typing import Final

from mnemic.dsl.coefficients import ONE
from mnemic.dsl.expressions import Apply, Name, Node, Number
from mnemic.dsl.memory import Diagonal, Interpolation, Linear, Nonparametric
from mnemic.dsl.methods import ELEMENTWISE, OPTIONS, have, listed
from mnemic.dsl.optimizer import OptimizerEntry
from mnemic.dsl.retention import GlobalL2, NoGlobal
from mnemic.dsl.rules.rule import (
    PLAIN,
    Rule,
    carries_keys,
    keeps_pairs,
    layers,
    linear_in_parameters,
)
from mnemic.dsl.spec import Spec
from mnemic.dsl.texts import texts
from mnemic.errors import Issue

SEES_ALL: Final = ("exact", "batch", "nonparametric")
"""Methods that start from the pairs themselves at every token."""

STEPPING: Final = ("gd", "momentum", "muon", *ELEMENTWISE)
"""Methods that take the gradient at a memory that is known before the step."""

_USED_BY: Final[Mapping[str, tuple[str, ...]]] = {
    "rate": (*STEPPING, "implicit", "flow", "batch", "exact"),
    "momentum": (
        "momentum",
        "muon",
        *(n for n, e in ELEMENTWISE.items() if "theta" in e.coefficients),
    ),
    "micro_steps": (*STEPPING, "implicit", "flow"),
    "inner_steps": (*STEPPING, "implicit", "batch"),
    "start": ("batch",),
    **{option: have(option) for option in OPTIONS},
    "ns_steps": ("muon",),
    "every": STEPPING,
    "rate_at": ("muon", *ELEMENTWISE),
    "anchor": STEPPING,
    "solver": ("exact", "nonparametric"),
}
"""Which methods have a use for a field of the optimizer."""


def fields_of_the_method(spec: Spec) -> Iterator[Issue]:
    """Refuse options of the optimizer that its method does not use."""
    optimizer = spec.optimizer
    for name, methods in _USED_BY.items():
        if not optimizer.knows(name) or optimizer.method in methods:
            continue
        if getattr(optimizer, name) == getattr(PLAIN, name):
            continue
        if name == "rate" and carries_keys(spec):  # the step that moves the kept keys
            continue
        word = OptimizerEntry.model_fields[name].alias or name
        reason = f"the method '{optimizer.method}' has no use for '{word}'"
        hint = f"leave it out, or choose a method that has: {', '.join(methods)}"
        yield Issue(reason, f"optimizer.{word}", hint=hint)


def origin_of_batch_steps(spec: Spec) -> Iterator[Issue]:
    """Require ``from: origin`` of full-batch steps: from the last W no form of them is derived."""
    if spec.optimizer.method == "batch" and spec.optimizer.start == "last":
        reason = "full-batch steps begin at zero at every token; from the last W none are derived"
        yield Issue(reason, "optimizer.from", hint="write from: origin; left out, it is last")


def momentum_of_its_method(spec: Spec) -> Iterator[Issue]:
    """Require for the method ``momentum`` its coefficient θ, which has no default."""
    if spec.optimizer.method == "momentum" and spec.optimizer.momentum is None:
        yield Issue("method 'momentum' needs 'momentum', its coefficient θ", "optimizer")


def matrices_for_muon(spec: Spec) -> Iterator[Issue]:
    """Refuse Muon for a vector: Newton-Schulz turns a matrix orthogonal."""
    if spec.optimizer.method != "muon":
        return
    if any(isinstance(memory, Diagonal) for memory in layers(spec.memory)):
        reason = "Muon orthogonalises a matrix, and a diagonal memory is a vector"
        yield Issue(reason, "optimizer.method", hint="use gd or momentum")
    if isinstance(spec.memory, Linear) and 1 in (spec.block.key_dim, spec.block.value_dim):
        reason = "Muon orthogonalises a matrix, and one of a single row or column is a vector"
        others = listed(("gd", "momentum", *ELEMENTWISE), "or")
        yield Issue(reason, "optimizer.method", hint=f"use {others}")


def steps_entry_by_entry(spec: Spec) -> Iterator[Issue]:
    """Refuse what cannot be combined with steps whose size does not scale with the gradient.

    A method is in ``ELEMENTWISE`` because its step stays the same when every gradient is scaled;
    ``tests/dsl/test_methods.py`` holds each to it.
    """
    optimizer = spec.optimizer
    if optimizer.method not in ELEMENTWISE:
        return
    method = ELEMENTWISE[optimizer.method]
    size = f"{method.title} {method.because}"
    if "rate_at" in optimizer.model_fields_set and optimizer.rate_at == "inside":
        reason = f"{size}, which a rate inside would cancel with"
        yield Issue(reason, "optimizer.rate_at", "inside", hint="leave it out: the rate is outside")
    if optimizer.rate.normalized:
        reason = f"{size}, so a rate has no curvature to bound"
        yield Issue(reason, "optimizer.rate", hint="leave out normalized")
    if optimizer.every > 1 or any(every > 1 for every in getattr(spec.memory, "every", ())):
        where = "optimizer.every" if optimizer.every > 1 else "memory.every"
        yield Issue(
            f"{method.title} takes the gradient of every token by itself; for a memory held for"
            " several tokens it is undefined whether it takes each gradient or their sum",
            where,
            hint="write anchor: {chunk: ...}, where every token takes a step of its own",
        )
    if optimizer.momentum is not None and optimizer.momentum.on == "write":
        reason = f"{method.title} takes one gradient, not a part of it"
        yield Issue(reason, "optimizer.momentum.on", "write", ("gradient",))
    if optimizer.momentum is not None and optimizer.momentum.per != "head":
        reason = f"{method.title}'s averages have one weight a head"
        yield Issue(reason, "optimizer.momentum.per", optimizer.momentum.per, ("head",))


def closed_steps_are_linear(spec: Spec) -> Iterator[Issue]:
    """Refuse methods that solve a step or keep moments (implicit, exact, flow, batch) for a memory
    that is not linear in W, and the last two for one with a residual."""
    method = spec.optimizer.method
    if method not in ("implicit", "exact", "flow", "batch") or keeps_pairs(spec):
        return
    if method in ("exact", "batch") and getattr(spec.memory, "residual", False):
        reason = f"the method '{method}' keeps moments of keys and values, without a residual"
        yield Issue(reason, "memory.residual", hint="write residual: false")
    if not linear_in_parameters(spec.memory):
        yield Issue(
            f"the method '{method}' solves its step, which needs a memory linear in its parameters",
            "optimizer.method",
            hint=f"use {listed(STEPPING, 'or')} on a deep memory",
        )


def methods_of_kept_pairs(spec: Spec) -> Iterator[Issue]:
    """Refuse steps for kept pairs, which have no parameters, and ``nonparametric`` elsewhere."""
    method = spec.optimizer.method
    if method == "nonparametric" and not keeps_pairs(spec):
        reason = "the method 'nonparametric' belongs to a memory that is made of the kept pairs"
        hint = "use memory: nonparametric, or method: exact for a least-squares fit"
        yield Issue(reason, "optimizer.method", hint=hint)
    if keeps_pairs(spec) and spec.optimizer != PLAIN and method not in ("nonparametric", "exact"):
        reason = "a memory of kept pairs has no parameters, so there is no step to take"
        yield Issue(reason, "optimizer", hint="leave the optimizer out, or write nonparametric")


def solvers_where_something_is_solved(spec: Spec) -> Iterator[Issue]:
    """Refuse a solver for attention of degree 0, which solves nothing."""
    mean = isinstance(spec.memory, Nonparametric) and spec.memory.degree == 0
    if mean and spec.optimizer.solver != PLAIN.solver:
        reason = "a local fit of degree 0 is a weighted mean, which needs no solver"
        yield Issue(reason, "optimizer.solver", hint="leave it out")


def exact_has_a_ridge(spec: Spec) -> Iterator[Issue]:
    """Require a ridge above 0 for an exact solver: first tokens leave W undetermined."""
    if spec.optimizer.method != "exact" or keeps_pairs(spec):
        return
    term = spec.retention.global_
    none = isinstance(term, NoGlobal)
    if none or (isinstance(term, GlobalL2) and term.l2.value == 0):
        yield Issue(
            "an exact solver needs a ridge above 0, or the first tokens have many solutions",
            "retention.global",
            hint="write global: {l2: 0.5}",
        )


def exact_keeps_by_weights(spec: Spec) -> Iterator[Issue]:
    """Refuse decay, order and local term where a method starts from all pairs, not the last W."""
    if spec.optimizer.method not in ("exact", "batch") or keeps_pairs(spec):
        return
    retention = spec.retention
    reason = f"the method '{spec.optimizer.method}' starts from all pairs, not from the last memory"
    if retention.decay != ONE or retention.row_decay is not None:
        yield Issue(f"{reason}, so there is nothing to decay", "retention.decay", hint=_FORGET)
    if spec.retention.order == "before":
        yield Issue(f"{reason}, so no decay comes before a step", "retention.order", hint=_FORGET)
    if retention.local.word() != "l2":
        yield Issue(
            f"{reason}, so there is no last memory to stay near", "retention.local", hint=_FORGET
        )


_FORGET: Final = "forget by weights: geometric"


def exact_is_one_linear_solve(spec: Spec) -> Iterator[Issue]:
    """Refuse terms and constraints other than a ridge for a method that solves moments."""
    if spec.optimizer.method not in ("exact", "batch"):
        return
    retention, hint = spec.retention, "use a stepping method such as gd"
    solver = f"the method '{spec.optimizer.method}' keeps moments of all pairs"
    if not isinstance(retention.global_, NoGlobal | GlobalL2):
        reason = f"{solver}, which can be combined with an l2 term only"
        yield Issue(reason, "retention.global", hint=hint)
    for name in ("constraint", "normalize"):
        if _word(getattr(retention, name)) != "none":
            yield Issue(f"{solver} and takes no constraint", f"retention.{name}", hint=hint)


def keys_of_one_loss(spec: Spec) -> Iterator[Issue]:
    """Refuse keys of several roles where the method follows one loss over all pairs."""
    if spec.optimizer.method not in ("exact", "batch"):
        return
    if any(getattr(spec.keys, role) is not None for role in ("predict", "erase", "write")):
        reason = "a solver over all pairs follows a loss, and keys of several roles have none"
        yield Issue(reason, "keys", hint="use a stepping method such as gd")


def one_place_for_the_gradient(spec: Spec) -> Iterator[Issue]:
    """Refuse what needs a gradient at every token under a chunk anchor, which fixes it."""
    optimizer = spec.optimizer
    if optimizer.anchor.chunk == 1:
        return
    if spec.retention.order == "before":
        yield Issue(
            "under a chunk anchor the gradient sees the memory of the chunk's start, so no decay"
            " can come before it",
            "retention.order",
            hint="write order: after, or anchor: token",
        )
    if optimizer.inner_steps > 1:
        yield Issue(
            "under a chunk anchor every inner step would repeat the same gradient",
            "optimizer.inner_steps",
            hint="raise the rate, or write anchor: token",
        )
    if optimizer.rate.normalized:
        yield Issue(
            "a normalised rate bounds the steps of one token each, not those of a chunk at once",
            "optimizer.rate",
            hint="lower the rate, or write anchor: token",
        )


def anchors_to_read(spec: Spec) -> Iterator[Issue]:
    """Refuse to read the memory at the anchor where no chunk has one."""
    if spec.readout.memory == "anchor" and spec.optimizer.anchor.chunk == 1:
        yield Issue(
            "there is no anchor to read: with a token anchor every token is a chunk's end",
            "readout.memory",
            hint="write before or after, or optimizer: {anchor: {chunk: 16}}",
        )


def normalized_steps(spec: Spec) -> Iterator[Issue]:
    """Refuse a normalised rate for implicit steps and flows, contractions at any rate."""
    if spec.optimizer.rate.normalized and spec.optimizer.method in ("implicit", "flow"):
        reason = f"the method '{spec.optimizer.method}' is a contraction at any rate"
        yield Issue(reason, "optimizer.rate", hint="leave out normalized")


def windows(spec: Spec) -> Iterator[Issue]:
    """Refuse ``window: all`` for steps, and a window above 1 for exact and batch, which see all."""
    method = "nonparametric" if keeps_pairs(spec) else spec.optimizer.method
    if spec.window == "all" and method not in SEES_ALL:
        yield Issue(
            f"a step of '{method}' sees the last c pairs, and all pairs have no fixed number",
            "window",
            hint="write an integer, or a method that sees all pairs: exact, batch",
        )
    if method in ("exact", "batch") and spec.window not in (1, "all"):
        reason = f"the method '{method}' sees all pairs so far"
        yield Issue(
            reason, "window", str(spec.window), hint="write all; to forget, use geometric weights"
        )


def windows_or_micro_steps(spec: Spec) -> Iterator[Issue]:
    """Refuse several pairs in one step together with several steps in one token."""
    if spec.optimizer.micro_steps > 1 and spec.window != 1:
        reason = "micro steps have keys and values of their own, which a window does not count"
        yield Issue(reason, "optimizer.micro_steps", hint="use one of the two")


def weights_of_a_window(spec: Spec) -> Iterator[Issue]:
    """Refuse window weights, c numbers a token, where no window has a size c above 1."""
    if spec.weights.word() == "window" and spec.window in (1, "all"):
        reason = "window weights are one for each pair of the window, which needs a size above 1"
        yield Issue(reason, "weights", hint="write window: 4, or weights: token")


def weights_that_multiply(spec: Spec) -> Iterator[Issue]:
    """Refuse geometric weights for a method that does not see the whole past."""
    if spec.weights.word() == "geometric" and spec.optimizer.method not in ("exact", "batch"):
        yield Issue(
            "geometric weights are for methods that see the whole past, exact and batch",
            "weights",
            hint="a step forgets by retention: {decay: token}",
        )


def weights_by_similarity(spec: Spec) -> Iterator[Issue]:
    """Require weights by similarity to the query for a local fit; refuse these elsewhere, and all
    weights in an interpolation."""
    similar, local = spec.weights.word() == "similarity", isinstance(spec.memory, Nonparametric)
    if similar and not local:
        reason = "similarity weights depend on the query, which only a nonparametric memory sees"
        yield Issue(reason, "weights", hint="use memory: nonparametric, or weights: token")
    if local and not similar:
        reason = "a nonparametric memory weighs its pairs by their similarity to the query"
        yield Issue(reason, "weights", spec.weights.word(), hint="write weights: similarity")
    if isinstance(spec.memory, Interpolation) and spec.weights.word() == "token":
        reason = "an interpolation solves (κ + ridge·I) c = v for all pairs alike, without weights"
        hint = "leave the weights out; where pairs should count differently, use method: exact"
        yield Issue(reason, "weights", "token", hint=hint)


def momentum_on_a_write(spec: Spec) -> Iterator[Issue]:
    """Refuse momentum of the write where the error cannot split into prediction and value, ŷ − v.

    Only a loss of a degree above two is certain not to split; the derivation decides the rest.
    """
    momentum, loss = spec.optimizer.momentum, next(texts(spec)).read
    if momentum is None or momentum.on != "write" or isinstance(loss, Issue):
        return
    if (_degree(loss.tree) or 0) > 2:
        yield Issue(
            "momentum on the write needs an error that splits into prediction and value, as l2's",
            "optimizer.momentum",
            hint="write on: gradient, or bias: l2",
        )


def _degree(tree: Node) -> float | None:
    """Return the degree in e, y, v and n of an expression of powers and products, else None."""
    match tree:
        case Number():
            return 0
        case Name(word):
            return 1 if word in ("e", "y", "v", "n") else 0
        case Apply("neg" | "abs", (inner,)):
            return _degree(inner)
        case Apply("pow", (base, Number(power))):
            degree = _degree(base)
            return None if degree is None else degree * power
        case Apply("mul", (left, right)):
            one, other = _degree(left), _degree(right)
            return None if one is None or other is None else one + other
        case Apply("div", (left, Number())):
            return _degree(left)
    return None


def _word(value: object) -> object:
    return value.word() if hasattr(value, "word") else value


RULES: tuple[Rule, ...] = (
    fields_of_the_method,
    origin_of_batch_steps,
    momentum_of_its_method,
    matrices_for_muon,
    steps_entry_by_entry,
    closed_steps_are_linear,
    methods_of_kept_pairs,
    solvers_where_something_is_solved,
    exact_has_a_ridge,
    exact_keeps_by_weights,
    exact_is_one_linear_solve,
    keys_of_one_loss,
    one_place_for_the_gradient,
    anchors_to_read,
    normalized_steps,
    windows,
    windows_or_micro_steps,
    weights_of_a_window,
    weights_that_multiply,
    weights_by_similarity,
    momentum_on_a_write,
)
