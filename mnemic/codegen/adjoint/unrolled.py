"""A plan without intervals: their ends become elementwise choices, so that a chunk is one graph."""

from dataclasses import dataclass

import sympy as sp

from mnemic.codegen.emit import OUTPUT
from mnemic.codegen.plan import (
    Closing,
    Given,
    Map,
    Plan,
    Quantity,
    Read,
    renamed_reads,
)


@dataclass(frozen=True)
class Unrolled:
    """A plan whose states are arguments, and what stands in each state and in the output then."""

    plan: Plan
    states: tuple[str, ...]
    ends: dict[str, str]
    closes: tuple[str, ...]
    """Givens that are 1 where an interval ends with the chunk, and 0 elsewhere."""


def unrolled(plan: Plan) -> Unrolled:
    """Return a plan's statements with those of its interval ends, each value chosen by whether one
    ends."""
    found = Plan(functions=dict(plan.functions), signals=dict(plan.signals))
    for quantity in plan.ordered():
        _copy(found, quantity)
    states = tuple(s for s in plan.states() if s in found.graph or s in plan.following)
    for state in states:
        if state not in found.graph:
            found.given(state, plan.axes(state))
    now = {state: plan.following.get(state, state) for state in states}
    if plan.output:
        now[OUTPUT] = plan.output
    moved = {n: s for s, n in plan.following.items() if s != n}
    closes = []
    for closing in plan.phases().closings:
        closes.append(found.given(f"closes_{closing.every}", ()))
        _close(found, closing, moved, now)
    return Unrolled(found, states, now, tuple(closes))


def _copy(plan: Plan, quantity: Quantity) -> None:
    if isinstance(quantity.op, Given):
        plan.given(quantity.name, quantity.axes)
        return
    plan.add(quantity.name, quantity.axes, quantity.op, quantity.equation)


def _close(plan: Plan, closing: Closing, moved: dict[str, str], now: dict[str, str]) -> None:
    """Choose, in each place, between what an interval's end puts there and what stood there.

    As in the forms, a statement that reads a next state (or what a shorter interval's end has put
    in place of one) reads what stands there by then.
    """
    places = {**moved, **closing.renamed}
    renamed = {name: now[place] for name, place in places.items() if place in now}
    for quantity in closing.statements:
        op = renamed_reads(quantity.op, renamed)
        name = quantity.name if op == quantity.op else f"{quantity.name}_{closing.every}"
        renamed[quantity.name] = plan.add(name, quantity.axes, op, quantity.equation)
    ends = {place: renamed.get(value, value) for place, value in closing.moves.items()}
    for place, value in ends.items():
        now[place] = _chosen(plan, closing.every, value, now[place], place)


def _chosen(plan: Plan, every: int, value: str, otherwise: str, place: str) -> str:
    closes, x, y = (sp.Symbol(n, real=True) for n in ("closes_", "x_", "y_"))
    axes = plan.axes(value)
    reads = (
        Read("closes_", f"closes_{every}", ()), Read("x_", value, axes), Read("y_", otherwise, axes)
    )  # fmt: skip
    expr = sp.Piecewise((x, closes > 0), (y, True))
    return plan.add(f"{place}_closed_{every}", axes, Map(expr, reads))
