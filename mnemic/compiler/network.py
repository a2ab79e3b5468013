"""A memory as a small network of matrices and elementwise maps, and its backward pass, derived.

M(x) = x + LN(W1 σ(W2 φ(x))) is z2 = W2 φ, h2 = σ(z2), z1 = W1 h2, norm = LN(z1), out = x + norm.
The chain rule, node by node in reverse, gives ∇_W ℓ = δ aᵀ for every matrix: δ is the cotangent of
its product, a the vector that it multiplied. So a deep memory is one linear memory per matrix, each
with its own keys a and rows δ, all with the same decay, momentum and window.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.symbolic import read, simplest, tidy
from mnemic.dsl.memory import (
    Chain,
    Diagonal,
    Glu,
    Interpolation,
    Linear,
    LowRank,
    Memory,
    Mlp,
    Nonparametric,
)
from mnemic.dsl.texts import activation

FEATURES, RAW, ERROR = "phi", "raw", "e"
"""What a network is given: φ(x), x itself, and for the backward pass e = ∂ℓ/∂ŷ."""
ONE = "one"
"""A vector of the one number 1, which a network may read too: W ONE, of a matrix with one column,
is a vector of parameters, so a diagonal has the gradient and the forms of any other matrix. It is
also the name of that matrix's side."""


@dataclass(frozen=True)
class Matrix:
    """A parameter: its name, the sizes of its sides (d_v, D, or a hidden width ``m``), its index.

    ``every`` is the number of tokens between its updates.
    """

    name: str
    rows: str
    columns: str
    every: int = 1


@dataclass(frozen=True)
class Apply:
    """name = W source."""

    name: str
    matrix: str
    source: str


@dataclass(frozen=True)
class Back:
    """name = Wᵀ source."""

    name: str
    matrix: str
    source: str


@dataclass(frozen=True)
class Map:
    """name = an elementwise expression, its symbols being the names of ``sources``."""

    name: str
    expr: Any
    sources: tuple[str, ...]


@dataclass(frozen=True)
class Norm:
    """name = LN(source), without affine, ε = 1e-5."""

    name: str
    source: str


@dataclass(frozen=True)
class NormBack:
    """name = (∂LN/∂z)ᵀ source at z = ``at``."""

    name: str
    source: str
    at: str


Node: TypeAlias = Apply | Back | Map | Norm | NormBack


@dataclass(frozen=True)
class Outer:
    """∇ℓ of a matrix: rows times keysᵀ."""

    matrix: str
    rows: str
    keys: str


@dataclass(frozen=True)
class Backward:
    """The backward pass: its nodes, and for each matrix the rows δ and keys a of ∇ℓ = δ aᵀ."""

    nodes: tuple[Node, ...]
    outer: dict[str, tuple[str, str]]


@dataclass(frozen=True)
class Network:
    """M(W, ·): nodes in order, the last being the prediction."""

    matrices: tuple[Matrix, ...]
    nodes: tuple[Node, ...]
    widths: tuple[tuple[str, float], ...] = ()
    """Hidden widths in units of d_v, by the name that a matrix's side has for them; 0, as of
    ``ONE``, stands for a side of one."""

    @property
    def output(self) -> str:
        """The node of the prediction."""
        return self.nodes[-1].name

    @property
    def linear(self) -> bool:
        """Whether the prediction is linear in W: one matrix, and nothing after it."""
        return len(self.nodes) == 1

    @property
    def adds_input(self) -> bool:
        """Whether the raw input is added somewhere, which then has the size of the values."""
        return any(isinstance(node, Map) and RAW in node.sources for node in self.nodes)

    def sees_features(self, matrix: str) -> bool:
        """Return whether a matrix multiplies φ(x) itself: behind a kernel it is kept as rows."""
        applied = (n for n in self.nodes if isinstance(n, Apply) and n.matrix == matrix)
        return any(node.source == FEATURES for node in applied)

    @property
    def normed(self) -> bool:
        """Whether a LayerNorm stands behind a matrix: its slope at zero is 1/√ε."""
        return any(isinstance(node, Norm) for node in self.nodes)

    def matrix(self, name: str) -> Matrix:
        """Return the matrix of that name."""
        return next(m for m in self.matrices if m.name == name)

    @cached_property
    def backward(self) -> Backward:
        """The chain rule, node by node in reverse."""
        return _Reverse(self).run()


