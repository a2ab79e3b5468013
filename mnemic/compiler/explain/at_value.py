"""Whether the loss is finite at the values that a text may produce, zero among them."""

from collections.abc import Iterator

from mnemic.compiler import symbols as sym
from mnemic.compiler.explain.channels import CHANNELS, at_padding, keep
from mnemic.compiler.indices import values_in
from mnemic.compiler.numbers import sampler
from mnemic.compiler.points import points
from mnemic.compiler.rule import Rule

PREDICTIONS = (0.3, 0.9, -0.5)
"""Predictions that are none of the values looked at."""


def warning(rule: Rule) -> str | None:
    """Warn of a loss whose slope is undefined at some value v, as that of e²/v at 0; else None.

    A value is reported where the slope is undefined for every prediction, or at v = 0 for the
    prediction 0 of a memory that begins at zero.
    """
    signal = rule.error.signal
    others = values_in(rule.problem, signal, sym.y, sym.v, sym.n)
    function = sampler(signal, [sym.y, sym.v, sym.n, *others])
    values = [*_values(rule)]
    for point in points([*others.values()]):

        def lacks(y: float, v: float, point: tuple[float, ...] = point) -> bool:
            return function(y, v, abs(y - v), *point) is None

        met = lacks(0.7, 0.7)  # told elsewhere, as a slope where ŷ = v
        for v in values:
            if all(lacks(y, v) for y in PREDICTIONS):
                return _warn_of(f"v = {v:.3g}".replace("-", "−"))
            if v == 0.0 and lacks(0.0, v) and not met:
                return _warn_of("ŷ = v = 0")
    return None


def _warn_of(place: str) -> str:
    return (
        f"The slope of the loss is no number at {place}, where nothing keeps values from (they are "
        "exactly zero where text is padded with zeros), and what follows is none either: write "
        "abs(v) + c, with a small c above 0, where you divide or take a root or a logarithm, or "
        "an activation that keeps values from there, such as block: {value: softplus}."
    )


def _values(rule: Rule) -> Iterator[float]:
    """Yield values as the loss receives them: padding and usual channels, after ``keys.value``."""
    block = rule.problem.spec.block
    behind = block.value or block.activation
    stated = rule.problem.keys["value"]
    function = sampler(stated, [sym.v])
    for v in (*at_padding(behind), *keep(CHANNELS, behind)):
        found = function(v)
        yield v if found is None else found
