"""A layer's token as one plan: what stands before the rule's own plan, that plan, and its end.

x̂_t = Σ_j w_j ∘ x_{t−taps+1+j},  q, k = turn(unit(σ(x̂))),  v = σ(x̂)        (vectors)
c = g(raw), or log g(raw)                                                    (coefficients)
o = rms(y) ∘ σ_g(gate)                                                       (the end)
"""

from dataclasses import dataclass, field
from typing import Any

import sympy as sp

from mnemic.codegen.activations import expression, logarithm
from mnemic.codegen.layer import activation_of, gate_of, learned_scalars, vector_texts
from mnemic.codegen.own_names import public
from mnemic.codegen.plan import Call, Given, Map, Plan, Quantity, Read, renamed_reads
from mnemic.codegen.step.loads import Channels, Finish, Load, Raw, Same, Tail, Told
from mnemic.codegen.support.lengths import DIRECTIONS, EPSILON
from mnemic.codegen.support.signature import Coefficient, Signature
from mnemic.codegen.tiled.axes import NoTiles
from mnemic.compiler import symbols as sym
from mnemic.compiler.rule import Rule
from mnemic.dsl.block import Block

UNTOLD = {
    "angle": "a complex decay, whose angle adds up from token to token",
    "ends": "a tree of levels, which are read by the token's number",
}
"""By argument: why a token's kernel cannot have it."""

MOST_STEPS = 8
"""Steps a token, written out one after another."""


@dataclass
class Whole:
    """The plan of a layer's whole token, and where its inputs come from.

    ``read`` is the quantity that the rule reads out, ``plan.output`` the layer's output made from
    it.
    """

    plan: Plan
    read: str
    loads: dict[str, Load]
    window: dict[tuple[str, int], tuple[str, ...]] = field(default_factory=dict)
    """By vector and step: its channels at each tap, the oldest first."""
    queries: frozenset[str] = frozenset()
    """The names of what is given of the query."""
    tails: dict[str, str] = field(default_factory=dict)
    """By carried tail: the window that it is made of."""


def whole(rule: Rule, token: Plan, signature: Signature) -> Whole:
    """Return the plan of a layer's token.

    Raises ``NoTiles`` where the rule takes something that no part of the kernel makes.
    """
    _refuse(token, signature)
    made = _Prologue(rule, signature)
    now, output = {s: made.plan.given(s, token.axes(s), state=True) for s in token.states()}, ""
    count = signature.steps * signature.inner
    for step in range(count):
        found = _copied(token, made, step, now)
        now = {s: found[n] for s, n in token.following.items()}
        output = found[token.output]
    made.plan.following = now
    made.plan.closed = {
        every: {place: found[value] for place, value in moves.items()}
        for every, moves in token.closed.items()
    }
    made.plan.output = made.finished(output)
    queries = frozenset(n for n, x in made.loads.items()
                        if isinstance(x, Channels) and x.vector == "q")  # fmt: skip
    carried = {s.name for s in signature.states if s.axes == "window"}
    if carried != set(made.tails):
        raise NoTiles("windows that nothing reads")
    return Whole(made.plan, output, made.loads, made.windows, queries, made.tails)


def _refuse(token: Plan, signature: Signature) -> None:
    steps = signature.steps * signature.inner
    if steps > MOST_STEPS:
        raise NoTiles(f"{steps} steps a token")
    if steps > 1 and token.closed:
        raise NoTiles("several steps a token, and intervals of tokens")
    if steps > 1 and signature.window > 1:
        raise NoTiles("several steps a token, and windows of tokens")
    if signature.diagonal:
        raise NoTiles("a diagonal memory")
    if any(s.kept for s in signature.states):
        raise NoTiles("states that grow")


def _copied(token: Plan, made: "_Prologue", step: int, now: dict[str, str]) -> dict[str, str]:
    """Copy the rule's plan at one of a token's steps: arguments made, states as they stand."""
    plan, renamed = made.plan, dict(now)
    plan.functions |= token.functions
    plan.signals |= token.signals
    for quantity in _everything(token):
        if isinstance(quantity.op, Given):
            if quantity.name not in renamed:
                renamed[quantity.name] = made.argument(quantity, step)
            continue
        op = renamed_reads(quantity.op, renamed)
        renamed[quantity.name] = plan.add(quantity.name, quantity.axes, op, quantity.equation)
    return renamed


def _everything(token: Plan) -> tuple[Quantity, ...]:
    return tuple(q for q in token.ordered() if q.op != Given(state=True))