def node_symbol(name: str) -> Any:
    """Return the symbol of a node in elementwise expressions."""
    return sp.Symbol(name, real=True)


# -- the forward pass ------------------------------------------------------------------------


def network(memory: Memory, every: int = 1) -> Network:
    """Return the network of a memory with parameters; ``every`` is the optimizer's interval."""
    if isinstance(memory, Nonparametric | Interpolation):
        return Network((), ())
    if isinstance(memory, Linear | Diagonal):
        return Network((Matrix("W", "v", "D", every),), (Apply("z", "W", FEATURES),))
    links = memory.chain if isinstance(memory, Chain) else (memory,)
    intervals = memory.every if isinstance(memory, Chain) else (1,) * len(links)
    build = _Build()
    for link, interval in zip(links, intervals, strict=True):
        build.memory(link, interval * every)
    return Network(tuple(build.matrices), tuple(build.nodes), tuple(build.widths.items()))


class _Build:
    """Nodes and matrices of memories one after another, numbered over all of them."""

    def __init__(self) -> None:
        self.matrices: list[Matrix] = []
        self.nodes: list[Node] = []
        self.widths: dict[str, float] = {}
        self.input, self.raw, self.size = FEATURES, RAW, "D"

    def memory(self, memory: Memory, every: int) -> None:
        """Append one memory, whose input is the output of those before it."""
        first = len(self.matrices) + 1
        tag = str(first)
        inner = self._layers(memory, first, every)
        if getattr(memory, "norm", False):
            inner = self._add(Norm(f"norm{tag}", inner))
        if getattr(memory, "residual", False):
            total = node_symbol(inner) + node_symbol(self.raw)
            inner = self._add(Map(f"out{tag}", total, (inner, self.raw)))
        self.input = self.raw = inner
        self.size = "v"

    def _layers(self, memory: Memory, first: int, every: int) -> str:
        match memory:
            case Linear():
                return self._chain_of(first, 1, "identity", every)
            case Mlp(depth=depth, activation=text, expansion=expansion):
                self._widen(range(first + 1, first + depth), expansion)
                return self._chain_of(first, depth, text, every)
            case Glu(activation=text, expansion=expansion):
                self._widen(range(first + 1, first + 2), expansion)
                return self._gated(first, text, every)
            case LowRank(rank=rank):
                self._widen(range(first + 1, first + 2), rank)
                return self._beside_a_diagonal(first, every)
            case _:
                raise AssertionError(memory)

    def _widen(self, indices: range, expansion: float) -> None:
        self.widths |= {f"m{index}": expansion for index in indices}

    def _chain_of(self, first: int, depth: int, text: str, every: int) -> str:
        """Append W1 σ(W2 … σ(W_L x)), whose last matrix sees the input; return its node."""
        hidden = self.input
        for index in reversed(range(first, first + depth)):
            rows = "v" if index == first else f"m{index}"
            columns = self.size if index == first + depth - 1 else f"m{index + 1}"
            self.matrices.insert(first - 1, Matrix(f"W{index}", rows, columns, every))
            hidden = self._add(Apply(f"z{index}", f"W{index}", hidden))
            if index > first:
                hidden = self._activated(f"h{index}", text, hidden)
        return hidden

    def _gated(self, first: int, text: str, every: int) -> str:
        """Append W1 (σ(W2 x) ∘ W3 x) and return its node."""
        one, two, three = (f"W{first + i}" for i in range(3))
        width = f"m{first + 1}"
        self.matrices += [
            Matrix(one, "v", width, every),
            Matrix(two, width, self.size, every),
            Matrix(three, width, self.size, every),
        ]
        gate = self._add(Apply(f"z{first + 1}", two, self.input))
        plain = self._add(Apply(f"z{first + 2}", three, self.input))
        expr = _activation(text, gate) * node_symbol(plain)
        hidden = self._add(Map(f"h{first + 1}", expr, (gate, plain)))
        return self._add(Apply(f"z{first}", one, hidden))

    def _beside_a_diagonal(self, first: int, every: int) -> str:
        """Append W1 W2 x + (W3 1) ∘ x and return its node."""
        one, two, three = (f"W{first + i}" for i in range(3))
        width = f"m{first + 1}"
        self.matrices += [
            Matrix(one, "v", width, every),
            Matrix(two, width, self.size, every),
            Matrix(three, "v", ONE, every),
        ]
        self.widths[ONE] = 0
        inner = self._add(Apply(f"z{first + 1}", two, self.input))
        product = self._add(Apply(f"z{first}", one, inner))
        entries = self._add(Apply(f"z{first + 2}", three, ONE))
        scaled = node_symbol(entries) * node_symbol(self.raw)
        scaled = self._add(Map(f"h{first + 2}", scaled, (entries, self.raw)))
        total = node_symbol(product) + node_symbol(scaled)
        return self._add(Map(f"sum{first}", total, (product, scaled)))

    def _activated(self, name: str, text: str, source: str) -> str:
        return self._add(Map(name, _activation(text, source), (source,)))

    def _add(self, node: Node) -> str:
        self.nodes.append(node)
        return node.name


