"""Spec → Problem: the regression that a spec states, its expressions read into SymPy."""

from dataclasses import dataclass
from typing import Any

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.kernels import Kernels, kernels_of
from mnemic.compiler.network import network
from mnemic.compiler.symbolic import number, read
from mnemic.compiler.symbols import HEAD as HEAD
from mnemic.compiler.symbols import HEADS as HEADS
from mnemic.compiler.symbols import TIME as TIME
from mnemic.dsl.coefficients import Coefficient
from mnemic.dsl.memory import Interpolation, Nonparametric
from mnemic.dsl.spec import Spec


@dataclass(frozen=True)
class Scalar:
    """A coefficient of the problem.

    ``expr`` is its value: its own symbol where it is an argument, a number or an expression of
    other coefficients, the head h of H heads and the step t otherwise. ``argument`` is the
    operator's argument (``log_…`` where the logarithm travels), ``per`` what it varies over,
    ``place`` where in the spec it stands.
    """

    name: str
    expr: Any
    argument: str | None
    per: str
    declared: Coefficient
    place: str

    @property
    def symbol(self) -> Any:
        """The coefficient's symbol."""
        return sym.coefficient(self.name)

    @property
    def logarithmic(self) -> bool:
        """Whether the argument carries the natural logarithm."""
        return self.argument is not None and self.argument.startswith("log_")


@dataclass(frozen=True)
class Problem:
    """What is minimised at each step, in SymPy."""

    spec: Spec
    loss: Any
    generator: Any | None
    divergence: Any | None
    penalty: Any
    constraint: tuple[str, Any, str]
    features: Any | None
    kernels: Kernels | None
    keys: dict[str, Any]
    scalars: tuple[Scalar, ...]
    similarity: Any | None = None
    """w(k, q) of a nonparametric memory, κ(k, q) of an interpolation, in s and d2."""
    link: Any | None = None
    """The link from the dual to the memory, where the spec states it."""

    def scalar(self, name: str) -> Scalar | None:
        """Return the coefficient of that name, if the problem has one."""
        return next((s for s in self.scalars if s.name == name), None)

    def value(self, name: str, default: Any = sp.Integer(1)) -> Any:
        """Return the value of a coefficient as an expression of arguments."""
        found = self.scalar(name)
        return default if found is None else found.expr

    @property
    def even_weight(self) -> Any | None:
        """γ where one value weighs every pair of a step, so that it can be part of the rate.

        This holds for a step of one pair, and for a γ that is not an argument: any expression
        where γ belongs to (t, i), only one of the head where γ belongs to the pair's own token.
        """
        gamma, word = self.scalar("gamma"), type(self.spec.weights).word()
        if gamma is None or word not in ("token", "window"):
            return None
        single = self.spec.window in (1, "all")
        fixed = gamma.argument is None and (
            word == "window" or gamma.expr.free_symbols <= {HEAD, HEADS}
        )
        return gamma.expr if single or fixed else None


LOGARITHMIC = ("alpha", "beta")
"""Decays travel as natural logarithms whatever their activation."""


def state(spec: Spec) -> Problem:
    """Read every expression of the spec into a problem."""
    scalars = read_scalars(spec)
    table = {s.name: s.symbol if s.argument else s.expr for s in scalars}
    loss = read(spec.bias.text, {**table, "e": sym.e, "y": sym.y, "v": sym.v, "n": sym.n})
    local, constraint = spec.retention.local, spec.retention.constraint
    text, link = spec.features.text, spec.retention.link
    return Problem(
        spec=spec,
        loss=loss,
        generator=None if local.generator is None else read(local.generator, {**table, "w": sym.w}),
        divergence=(
            None if local.divergence is None else read(local.divergence, {**table, "x": sym.x})
        ),
        penalty=read(spec.retention.global_.text, {**table, "w": sym.w}),
        constraint=(
            type(constraint).word(),
            sym.coefficient("scale" if hasattr(constraint, "scale") else "radius"),
            str(getattr(constraint, "over", "all")),
        ),
        features=None if text is None else read(text, {"x": sym.x}),
        kernels=kernels_of(spec.features),
        keys=read_keys(spec, table),
        scalars=scalars,
        similarity=read_similarity(spec, table),
        link=None if link is None else read(link.expr, {**table, "a": sym.a, "nu": sym.nu}),
    )


