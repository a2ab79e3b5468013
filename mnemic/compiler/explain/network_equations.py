"""Equations of a memory of layers: what M is, its layers at a key, and the chain rule through them.

M(x) = x + LN(W1 σ(W2 φ(x))) is read off the network, node by node; an elementwise map that is a
product of functions of one layer each, or a sum of layers, is written so.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.explain.dialect import INDEX, Dialect
from mnemic.compiler.network import (
    FEATURES,
    ONE,
    RAW,
    Apply,
    Map,
    Network,
    Norm,
    node_symbol,
)

ARGUMENT = sp.Symbol("z", real=True)
"""What an activation is a function of."""


@dataclass(frozen=True)
class Place:
    """Where a network stands: its input, raw and under φ, and the indices of input and memory."""

    raw: str
    features: str
    index: str
    memory: str


@dataclass
class NetworkEquations:
    """A network in one dialect."""

    network: Network
    d: Dialect
    needed: set[str] = field(default_factory=set)
    """Layers that the chain rule names."""

    def named(self, name: str, index: str) -> str:
        """Write a name such as ``W2`` with its index: W2ₜ, W_{2,t}."""
        letter = name.rstrip("0123456789")
        number = name.removeprefix(letter)
        at = INDEX[index][self.d.tex]
        if not self.d.tex:
            return f"{letter}{number}{at}"
        letter = letter.replace("δ", r"\delta")
        inner = at.removeprefix("_").removeprefix("{").removesuffix("}")
        if at.count("{") > 1:
            inner = at.removeprefix("_{")[:-1]
        below = ",".join(part for part in (number, inner) if part)
        return f"{letter}_{{{below}}}" if below else letter

    # -- activations ---------------------------------------------------------------------------

    @cached_property
    def activations(self) -> dict[Any, str]:
        """Functions of one layer by what they are called: σ, and σ₂, σ₃ … for further ones."""
        found: dict[Any, str] = {}
        for node in self.network.nodes:
            for function, _ in _parts(node) if isinstance(node, Map) else ():
                if function not in (sym.x, *found):
                    found[function] = _sigma(len(found), self.d)
        return found

    def definitions(self) -> Iterator[str]:
        """Yield σ(z) = …, each once."""
        for function, name in self.activations.items():
            shown = function.replace(sym.sigmoid, lambda x: 1 / (1 + sp.exp(-x)))  # σ is taken
            yield f"{name}(z) = {self.d.expr(shown.subs(sym.x, ARGUMENT))}"

    # -- M -------------------------------------------------------------------------------------

    @cached_property
    def shared(self) -> dict[str, str]:
        """Layers that several others read (a memory that the next of a chain adds to): x1, …"""
        readers: dict[str, int] = {}
        for node in self.network.nodes:
            for source in _sources(node):
                readers[source] = readers.get(source, 0) + 1
        names = [n.name for n in self.network.nodes if readers.get(n.name, 0) > 1]
        return {name: f"x{i}" for i, name in enumerate(names, 1)}

    def formula(self, place: Place) -> Iterator[tuple[str, str]]:
        """Yield each layer that has a name of its own, then the output, as (name, expression)."""
        known = {RAW: place.raw, FEATURES: place.features, ONE: "1"}
        for node in self.network.nodes:
            known[node.name] = self._written(node, known, place)
            if node.name in self.shared:
                yield self.shared[node.name], known[node.name]
                known[node.name] = self.named(self.shared[node.name], "")
        yield "", known[self.network.output]

    def behind(self, product: str, raw: str) -> str:
        """Write M(W, x) of one matrix, given how W φ(x) and x are written."""
        known, nowhere = {self.network.nodes[0].name: product, RAW: raw}, Place(raw, "", "", "")
        for node in self.network.nodes[1:]:
            known[node.name] = self._written(node, known, nowhere)
        return known[self.network.output]

    def _written(self, node: Any, known: dict[str, str], place: Place) -> str:
        match node:
            case Apply(matrix=matrix, source=source):
                inner = known[source]
                return f"{self.named(matrix, place.memory)} {self._factor(source, inner)}"
            case Norm(source=source):
                return self.d.call("LN", known[source])
            case Map():
                return self._mapped(node, lambda source: known[source])
        raise AssertionError(node)

    def _factor(self, source: str, inner: str) -> str:
        """Put a product of entries or a sum in parentheses where it is multiplied."""
        node = next((n for n in self.network.nodes if n.name == source), None)
        many = isinstance(node, Map) and len(node.sources) > 1 and source not in self.shared
        return self.d.wrapped(inner) if many else inner

    def _mapped(self, node: Map, shown: Any) -> str:
        if node.expr.is_Add and len(_parts(node)) == len(node.sources) and _sums(node):
            ordered = sorted(node.sources, key=lambda s: (s != RAW, s not in self.shared))
            return " + ".join(shown(source) for source in ordered)
        factors = [self._function(function, sources, shown) for function, sources in _parts(node)]
        return self.d.times.join(self._bracket(f) if len(factors) > 1 else f for f in factors)

    def _bracket(self, shown: str) -> str:
        """Put a matrix product in parentheses where it is a factor in a product by entry."""
        whole = " " not in shown or shown.endswith(")")
        return shown if whole else self.d.wrapped(shown)

    def _function(self, function: Any, sources: tuple[str, ...], shown: Any) -> str:
        if function == sym.x:
            return str(shown(sources[0]))
        return f"{self.activations[function]}({', '.join(shown(s) for s in sources)})"

    # -- the chain rule ------------------------------------------------------------------------

    def layers(self, place: Place) -> list[str]:
        """List ``z2 = W2 φ(k)``, … : the layers that the chain rule names."""
        wanted = set(self.needed)
        for node in reversed(self.network.nodes):
            if node.name in wanted:
                wanted |= set(_sources(node))
        return [
            self._layer(node, place)
            for node in self.network.nodes
            if node.name in wanted and not self._inline(node)
        ]

    def _inline(self, node: Any) -> bool:
        """Return whether a node is written where it is read, as a norm is that one layer reads."""
        return isinstance(node, Norm) and node.name not in self.shared

    def _layer(self, node: Any, place: Place) -> str:
        def shown(source: str) -> str:
            return self._source(source, place)

        left = self._source(node.name, place)
        match node:
            case Apply(matrix=matrix, source=source):
                return f"{left} = {self.named(matrix, place.memory)} {shown(source)}"
            case Norm(source=source):
                return f"{left} = {self.d.call('LN', shown(source))}"
            case _:
                return f"{left} = {self._mapped(node, shown)}"

    def _source(self, name: str, place: Place) -> str:
        known = {RAW: place.raw, FEATURES: place.features, ONE: "1"}
        if name in known:
            return known[name]
        node = next(n for n in self.network.nodes if n.name == name)
        if isinstance(node, Norm) and self._inline(node):
            return self.d.call("LN", self._source(node.source, place))
        return self.named(self.shared.get(name, name), place.index)

    def chain_rule(self, place: Place) -> tuple[list[str], dict[str, tuple[str, str]]]:
        """Return δ of every matrix, and the rows and keys of every gradient."""
        terms: dict[str, list[str]] = {self.network.output: [self.d.of("e", place.index)]}
        lines: list[str] = []
        outer: dict[str, tuple[str, str]] = {}
        for node in reversed(self.network.nodes):
            cotangent = " + ".join(terms[node.name])
            if node.name in self.shared:
                name = self.named(f"e{self.shared[node.name][1:]}", place.index)
                lines.append(f"{name} = {cotangent}")
                cotangent = name
            if isinstance(node, Apply):
                delta = self.named(f"δ{node.matrix.removeprefix('W')}", place.index)
                lines.append(f"{delta} = {cotangent}")
                outer[node.matrix] = (delta, self._needs(node.source, place))
                cotangent = delta
            for source in dict.fromkeys(_sources(node)):
                if source not in (RAW, FEATURES, ONE):
                    pulled = self._pulled(node, source, cotangent, place)
                    terms.setdefault(source, []).append(pulled)
        return lines, outer

    def _needs(self, name: str, place: Place) -> str:
        if name not in (RAW, FEATURES, ONE):
            self.needed.add(name)
        return self._source(name, place)

    def _pulled(self, node: Any, source: str, cotangent: str, place: Place) -> str:
        whole = self.d.wrapped(cotangent) if " + " in cotangent else cotangent
        match node:
            case Apply(matrix=matrix):
                return f"{self.d.flipped(self.named(matrix, place.memory))} {whole}"
            case Norm():
                at = self._needs(source, place)
                slope = self.d.sign(f"LN′({at})", rf"\operatorname{{LN}}'({at})")
                return f"{self.d.flipped(slope)} {whole}"
            case _:
                return self._through(node, source, whole, place)

    def _through(self, node: Map, source: str, cotangent: str, place: Place) -> str:
        """Write a cotangent times the derivative of an elementwise map."""
        if _sums(node):
            return cotangent
        factors = [self._bracket(cotangent) if _parts(node) != [(sym.x, (source,))] else cotangent]
        for function, sources in _parts(node):
            if source not in sources:
                factors.append(self._function(function, sources, lambda s: self._needs(s, place)))
            elif function != sym.x:
                prime = self.d.sign("′", "'")
                at = ", ".join(self._needs(s, place) for s in sources)
                factors.append(f"{self.activations[function]}{prime}({at})")
        return self.d.times.join(factors)


def _sources(node: Any) -> tuple[str, ...]:
    return node.sources if isinstance(node, Map) else (node.source,)


def _sums(node: Map) -> bool:
    """Return whether the map is the sum of its sources."""
    return bool(node.expr == sp.Add(*(node_symbol(s) for s in node.sources)))


def _parts(node: Map) -> list[tuple[Any, tuple[str, ...]]]:
    """Split an elementwise map into factors, each a function of one source where that can be."""
    if _sums(node):
        return [(sym.x, (s,)) for s in node.sources]
    rest, found = node.expr, []
    for source in node.sources:
        own = node_symbol(source)
        others = {node_symbol(s) for s in node.sources} - {own}
        factors = sp.Mul.make_args(rest)
        alone = [f for f in factors if f.has(own) and not f.free_symbols & others]
        if alone:
            found.append((sp.Mul(*alone).subs(own, sym.x), (source,)))
            rest = sp.Mul(*(f for f in factors if f not in alone))
    if not rest.free_symbols:
        first, at = found[0]
        return [(rest * first, at), *found[1:]]
    return [(node.expr, node.sources)]


def _sigma(count: int, d: Dialect) -> str:
    below = "" if count == 0 else str(count + 1)
    if d.tex:
        return r"\sigma" + (f"_{below}" if below else "")
    return "σ" + below.translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))
