"""The common parts of all forms' plans: coefficients, features, keys, decays and the error
signal."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

import sympy as sp

from mnemic.codegen.guards import TINY
from mnemic.codegen.implicit_error import declare_roots
from mnemic.codegen.plan import Call, Map, Op, Plan, Product, Read
from mnemic.compiler import symbols as sym
from mnemic.compiler.implicit import roots_of
from mnemic.compiler.problem import HEAD, HEADS, TIME
from mnemic.compiler.rule import Common, Rule
from mnemic.dsl.features import Cosine

ORDER = ("t", "s", "r", "n", "l", "v", "k")
"""Axes in the order in which a quantity carries them."""

WINDOW_WEIGHT = sp.Symbol("gamma_window", real=True)
"""The weight of one slot of a window; the operator gives it even where the spec has none."""

FIRST = sp.Symbol("first", nonnegative=True)
"""1 at the first of a token's several steps, 0 at the others."""

NEW = "new_e"
"""The error at a new prediction, where an implicit step solves for it."""

ROLES = ("predict", "erase", "write", "carry", "value")


RuleT_co = TypeVar("RuleT_co", bound=Common, covariant=True)


@dataclass
class BuilderOf(Generic[RuleT_co]):
    """Adds quantities to the plan of a form; ``rows`` are the axes with which every token's
    quantity begins."""

    rule: RuleT_co
    rows: tuple[str, ...]
    plan: Plan = field(default_factory=Plan)
    slot: tuple[str, ...] = ()
    """The window's axis, where keys come as windows."""
    flat: bool = False
    """Whether a chunk's windows are laid flat into rows."""
    vector_rows: tuple[str, ...] | None = None
    """The row axes of keys and values, where they differ from the coefficients'."""
    unit_rate: bool = False
    """Whether the rate multiplies O(S) and not the gradient."""
    mixed_rate: bool = False
    """Whether an exponential rate stands in the mixing matrix already."""
    shares: dict[str, str] = field(default_factory=dict)
    """Quantities in place of decay and rate, where an exponential rate is held stable."""

    # -- elementary -------------------------------------------------------------------------

    def call(self, name: str, axes: tuple[str, ...], function: str, *arguments: str,
             equation: str = "", **options: Any) -> str:  # fmt: skip
        """Add a quantity that a function of the support module computes; return its name."""
        op = Call(function, arguments, tuple(sorted(options.items())))
        return self.plan.add(name, axes, op, equation)

    def product(
        self, name: str, axes: tuple[str, ...], left: str, right: str, *,
        flip_left: bool = False, flip_right: bool = False, equation: str = "",
    ) -> str:  # fmt: skip
        """Add a matrix product, either side transposed where told; return its name."""
        return self.plan.add(name, axes, Product(left, right, flip_left, flip_right), equation)

    def map(self, name: str, expr: Any, env: Mapping[str, Any],
            equation: str = "") -> str:  # fmt: skip
        """Add an elementwise expression; ``env`` gives the quantity (and its axes) of each symbol.

        An error at a new prediction becomes a quantity of its own, so that its root is searched for
        once.
        """
        expr, env = self._solved(expr, env, equation)
        if env and not expr.free_symbols:
            return self._constant(name, expr, env, equation)
        reads = []
        for symbol in sorted(expr.free_symbols, key=str):
            if symbol.name == "TINY":
                continue
            entry = env[symbol.name]
            quantity, axes = entry if isinstance(entry, tuple) else (entry, self.plan.axes(entry))
            reads.append(Read(symbol.name, quantity, axes))
        if expr.is_Symbol and reads[0].axes == self.plan.axes(reads[0].quantity):
            return reads[0].quantity
        axes = tuple(a for a in ORDER if any(a in r.axes for r in reads))
        axes = max((axes, *(r.axes for r in reads)), key=len)  # a square matrix has a letter twice
        declare_roots(self.plan, expr)
        op: Op = Map(expr, tuple(reads))
        return self.plan.add(name, axes, op, equation)

    def _constant(self, name: str, number: Any, env: Mapping[str, Any], equation: str) -> str:
        """Add the number that a factor of zero leaves of an expression, shaped as all it reads."""
        found = [x if isinstance(x, tuple) else (x, self.plan.axes(x)) for x in env.values()]
        whole = {a for _, axes in found for a in axes}
        like, axes = max(found, key=lambda entry: len(entry[1]))
        if not whole <= set(axes):
            every = sp.Add(*(sp.Symbol(symbol, real=True) for symbol in env))
            like = self.map(f"{name}_like", every, env)
            axes = self.plan.axes(like)
        return self.call(name, axes, "filled", like, equation=equation, value=float(number))

    def _solved(self, expr: Any, env: Mapping[str, Any], equation: str) -> tuple[Any, Any]:
        """Return an expression and its ``env`` with roots as quantities, which are read."""
        for root in roots_of(expr):
            if root != expr:
                found = self.map(NEW, root, env, equation)
                expr, env = expr.xreplace({root: sp.Symbol(NEW, real=True)}), {**env, NEW: found}
        return expr, env

    def row_map(self, name: str, expr: Any) -> str:
        """Add an expression of coefficients, a constant too, as rows."""
        env: dict[str, Any] = dict(self.coefficients(expr))
        if not env:
            env["zero"] = self.zero()
            expr = expr + sp.Symbol("zero", real=True)
        return self.map(name, expr, env)

    # -- coefficients -----------------------------------------------------------------------

    def coefficients(self, expr: Any) -> dict[str, str]:
        """Return the quantity of each coefficient in an expression, declared as needed."""
        table = {s.symbol: s for s in self.rule.scalars}
        found: dict[str, str] = {}
        for symbol in sorted(expr.free_symbols, key=str):
            if symbol.name in self.shares:
                found[symbol.name] = self.shares[symbol.name]
            elif symbol == WINDOW_WEIGHT:
                found[symbol.name] = self.window_weight()
            elif symbol in table:
                found[symbol.name] = self.coefficient(symbol.name)
            elif symbol in (HEAD, HEADS, TIME, FIRST):
                found[symbol.name] = self.index(symbol.name)
        return found

    def row_coefficients(self, expr: Any) -> dict[str, str]:
        """Return an expression's coefficients, each token's repeated for windows laid flat."""
        found = self.coefficients(expr)
        if not self.flat:
            return found
        width = self.rule.window
        for name, quantity in found.items():
            axes = self.plan.axes(quantity)
            if axes[:2] == ("t", "r"):
                found[name] = self.call(f"{quantity}_flat", ("s",), "flat", quantity)
            elif axes[:1] == ("t",):
                function = "repeat" if len(axes) == 1 else "repeat_rows"
                found[name] = self.call(
                    f"{quantity}_flat", ("s", *axes[1:]), function, quantity, times=width
                )
        return found

    def coefficient(self, name: str) -> str:
        """Return the quantity of one coefficient in natural units."""
        scalar = self.rule.problem.scalar(name)
        assert scalar is not None
        argument = self.argument(name)
        if not scalar.logarithmic:
            return argument
        symbol = sp.Symbol(argument, real=True)
        return self.map(name, sp.exp(symbol), {argument: argument})

    def argument(self, name: str) -> str:
        """Return the operator's argument behind a coefficient, declared at its first use."""
        scalar = self.rule.problem.scalar(name)
        assert scalar is not None
        assert scalar.argument is not None, name
        if scalar.argument in self.plan.graph:
            return scalar.argument
        return self.plan.given(scalar.argument, self.rows + self.channel(scalar.per, name))

    def channel(self, per: str, name: str) -> tuple[str, ...]:
        """Return the channel axis of a coefficient; a diagonal memory's channels are heads."""
        if name == "levels":
            return ("l",)
        if self.rule.diagonal or per == "head":
            return ()
        return ("k",) if per == "key" else ("v",)

    def window_weight(self) -> str:
        """Return the weights of a window's slots, zero before the document's start."""
        if "gamma" in self.plan.graph:
            return "gamma"
        return self.plan.given("gamma", (*self.rows, "r"))

    @property
    def stabilised(self) -> bool:
        """Whether the rate is an exponential that is kept stable by a running maximum.

        It is where a normaliser divides by the same weights; without one the output itself
        overflows where the weights do.
        """
        rate, spec = self.rule.problem.scalar("eta"), self.rule.problem.spec
        additive = self.rule.structure.algebra == "additive"
        divides = spec.readout.normalizer != "none"
        return additive and divides and rate is not None and rate.logarithmic

    @property
    def decay(self) -> Any:
        """The decay of the state, or the share of it that is kept."""
        return sp.Symbol("kept_share", real=True) if self.shares else self.rule.decay

    @property
    def rate(self) -> Any:
        """The rate of the step; for a stabilised exponential the share of the new write, times
        other factors.

        With ``mixed_rate`` the chunk's mixing matrix holds the shares, and the other factors
        remain.
        """
        if self.unit_rate:
            return sp.Integer(1)
        if not (self.shares or self.mixed_rate):
            return self.rule.rate
        beside = self.rule.rate.subs(sym.coefficient("eta"), 1)
        return beside * sp.Symbol("new_share", real=True) if self.shares else beside

    # -- decay ------------------------------------------------------------------------------

    def log_decay(self, expr: Any, name: str = "log_decay") -> str | None:
        """Plan log of a decay; ``None`` where it may be zero or negative (then products serve)."""
        logarithms = {
            s.symbol: sp.exp(sp.Symbol(s.argument, real=True))
            for s in self.rule.scalars
            if s.logarithmic and s.argument is not None
        }
        logs = {str(sp.Symbol(s.argument)): s for s in self.rule.scalars if s.logarithmic}
        spelled = sp.expand_log(sp.log(expr.subs(logarithms)), force=True)
        if not expr.is_number and not self._positive(expr):
            return None
        env: dict[str, Any] = {a: self.argument(s.name) for a, s in logs.items() if a in
                               {x.name for x in spelled.free_symbols}}  # fmt: skip
        env |= self.coefficients(spelled)
        if not spelled.free_symbols:
            env["zero"] = self.zero()
            spelled = spelled + sp.Symbol("zero", real=True)
        return self.map(name, spelled, env)

    def needed_log_decay(self, expr: Any, name: str = "log_decay") -> str:
        """Plan log of a decay, or of TINY if that is larger, where only logarithms serve."""
        found = self.log_decay(expr, name)
        if found is not None:
            return found
        return self.map(name, sp.log(sp.Max(expr, sp.Float(TINY))), self.coefficients(expr))

    def _positive(self, expr: Any) -> bool:
        only_heads = expr.free_symbols <= {HEAD, HEADS, TIME, FIRST}
        return bool(expr.is_positive) or only_heads

    def zero(self) -> str:
        """Return a row of zeros, which gives constants the shape of a token's coefficient."""
        return "zero" if "zero" in self.plan.graph else self.plan.given("zero", self.rows)

    # -- keys, queries, values --------------------------------------------------------------

    def declare_vectors(self) -> None:
        """Declare q, k and v first, so that every form takes them in this order."""
        for name, axis in (("q", "k"), ("k", "k"), ("v", "v")):
            self.vector(name, axis)

    def vector(self, name: str, axis: str) -> str:
        """Return a raw key, query or value, declared at its first use."""
        if name in self.plan.graph:
            return name
        if name == "q":
            return self.plan.given(name, (*self.rows, axis))
        rows = self.rows if self.vector_rows is None else self.vector_rows
        return self.plan.given(name, (*rows, *self.slot, axis))

    def raw(self, name: str) -> str:
        """Return a raw key or query row by row, which a residual adds."""
        vector = self.vector(name, "k")
        if not self.flat or name == "q":
            return vector
        return self.call(f"{name}_raw_rows", ("s", "k"), "flat_rows", vector)

    def featured(self, name: str) -> str:
        """Plan φ of a raw key or query, with its phase; behind a kernel return it as it is."""
        raw = self.vector(name, "k")
        expr = self.rule.problem.features
        axes = self.plan.axes(raw)
        if self.rule.kernels is not None:
            return raw
        if expr is None:
            raw = self.call(f"phi_{name}", axes, "features", raw, *self._feature_extras(),
                            **feature_options(self.rule))  # fmt: skip
        elif expr != sym.x:
            raw = self.map(f"phi_{name}", expr, {"x": raw})
        if self.rule.phase and not self.rule.diagonal:
            angle = (
                self.plan.given("angle", (*self.rows, "k"))
                if ("angle" not in self.plan.graph)
                else "angle"
            )
            raw = self.call(f"turned_{name}", axes, "turned", raw, angle)
        return raw

    def filled(
        self, name: str, scalar: str | None, number: Any, like: str, equation: str
    ) -> str:  # fmt: skip
        """Add an error that is the same in every coordinate, as rows like the values."""
        axes = self.plan.axes(like)
        if scalar is not None:
            return self.call(name, axes, "as_vector", scalar, like, equation=equation)
        return self.call(name, axes, "filled", like, equation=equation, value=float(number))

    def _feature_extras(self) -> tuple[str, ...]:
        """Return what φ takes beside its vector: the token's number, a_i that are no numbers."""
        problem = self.rule.problem
        if isinstance(problem.spec.features, Cosine):
            return (self.index("t"),)
        weights = {name: problem.value(name) for name, _, _ in problem.spec.features.coefficients()}
        return tuple(self.row_map(name, a) for name, a in weights.items() if not a.is_number)

    def index(self, name: str) -> str:
        """Return the number of the head, heads or the token; or whether a step is the first."""
        full = f"{name}_index"
        return full if full in self.plan.graph else self.plan.given(full, self.rows)

    def roles(self) -> dict[str, str]:
        """Return the vectors that predict, erase, write, and the value that is written."""
        keys = self.rule.problem.keys
        found: dict[str, str] = {}
        for role, expr in keys.items():
            axis = "v" if role == "value" else "k"
            env: dict[str, Any] = dict(self.coefficients(expr))
            for symbol in expr.free_symbols:
                if symbol.name in ("k", "v", *ROLES) and symbol.name not in env:
                    plain = symbol.name == "v"
                    env[symbol.name] = (
                        self.vector("v", "v") if plain else self.featured(symbol.name)
                    )
            if not expr.free_symbols:
                like = self.vector("v", "v") if axis == "v" else self.featured("k")
                found[role] = self.filled(role, None, expr, like, "")
                continue
            found[role] = self.map(role, expr, env)
            if axis not in self.plan.axes(found[role]):
                found[role] = self.widened(found[role], role, axis)
        return found

    def widened(self, name: str, role: str, axis: str) -> str:
        """Spread a key or value that is a scalar coefficient alone into a vector."""
        base = self.vector("v", "v") if axis == "v" else self.featured("k")
        if axis == "k" and self.rule.diagonal:  # then a layer needs no k, as no rule here reads it
            query = self.featured("q")
            base = query if self.plan.axes(query) == self.plan.axes(base) else base
        return self.call(f"{role}_key", self.plan.axes(base), "as_vector", name, base)

    def square(self, rows: tuple[str, ...], key: str) -> str:
        """Plan ‖φ(k)‖², which is κ1(k·k) behind a kernel."""
        square = self.call("kappa", rows, "squared_norm", key)
        kernels = self.rule.kernels
        if kernels is None or kernels.predict.identity:
            return square
        own = kernels.predict.expr.subs(sym.s, sp.Symbol("square_", real=True))
        return self.map("kappa", sp.Max(own, sp.Float(TINY)), {"square_": square})

    # -- error ------------------------------------------------------------------------------

    def error(self, expr: Any, prediction: str | None, value: str, key: str, name: str = "e",
              factor: Any = sp.Integer(1), equation: str = "error") -> str:  # fmt: skip
        """Add an expression of the error signal in ŷ, v, n, κ and coefficients, times a factor."""
        whole = factor * expr if factor == 1 else (-factor) * negated(expr)
        env: dict[str, Any] = self.row_coefficients(whole)
        free = {s.name for s in whole.free_symbols}
        rows = self.plan.axes(value)[:-1]
        if "v" in free:
            env["v"] = value
        if "y" in free:
            assert prediction is not None
            env["y"] = prediction
        if "n" in free:
            assert prediction is not None
            env["n"] = self.call("n", rows, "distance", prediction, value)
        if "kappa" in free:
            env["kappa"] = self.square(rows, key)
        if not free & {"v", "y"}:
            scalar = self.map(f"{name}_scalar", whole, env) if whole.free_symbols else None
            return self.filled(name, scalar, whole, value, equation)
        return self.map(name, whole, env, equation)


Builder: TypeAlias = BuilderOf[Rule]
"""A builder of any rule's plan."""


def negated(expr: Any) -> Any:
    """Return −expr with the sign taken inside: v − y, not −(y − v)."""
    if isinstance(expr, sp.Piecewise):
        return sp.Piecewise(*((negated(value), condition) for value, condition in expr.args))
    if expr.is_Mul:
        sums = [f for f in expr.args if f.is_Add or isinstance(f, sp.Piecewise)]
        if sums:
            return sp.Mul(*(negated(f) if f is sums[0] else f for f in expr.args))
    return -expr


def feature_options(rule: Common) -> dict[str, Any]:
    """Return the feature map as literal options of the support function.

    The a_i of a series are numbers, or ``None`` where they are arguments.
    """
    spec = rule.problem.spec.features
    options = {"kind": type(spec).word(), **spec.model_dump(exclude={"kind", "a"})}
    weights = [rule.problem.value(name) for name, _, _ in spec.coefficients()]
    if any(a.is_number for a in weights):
        options["a"] = tuple(float(a) if a.is_number else None for a in weights)
    return options
