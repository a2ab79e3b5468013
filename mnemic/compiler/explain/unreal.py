"""Whether the functions of a spec are real numbers wherever a layer may evaluate them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.explain.channels import CHANNELS, at_padding, keep
from mnemic.compiler.indices import values_in
from mnemic.compiler.numbers import sampler
from mnemic.compiler.points import points
from mnemic.compiler.problem import Problem
from mnemic.compiler.ranges import activation_of
from mnemic.compiler.rule import Rule
from mnemic.compiler.symbolic import read
from mnemic.dsl.features import Kernel
from mnemic.dsl.memory import Glu, Mlp
from mnemic.dsl.texts import memories

PRODUCTS = (-1.0, -0.4, 0.0, 0.4, 1.0)
"""What k·q may be for unit vectors: zero where text is padded, one for the key itself."""
ANY = (*CHANNELS, 0.0)
"""Numbers that a projection of the input may be: zero where text is padded with zeros."""


@dataclass(frozen=True)
class Asked:
    """A function: what it is, in words, and the numbers that its symbols may be."""

    what: str
    function: Any
    places: Mapping[Any, Sequence[float]]
    """Of the symbol that it is a function of."""
    others: Mapping[Any, list[float]] = field(default_factory=dict)
    """Of coefficients, heads and tokens."""
    letter: str | None = None
    """How a message calls its symbol, if not by its name."""

    def lacking(self) -> dict[str, float] | None:
        """Return the first values, by symbol, at which the function is not real; None if it is."""
        symbols = [*self.places, *self.others]
        value = sampler(self.function, symbols)
        for place in product(*self.places.values()):
            for point in points([*self.others.values()]):
                if value(*place, *point) is None:
                    names = [self.letter or str(x) for x in self.places] + [*map(str, self.others)]
                    return dict(zip(names, (*place, *point), strict=True))
        return None


def warning(rule: Rule) -> str | None:
    """Warn of the first expression that is not a real number at some point; None if all are."""
    for asked in _find(rule.problem):
        lacking = asked.lacking()
        if lacking is not None:
            at = ", ".join(f"{x} = {z:.3g}" for x, z in lacking.items()).replace("-", "−")
            return (
                f"{asked.what} no real number at {at}, where nothing keeps {' and '.join(lacking)} "
                "from, and what follows is none either: write abs(...) or a square under a root, "
                "a logarithm or a fractional power, and no divisor that may be zero."
            )
    return None


def _find(problem: Problem) -> Iterator[Asked]:
    """Yield the functions in the order in which a layer calls them."""
    yield from _of_block(problem)
    yield from _of_coefficients(problem)
    yield from _of_keys(problem)
    yield from _of_features(problem)
    for _, memory in memories(problem.spec.memory):
        if isinstance(memory, Mlp | Glu):
            shape = activation_of(memory.activation)
            yield Asked("The memory's activation is", shape, {sym.x: CHANNELS})
    if problem.link is not None:
        others = values_in(problem, problem.link, sym.a)
        yield Asked("The link is", problem.link, {sym.a: CHANNELS}, others)


def _of_block(problem: Problem) -> Iterator[Asked]:
    for name in ("activation", "query", "key", "value", "gate"):
        text = getattr(problem.spec.block, name)
        if text is not None:
            what = f"The block's {name} {text} is"
            yield Asked(what, activation_of(text), {sym.x: ANY})


def _of_coefficients(problem: Problem) -> Iterator[Asked]:
    """Yield activations in x, and expressions of other coefficients, of heads and of tokens."""
    for scalar in problem.scalars:
        declared = scalar.declared
        if scalar.argument is not None and declared.activation is not None:
            what = f"The activation {declared.activation} of {scalar.place} is"
            yield Asked(what, activation_of(declared.activation), {sym.x: ANY})
        if declared.expr is not None and scalar.expr.free_symbols:
            others = values_in(problem, scalar.expr)
            yield Asked(f"{scalar.place}: {declared.expr} is", scalar.expr, {}, others)


def _of_keys(problem: Problem) -> Iterator[Asked]:
    block, k = problem.spec.block, sp.Symbol("k", real=True)
    behind = {k: (block.key or block.activation,), sym.v: (block.value or block.activation,)}
    for role, expr in problem.keys.items():
        symbol = sym.v if role == "value" else k
        places = keep(CHANNELS, *behind[symbol])
        if not expr.has(sp.Abs):  # which is printed with a floor
            places += at_padding(*behind[symbol])
        others = values_in(problem, expr, symbol)
        yield Asked(f"keys.{role} is", expr, {symbol: places}, others)


def _of_features(problem: Problem) -> Iterator[Asked]:
    features, block = problem.spec.features, problem.spec.block
    behind = [own or block.activation for own in (block.key, block.query)]
    if hasattr(features, "expr"):
        function = read(features.expr, {"x": sym.x})
        yield Asked("The features are", function, {sym.x: keep(CHANNELS, *behind)})
    if isinstance(features, Kernel):
        reader = features.readout.kernel if features.readout is not None else features.kernel
        for text in dict.fromkeys((features.kernel, reader)):
            function = read(text, {"s": sym.x})
            places = {sym.x: keep(PRODUCTS, *behind)}
            yield Asked(f"The kernel {text} is", function, places, letter="k·q")
