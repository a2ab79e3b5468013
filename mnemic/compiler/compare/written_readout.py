"""What a read-out adds to a memory's product with the query, and what it divides it by."""

from dataclasses import replace
from typing import Any

import sympy as sp

from mnemic.compiler.compare.coordinates import Coordinates
from mnemic.compiler.compare.gradient_step import Writer
from mnemic.compiler.compare.opaque_functions import OWN


class Ones(Coordinates):
    """The same rule fed with ones for values: the weights that the values carry."""

    def value(self, row: int, step: str) -> Any:
        """Return one, whatever the row."""
        return sp.Integer(1)


def of_ones(writer: Writer) -> Writer:
    """Return a writer of the same rule fed with ones, which no row decay belongs to."""
    rule = replace(writer.rule, row_decay=sp.Integer(1))
    return Writer(rule, Ones(rule, writer.at.values))


def with_bonus(writer: Writer, output: list[Any], queries: list[Any]) -> list[Any]:
    """Return y + v (u ∘ φ(k))·φ(q), where the rule has a bonus u."""
    rule, at = writer.rule, writer.at
    if rule.problem.scalar("bonus") is None:
        return output
    keys = at.features("write", "")
    bonus = [writer.by_entry(rule.problem.value("bonus"), 0, j) for j in range(at.columns)]
    seen = sum((u * k * q for u, k, q in zip(bonus, keys, queries, strict=True)), sp.Integer(0))
    return [y + at.value(i, "") * seen for i, y in enumerate(output)]


def divided(
    writer: Writer, ones: Writer, output: list[Any], size: Any, queries: list[Any]
) -> list[Any]:
    """Return y over the sum of weights and bonus, or over its size where that is above one."""
    (size,) = with_bonus(ones, [size], queries)
    if writer.rule.problem.spec.readout.normalizer == "max1":
        size = writer.whole("floor", sp.Max(sp.Abs(OWN), 1), [size], "")
    return [y / size for y in output]