def _activation(text: str, source: str) -> Any:
    return read(activation(text), {"x": sym.x}).subs(sym.x, node_symbol(source))


# -- the backward pass -----------------------------------------------------------------------


class _Reverse:
    """Cotangents by node; several uses of a node add up."""

    def __init__(self, of: Network) -> None:
        self.network = of
        self.nodes: list[Node] = []
        self.outer: dict[str, tuple[str, str]] = {}
        self.terms: dict[str, list[str]] = {of.output: [ERROR]}

    def run(self) -> Backward:
        """Walk the nodes from the prediction to the first product."""
        for node in reversed(self.network.nodes):
            self._pull(node, self._total(node.name))
        return Backward(tuple(self.nodes), self.outer)

    def _total(self, name: str) -> str:
        terms = self.terms[name]
        if len(terms) == 1:
            return terms[0]
        total = sp.Add(*(node_symbol(t) for t in terms))
        return self._add(Map(f"d_{name}", total, tuple(terms)))

    def _pull(self, node: Node, cotangent: str) -> None:
        match node:
            case Apply(matrix=matrix, source=source):
                self.outer[matrix] = (cotangent, source)
                name = f"d_{source}_{matrix}"
                self._give(source, lambda: self._add(Back(name, matrix, cotangent)))
            case Norm(name=name, source=source):
                self._give(source, lambda: self._add(NormBack(f"d_{name}", cotangent, source)))
            case Map(sources=sources):
                for source in dict.fromkeys(sources):
                    self._give(source, self._through(node, source, cotangent))
            case _:
                raise AssertionError(node)

    def _give(self, source: str, pulled: Callable[[], str]) -> None:
        if source not in (FEATURES, RAW, ONE):
            self.terms.setdefault(source, []).append(pulled())

    def _through(self, node: Map, source: str, cotangent: str) -> Callable[[], str]:
        slope = tidy(sp.diff(node.expr, node_symbol(source)))
        slope = simplest(slope, sp.expand(slope))

        def pulled() -> str:
            if slope == 1:
                return cotangent
            used = tuple(s for s in node.sources if slope.has(node_symbol(s)))
            expr = node_symbol(cotangent) * slope
            return self._add(Map(f"d_{source}_{node.name}", expr, (cotangent, *used)))

        return pulled

    def _add(self, node: Node) -> str:
        self.nodes.append(node)
        return node.name
