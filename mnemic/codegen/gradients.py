"""The gradient of a token: the memories that it sees, and −η G of every matrix."""

from typing import Any

import sympy as sp

from mnemic.codegen import kept as pairs
from mnemic.codegen.builder import WINDOW_WEIGHT, Builder
from mnemic.codegen.deep.moves import memory_of
from mnemic.codegen.deep.passes import PREDICTION, as_key, as_vector, backward, forward
from mnemic.codegen.links import decayed_in_the_dual
from mnemic.codegen.readouts import headed
from mnemic.codegen.states import MATRIX, Carried, is_free
from mnemic.compiler import symbols as sym
from mnemic.compiler.rule import Layers, Rule

Names = dict[str, str]
Written = tuple[tuple[str, str], ...]
"""Steps as matrices, each with what it goes through: the momentum, or the memory itself."""


def gradients(b: Builder, carried: tuple[Carried, ...], roles: Names) -> dict[str, Written]:
    """−η ∇_W ℓ of every matrix (without η, where it multiplies O(S) instead)."""
    b.unit_rate = b.rule.applied.outside
    seen = {m.matrix.name: _reference(b, m) for m in carried}
    if through_network(b.rule):
        found = _of_network(b, carried, roles, seen)
    else:
        (m,) = carried
        found = {m.matrix.name: _of_matrix(b, m, roles, seen[m.matrix.name])}
    b.unit_rate = False
    return found


def through_network(rule: Rule) -> bool:
    """Whether gradients and read-outs go through a network, node by node."""
    return isinstance(rule, Layers) and not rule.network.linear


# -- the memory that is seen -----------------------------------------------------------------


def _reference(b: Builder, m: Carried) -> str:
    """W_ref: the memory that the gradient sees."""
    rule, seen = b.rule, m.memory
    if m.still is not None and (rule.anchor > 1 or m.every > 1):
        return m.still
    decay, free = _decay_seen(rule), is_free(rule, m.matrix)
    held_in = rule.retained.mode == "prox" and rule.retained.mirror != sym.w
    if decay != 1 and free and held_in:
        return decayed_in_the_dual(b, m.memory, decay, m.tag)
    if decay != 1:
        env: dict[str, Any] = {**b.coefficients(decay), "memory": m.memory}
        seen = b.map(f"seen{m.tag}", decay * sp.Symbol("memory", real=True), env, "prediction")
    bound = rule.retained.mode == "prox" and rule.retained.link.normaliser != "none"
    if free and not (decay != 1 and bound):
        return seen
    return memory_of(b, m, seen, f"W{m.tag}_seen")  # a decayed memory stays in its set


def _decay_seen(rule: Rule) -> Any:
    """The part of the decay that the gradient sees; a row over its sum takes what is its own."""
    if rule.problem.spec.retention.order != "before":
        return sp.Integer(1)
    if rule.kernels is not None and rule.kernels.predict.normalised:
        return rule.row_decay
    return rule.seen * rule.row_decay


def _predicted(b: Builder, m: Carried, seen: str, key: str, name: str, equation: str) -> str:
    """W_ref x of one vector, or of every vector of a window."""
    if m.kept is not None and b.rule.kernels is not None:
        counts = m.kept.anchor if b.rule.anchor > 1 else m.kept.counts
        return pairs.recall(
            b, b.rule.kernels.predict, m.kept.keys, seen, counts, key, name, equation
        )
    function = "recall_rows" if b.plan.axes(key)[:-1] else "recall"
    return b.call(name, as_vector(b, key), function, seen, key, equation=equation)


# -- one matrix ------------------------------------------------------------------------------


def _of_matrix(b: Builder, m: Carried, roles: Names, seen: str) -> Written:
    """The steps of one matrix: what erases and what writes apart, where their keys are."""
    rule, prediction = b.rule, None
    if b.predicts:
        name = rule.network.output if isinstance(rule, Layers) else "y_hat"
        prediction = _predicted(b, m, seen, roles["predict"], name, "prediction")
    through = "memory" if rule.momentum is None else "momentum"
    factor = _factor(b)
    if rule.split:
        erased = b.error(rule.error.slope * sym.y, prediction, roles["value"], roles["predict"],
                         "erased", factor)  # fmt: skip
        written = b.error(rule.error.offset, None, roles["value"], roles["predict"], "written",
                          factor)  # fmt: skip
        direct = "memory" if rule.momentum_on == "write" else through
        return (
            (_outer(b, m, "erasure", erased, roles["erase"]), direct),
            (_outer(b, m, "writing", written, roles["write"]), through),
        )
    step = headed(b, prediction, roles, factor, "u")
    return ((_outer(b, m, f"G{m.tag}", step, roles["write"]), through),)


def _factor(b: Builder) -> Any:
    """−η γ."""
    return -b.rate * b.rule.weight * (WINDOW_WEIGHT if b.slot else sp.Integer(1))


def _outer(b: Builder, m: Carried, name: str, rows: str, keys: str) -> str:
    """δ aᵀ; of a matrix behind a kernel the rows themselves."""
    if m.kept is not None:
        return rows
    if "r" in b.plan.axes(rows):
        return b.product(name, MATRIX, rows, keys, flip_left=True, equation="gradient")
    u, k = sp.Symbol("u", real=True), sp.Symbol("kay", real=True)
    env = {"u": (rows, as_vector(b, rows)), "kay": (keys, as_key(b, keys))}
    return b.map(name, u * k, env, "gradient")


# -- a network -------------------------------------------------------------------------------


def _of_network(
    b: Builder, carried: tuple[Carried, ...], roles: Names, seen: Names
) -> dict[str, Written]:
    """The steps of every matrix, by the chain rule."""
    network, by_name = b.rule.network, {m.matrix.name: m for m in carried}
    pull = "pull_rows" if b.plan.axes(roles["value"])[:-1] else "pull"

    def apply(matrix: str, x: str, name: str, equation: str) -> str:
        return _predicted(b, by_name[matrix], seen[matrix], x, name, equation)

    def back(matrix: str, x: str, name: str, equation: str) -> str:
        return b.call(name, as_vector(b, x), pull, seen[matrix], x, equation=equation)

    found = forward(b, network, apply, roles["predict"], b.vector("k", "k"), PREDICTION)
    error = b.error(b.rule.error.signal, found[network.output], roles["value"], roles["predict"],
                    "u", _factor(b))  # fmt: skip
    through = "memory" if b.rule.momentum is None else "momentum"
    return {
        name: ((_outer(b, by_name[name], f"G{name[1:]}", *pair), through),)
        for name, pair in backward(b, network, back, found, error, roles["write"]).items()
    }