@dataclass
class _Prologue:
    """Plans the rule's arguments, made from the layer's projections."""

    rule: Rule
    signature: Signature
    plan: Plan = field(default_factory=Plan)
    loads: dict[str, Load] = field(default_factory=dict)
    windows: dict[tuple[str, int], tuple[str, ...]] = field(default_factory=dict)
    tails: dict[str, str] = field(default_factory=dict)

    @property
    def block(self) -> Block:
        return self.rule.problem.spec.block

    def argument(self, given: Quantity, step: int) -> str:
        """Return the quantity that stands for an argument of the rule at one of a token's steps."""
        name = given.name
        texts = vector_texts(self.block, self.signature)
        if name in texts:
            micro = 0 if name == "q" else step // self.signature.inner
            if given.axes[0] == "r":
                now = self.vector(name, texts[name], given.axes[1:], micro)
                return self.windowed(name, now, given.axes)
            return self.vector(name, texts[name], given.axes, micro)
        found = next((c for c in self.signature.coefficients if c.parameter == name), None)
        if self.signature.window > 1 and name == "gamma":
            return self.weights(found, given.axes, step)
        if found is not None:
            return self.coefficient(found, given.axes, step)
        known: dict[str, Load] = {
            "zero": Same(0.0), "h_index": Told("head.to(REAL)"),
            "H_index": Told("tl.cast(heads, REAL)"), "t_index": Told("position.to(REAL)"),
        }  # fmt: skip
        if name == "first_index":
            return self.loaded(f"{name}_{int(step == 0)}", given.axes, Same(float(step == 0)))
        told = known.get(name)
        if told is None:
            raise NoTiles(UNTOLD.get(name, "an argument that is no vector and no coefficient"))
        return self.loaded(name, given.axes, told)

    def loaded(self, name: str, axes: tuple[str, ...], load: Load) -> str:
        """Declare something that the kernel reads, unless that is done, and return its name."""
        if name not in self.plan.graph:
            self.plan.given(name, axes)
            self.loads[name] = load
        return name

    # -- windows ----------------------------------------------------------------------------

    def windowed(self, name: str, now: str, axes: tuple[str, ...]) -> str:
        """Plan the last c tokens' own: what is carried, and the token's."""
        state = f"{name}_tail"
        if state not in self.tails:
            tail = self.loaded(state, axes, Tail(state))
            function = "appended" if len(axes) == 1 else "appended_row"
            call = Call(function, (tail, now))
            self.tails[state] = self.plan.add(f"{name}_window", axes, call)
        return self.tails[state]

    def weights(self, told: Coefficient | None, axes: tuple[str, ...], step: int) -> str:
        """Plan γ of the window's tokens, zero before the document."""
        live = self.windowed("live", self.loaded("live_now", (), Same(1.0)), axes)
        if told is None:
            return live
        if self.signature.token_weights:
            own = self.windowed("gamma", self.coefficient(told, (), step), axes)
        else:
            own = self.coefficient(told, axes, step)
        reads = (Read("own_", own, axes), Read("live_", live, axes))
        return self.plan.add("gamma_live", axes, Map(_symbol("own_") * _symbol("live_"), reads))

    # -- coefficients -----------------------------------------------------------------------

    def coefficient(self, told: Coefficient, axes: tuple[str, ...], step: int) -> str:
        """Plan g(raw), or its logarithm; a coefficient that acts once a token is neutral at the
        later steps."""
        name = told.parameter
        if step and name in self.signature.once:
            value = 0.0 if name.startswith("log_") else 1.0
            return self.loaded(f"{name}_idle", axes, Same(value))
        scalar = next(s for s in learned_scalars(self.rule) if s.argument == name)
        micro, count = (
            (step // self.signature.inner, self.signature.steps) if told.micro else (0, 1)
        )
        fixed = scalar.declared.origin == "parameter"
        raw = self.loaded(
            f"raw_{scalar.name}_{micro}", axes, Raw(public(scalar.name), fixed, micro, count)
        )
        expr = activation_of(scalar)
        return self.mapped(name, logarithm(expr) if scalar.logarithmic else expr, raw, axes)

    # -- vectors ----------------------------------------------------------------------------

    def vector(self, name: str, text: str, axes: tuple[str, ...], step: int) -> str:
        """Plan a query, key or value of one of a token's steps."""
        expr, block = expression(text), self.block
        if expr.is_number:
            found = self.loaded(name, axes, Same(float(expr)))
        else:
            found = self.mapped(name, expr, self.convolved(name, axes, step), axes)
        if name == "v":
            return found
        length = None
        if name in DIRECTIONS or block.qk_norm == "l2":
            length = self.length(found)
            found = self.over(found, length)
        if block.rotary in (True, "memory"):
            found = self.turned(name, expr, found, axes, step, length)
        if name == "q" and block.scale is not None:
            found = self.mapped("q_scaled", sp.Float(block.scale) * sym.x, found, axes)
        return found

    def convolved(self, name: str, axes: tuple[str, ...], step: int, partner: bool = False) -> str:
        """Plan Σ_j w_j ∘ x_{t−taps+1+j}."""
        taps, other = self.block.convolution, "_partner" if partner else ""
        lead = f"{name}_{step}{other}"
        rows = [
            self.loaded(f"{lead}_{j}", axes, Channels(name, step, "tail", j, partner))
            for j in range(taps - 1)
        ]
        rows.append(self.loaded(f"{lead}_new", axes, Channels(name, step, partner=partner)))
        if not partner:
            self.windows[name, step] = tuple(rows)
        if not taps:
            return rows[-1]
        weights = [
            self.loaded(f"{lead}_tap{j}", axes, Channels(name, step, "taps", j, partner))
            for j in range(taps)
        ]
        symbols = {f"{kind}{j}_": names[j] for kind, names in (("x", rows), ("w", weights))
                   for j in range(taps)}  # fmt: skip
        expr = sp.Add(*(_symbol(f"x{j}_") * _symbol(f"w{j}_") for j in range(taps)))
        reads = tuple(Read(s, quantity, axes) for s, quantity in symbols.items())
        return self.plan.add(f"{lead}_convolved", axes, Map(expr, reads))

    def mapped(self, name: str, expr: Any, of: str, axes: tuple[str, ...]) -> str:
        """Plan an activation of one quantity."""
        if expr == sym.x:
            return of
        symbol = _symbol(f"{of}_")
        reads = (Read(symbol.name, of, axes),) if expr.free_symbols else ()
        return self.plan.add(name, axes, Map(expr.subs(sym.x, symbol), reads))

    def length(self, vector: str) -> str:
        """Plan sqrt(‖x‖² + ε)."""
        x, total = _symbol("x_"), sp.Symbol("total_", nonnegative=True)
        axes = self.plan.axes(vector)
        squares = self.plan.add(f"{vector}_squares", axes, Map(x**2, (Read("x_", vector, axes),)))
        found = self.plan.add(f"{vector}_square", (), Call("total", (squares,)))
        root = Map(sp.sqrt(total + sp.Float(EPSILON)), (Read("total_", found, ()),))
        return self.plan.add(f"{vector}_length", (), root)

    def over(self, vector: str, length: str) -> str:
        """Plan x / length."""
        axes, x, size = self.plan.axes(vector), _symbol("x_"), _symbol("length_")
        reads = (Read("x_", vector, axes), Read("length_", length, ()))
        return self.plan.add(f"{vector}_unit", axes, Map(x / size, reads))

    def turned(
        self, name: str, expr: Any, vector: str, axes: tuple[str, ...], step: int,
        length: str | None,
    ) -> str:  # fmt: skip
        """Turn a key by its position: what stands half a vector further comes by a load."""
        partner = vector
        if not expr.is_number:
            other = self.convolved(name, axes, step, partner=True)
            partner = self.mapped(f"{name}_partner", expr, other, axes)
            partner = partner if length is None else self.over(partner, length)
        position = self.loaded("token_number", (), Told("number.to(REAL)"))
        call = Call("rotated", (vector, partner, position))
        return self.plan.add(f"{name}_turned", axes, call)

    # -- the end ----------------------------------------------------------------------------

    def finished(self, output: str) -> str:
        """Plan rms(y) ∘ σ(gate), each where the block has it."""
        axes, gate = self.plan.axes(output), gate_of(self.block)
        if self.block.output_norm == "rms":
            output = self.normed(output, axes)
        if gate is None:
            return output
        raw = self.loaded("gate_raw", axes, Finish("rows_gate", "batch * heads * GROUPS + query"))
        opened = self.mapped("gate_open", expression(gate), raw, axes)
        reads = (Read("x_", output, axes), Read("gate_", opened, axes))
        return self.plan.add("y_gated", axes, Map(_symbol("x_") * _symbol("gate_"), reads))

    def normed(self, output: str, axes: tuple[str, ...]) -> str:
        """Plan y / sqrt(mean y² + ε) times the norm's weight."""
        x, weight = _symbol("x_"), _symbol("weight_")
        total, count = sp.Symbol("total_", nonnegative=True), sp.Symbol("count_", positive=True)
        squares = self.plan.add("y_squares", axes, Map(x**2, (Read("x_", output, axes),)))
        found = self.plan.add("y_square", (), Call("total", (squares,)))
        size = self.loaded("value_channels", (), Told("tl.full((), VALUES, REAL)"))
        root = Map(
            sp.sqrt(total / count + sp.Float(EPSILON)),
            (Read("total_", found, ()), Read("count_", size, ())),
        )
        length = self.plan.add("y_length", (), root)
        weights = self.loaded("norm_weights", axes, Finish("norm_weight", "0"))
        reads = (Read("x_", output, axes), Read("length_", length, ()),
                 Read("weight_", weights, axes))  # fmt: skip
        size_of = _symbol("length_")
        return self.plan.add("y_normed", axes, Map(x / size_of * weight, reads))


def _symbol(name: str) -> Any:
    return sp.Symbol(name, real=True)
