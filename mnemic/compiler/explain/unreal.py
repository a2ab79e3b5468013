"""Whether features, kernels and activations are numbers wherever a layer may ask for them."""

from collections.abc import Iterator
from typing import Any

from mnemic.compiler import symbols as sym
from mnemic.compiler.numbers import sampler
from mnemic.compiler.ranges import activation_of
from mnemic.compiler.rule import Rule
from mnemic.compiler.symbolic import read
from mnemic.dsl.features import Kernel
from mnemic.dsl.memory import Glu, Mlp
from mnemic.dsl.spec import Spec
from mnemic.dsl.texts import memories

CHANNELS = (-1.3, -0.4, 0.4, 1.3)
"""Numbers that a channel may be."""
PRODUCTS = (-1.0, -0.4, 0.0, 0.4, 1.0)
"""What k·q may be for unit vectors: zero where text is padded, one for the key itself."""


def warning(rule: Rule) -> str | None:
    """Warn of the first expression that is no real number at some place; None without one."""
    for what, variable, function, places in _find(rule.problem.spec):
        value = sampler(function, [sym.x])
        lacking = next((at for at in places if value(at) is None), None)
        if lacking is not None:
            shown = f"{lacking:g}".replace("-", "−")
            return (
                f"{what} no real number at {variable} = {shown}, where nothing keeps {variable} "
                "from, and what follows is none either: write abs(...) or a square under a root, "
                "a logarithm or a fractional power, and no divisor that may be zero."
            )
    return None


def _find(spec: Spec) -> Iterator[tuple[str, str, Any, tuple[float, ...]]]:
    """Yield expressions in x: what they are, the letter, and numbers that x may be."""
    features = spec.features
    if hasattr(features, "expr"):
        yield "The features are", "x", read(features.expr, {"x": sym.x}), _keep(spec, CHANNELS)
    if isinstance(features, Kernel):
        reader = features.readout.kernel if features.readout is not None else features.kernel
        for text in dict.fromkeys((features.kernel, reader)):
            function = read(text, {"s": sym.x})
            yield f"The kernel {text} is", "k·q", function, _keep(spec, PRODUCTS)
    for _, memory in memories(spec.memory):
        if isinstance(memory, Mlp | Glu):
            yield "The memory's activation is", "x", activation_of(memory.activation), CHANNELS


def _keep(spec: Spec, places: tuple[float, ...]) -> tuple[float, ...]:
    """Keep the places that the activations of keys and queries leave: those from zero on, if none
    of their channels falls below."""
    block = spec.block
    for own in (block.key, block.query):
        value = sampler(activation_of(own or block.activation), [sym.x])
        found = [value(10.0 * at) for at in CHANNELS]
        if any(z is not None and z < 0 for z in found):
            return places
    return tuple(at for at in places if at >= 0)
