"""Sample values of the channels of keys, queries and values, after a block's activations."""

from mnemic.compiler import symbols as sym
from mnemic.compiler.numbers import sampler
from mnemic.compiler.ranges import activation_of

CHANNELS = (-1.3, -0.4, 0.4, 1.3)
"""Numbers that a channel may be."""


def keep(places: tuple[float, ...], *activations: str) -> tuple[float, ...]:
    """Keep the places that activations can give: only those from zero on if none is negative."""
    for activation in activations:
        value = sampler(activation_of(activation), [sym.x])
        found = [value(10.0 * at) for at in CHANNELS]
        if any(z is not None and z < 0 for z in found):
            return places
    return tuple(at for at in places if at >= 0)


def at_padding(*activations: str) -> tuple[float, ...]:
    """Return (0.0,) where an activation maps zero, the padding, to zero; else ()."""
    values = (sampler(activation_of(activation), [sym.x])(0.0) for activation in activations)
    return (0.0,) if 0.0 in values else ()
