"""The gradient of a token: the memories that it sees, and −η G of every matrix."""

from dataclasses import dataclass
from typing import Any

import sympy as sp

from mnemic.codegen import keyed_rows
from mnemic.codegen.builder import WINDOW_WEIGHT, Builder
from mnemic.codegen.links import decayed_in_the_dual, linked
from mnemic.codegen.network_passes import (
    PREDICTION,
    Product,
    as_key,
    as_vector,
    backward,
    forward,
)
from mnemic.codegen.states import MATRIX, Carried, is_free, link_of
from mnemic.compiler import symbols as sym
from mnemic.compiler.network import FEATURES, Matrix
from mnemic.compiler.rule import Layers, Rule

Names = dict[str, str]
Written = tuple[tuple[str, str], ...]
"""Steps as matrices, each with what it goes through: the momentum, or the memory itself."""


@dataclass(frozen=True)
class Step:
    """−η ∇ℓ of a matrix as rows times keysᵀ, and what it goes through, as ``Written`` has it."""

    name: str
    rows: str
    keys: str
    through: str


def gradients(b: Builder, carried: tuple[Carried, ...], roles: Names) -> dict[str, Written]:
    """Plan −η ∇_W ℓ of every matrix (without η, where it multiplies O(S) instead)."""
    b.unit_rate = b.rule.applied.outside
    by_name = {m.matrix.name: m for m in carried}
    seen = {name: _reference(b, m) for name, m in by_name.items()}
    pull = "pull_rows" if b.plan.axes(roles["value"])[:-1] else "pull"

    def apply(matrix: str, x: str, name: str, equation: str) -> str:
        return _predicted(b, by_name[matrix], seen[matrix], x, name, equation)

    def back(matrix: str, x: str, name: str, equation: str) -> str:
        return b.call(name, as_vector(b, x), pull, seen[matrix], x, equation=equation)

    steps = factors_of_steps(b, roles, apply, back, _factor(b))
    b.unit_rate = False
    return {
        name: tuple(
            (_outer(b, by_name[name], step.name, step.rows, step.keys), step.through)
            for step in own
        )
        for name, own in steps.items()
    }


# -- the memory that is seen -----------------------------------------------------------------


def _reference(b: Builder, m: Carried) -> str:
    """Plan W_ref, the memory that the gradient sees."""
    rule, seen = b.rule, m.memory
    if m.still is not None and (rule.anchor > 1 or m.every > 1):
        return m.still
    decay, free = _decay_seen(rule), is_free(rule, m.matrix)
    link = link_of(rule, m.matrix, stepped=False)
    held_in = rule.retained.mode == "prox" and rule.retained.mirror != sym.w
    if decay != 1 and free and held_in:
        return decayed_in_the_dual(b, m.memory, decay, link, m.tag)
    if decay != 1:
        env: dict[str, Any] = {**b.coefficients(decay), "memory": m.memory}
        seen = b.map(f"seen{m.tag}", decay * sp.Symbol("memory", real=True), env, "prediction")
    bound = rule.retained.mode == "prox" and rule.retained.link.normaliser != "none"
    if free and not (decay != 1 and bound):
        return seen
    return linked(b, seen, link, f"W{m.tag}_seen")  # a decayed memory stays in its set


def _decay_seen(rule: Rule) -> Any:
    """Return the decay that the gradient sees: of rows over their sums, that of rows alone."""
    if rule.problem.spec.retention.order != "before":
        return sp.Integer(1)
    if rule.kernels is not None and rule.kernels.predict.normalised:
        return rule.row_decay
    return rule.seen * rule.row_decay


def _predicted(b: Builder, m: Carried, seen: str, key: str, name: str, equation: str) -> str:
    """Plan W_ref x of one vector, or of every vector of a window."""
    if m.kept is not None and b.rule.kernels is not None:
        counts = m.kept.anchor if b.rule.anchor > 1 else m.kept.counts
        return keyed_rows.recall(
            b, b.rule.kernels.predict, m.kept.keys, seen, counts, key, name, equation
        )
    function = "recall_rows" if b.plan.axes(key)[:-1] else "recall"
    return b.call(name, as_vector(b, key), function, seen, key, equation=equation)


def _factor(b: Builder) -> Any:
    """Return −η γ, the factor of a token's gradient, with the weight of a window's slot."""
    return -b.rate * b.rule.weight * (WINDOW_WEIGHT if b.slot else sp.Integer(1))


def _outer(b: Builder, m: Carried, name: str, rows: str, keys: str) -> str:
    """Plan δ aᵀ; of a matrix behind a kernel return the rows themselves."""
    if m.kept is not None:
        return rows
    if "r" in b.plan.axes(rows):
        return b.product(name, MATRIX, rows, keys, flip_left=True, equation="gradient")
    u, k = sp.Symbol("u", real=True), sp.Symbol("kay", real=True)
    env = {"u": (rows, as_vector(b, rows)), "kay": (keys, as_key(b, keys))}
    return b.map(name, u * k, env, "gradient")


# -- rows and keys, of a token or of a chunk -------------------------------------------------


def factors_of_steps(
    b: Builder, roles: Names, apply: Product, back: Product, factor: Any
) -> dict[str, tuple[Step, ...]]:
    """Return the steps of every matrix, given how the plan multiplies by memories that are known.

    Several steps of one matrix are those that erase and those that write, under keys of their own.
    """
    if not b.rule.network.linear:
        return _of_network(b, roles, apply, back, factor)
    (matrix,) = b.rule.network.matrices
    return {matrix.name: _of_matrix(b, matrix, roles, apply, factor)}


def _of_matrix(
    b: Builder, matrix: Matrix, roles: Names, apply: Product, factor: Any
) -> tuple[Step, ...]:
    """Plan the steps of one matrix: what erases and what writes apart, where their keys are."""
    rule, prediction = b.rule, None
    if rule.sees_memory:
        name = rule.network.output if isinstance(rule, Layers) else "y_hat"
        prediction = apply(matrix.name, roles["predict"], name, "prediction")
    through = "memory" if rule.momentum is None else "momentum"
    if rule.split:
        erased = b.error(rule.error.slope * sym.y, prediction, roles["value"], roles["predict"],
                         "erased", factor)  # fmt: skip
        written = b.error(rule.error.offset, None, roles["value"], roles["predict"], "written",
                          factor)  # fmt: skip
        direct = "memory" if rule.momentum_on == "write" else through
        return (
            Step("erasure", erased, roles["erase"], direct),
            Step("writing", written, roles["write"], through),
        )
    rows = b.error(rule.error.signal, prediction, roles["value"], roles["predict"], "u", factor)
    return (Step(f"G{rule.tag(matrix)}", rows, roles["write"], through),)


def _of_network(
    b: Builder, roles: Names, apply: Product, back: Product, factor: Any
) -> dict[str, tuple[Step, ...]]:
    """Plan the steps of every matrix of a network, by the chain rule."""
    network = b.rule.network
    found, prediction = {FEATURES: roles["predict"]}, None
    if b.rule.sees_memory:
        found = forward(b, network, apply, roles["predict"], b.raw("k"), PREDICTION)
        prediction = found[network.output]
    error = b.error(b.rule.error.signal, prediction, roles["value"], roles["predict"], "u", factor)
    through = "memory" if b.rule.momentum is None else "momentum"
    return {
        name: (Step(f"G{b.rule.tag(network.matrix(name))}", *pair, through),)
        for name, pair in backward(b, network, back, found, error, roles["write"]).items()
    }