def read_similarity(spec: Spec, table: dict[str, Any]) -> Any | None:
    """Return how a kept key weighs at a query, where the memory is made of the pairs themselves."""
    match spec.memory:
        case Nonparametric(similarity=text) | Interpolation(kernel=text):
            return read(text, {**table, "s": sym.s, "d2": sym.d2})
    return None


def read_scalars(spec: Spec) -> tuple[Scalar, ...]:
    """Return every coefficient, expressions resolved down to arguments, h, H and t."""
    declared = by_matrix(spec, spec.named_coefficients())
    table = {name: sym.coefficient(name) for name in declared}
    names = {**table, "h": HEAD, "H": HEADS, "t": TIME}
    raw = {name: _own_value(c, table[name], names) for name, c in declared.items()}
    for _ in declared:
        raw = {
            name: value.subs({table[o]: raw[o] for o in raw if o != name})
            for name, value in raw.items()
        }
    per = {name: _varies(raw[name], declared, name) for name in declared}
    places = {name: place for name, place, _ in spec.placed_coefficients()}
    places |= {name: SCALE for name in declared if name not in places}
    return tuple(
        Scalar(name, raw[name], _argument(name, c, spec), per[name], c, places[name])
        for name, c in declared.items()
    )


SCALE = "retention.constraint.scale"
"""Where the scales of a memory's several matrices stand."""


def by_matrix(spec: Spec, declared: dict[str, Coefficient]) -> dict[str, Coefficient]:
    """Replace the learned scale of a simplex by one scale for each matrix of a memory of layers."""
    matrices = network(spec.memory).matrices
    scale = declared.get("scale")
    if scale is None or not scale.learned or len(matrices) < 2:
        return declared
    own = {f"scale{m.name.removeprefix('W')}": scale for m in matrices}
    return {name: c for name, c in declared.items() if name != "scale"} | own


def _own_value(declared: Coefficient, symbol: Any, names: dict[str, Any]) -> Any:
    if declared.value is not None:
        return number(declared.value)
    return symbol if declared.expr is None else read(declared.expr, names)


def _varies(value: Any, declared: dict[str, Coefficient], name: str) -> str:
    ways = {declared[str(s)].per for s in value.free_symbols if str(s) in declared}
    if ("outer" in ways and name != "beta") or {"key", "value"} <= ways:
        return "key" if name == "alpha" else "outer"
    if name == "beta" and "outer" in ways:
        return "value"
    return next((way for way in ("key", "value") if way in ways), "head")


def _argument(name: str, declared: Coefficient, spec: Spec) -> str | None:
    if not declared.learned:
        return None
    geometric = name == "gamma" and type(spec.weights).word() == "geometric"
    exponential = declared.activation in ("exp", "exp(x)") and name == "eta"
    return f"log_{name}" if name in LOGARITHMIC or geometric or exponential else name


def read_keys(spec: Spec, table: dict[str, Any]) -> dict[str, Any]:
    """Return the vectors of each role in k, v and roles of their own, for one coordinate.

    A carry is among them only where the spec has one.
    """
    k = sp.Symbol("k", real=True)
    names = {**table, "k": k, "v": sym.v}
    found: dict[str, Any] = {}
    roles = (("predict", k), ("erase", k), ("write", k), ("carry", None), ("value", sym.v))
    for role, plain in roles:
        entry = getattr(spec.keys, role)
        own = sp.Symbol(role, real=True)
        if entry is None and plain is None:
            continue
        if entry is None:
            found[role] = plain
        else:
            found[role] = own if entry.own else read(entry.expr, names)
        names[role] = found[role]
    return found
