"""The written rows of a chunk, u_s = −η e_s: known, or the root of a triangular system."""

from dataclasses import dataclass
from typing import Any

import sympy as sp

from mnemic.codegen.builder import WINDOW_WEIGHT, Builder
from mnemic.codegen.coefficients import PLAIN, Coefficients
from mnemic.codegen.functions import error_functions
from mnemic.codegen.kept import Side, meeting, meeting_anchor
from mnemic.codegen.readouts import headed
from mnemic.codegen.reads import from_state, reached
from mnemic.codegen.states import States
from mnemic.compiler import symbols as sym


@dataclass(frozen=True)
class Source:
    """Rows written with their keys, and what is left of them at the chunk's end."""

    rows: str
    keys: str
    through: str
    remain: str | None
    fade: str | None


def solve(b: Builder, states: States, roles: dict[str, str], c: Coefficients) -> tuple[Source, ...]:
    """The rows that a chunk writes."""
    rule = b.rule
    through = "memory" if rule.momentum is None else "momentum"
    if not b.predicts:
        rows = b.error(
            rule.error.signal, None, roles["value"], roles["predict"], "u", step_factor(b)
        )
        return (source_of(b, c, rows, roles["write"], through),)
    if rule.structure.algebra == "frozen":
        return _frozen(b, states, roles, c, through)
    side = _predicting(b, states, roles, c, through)
    if rule.split:
        return _split(b, states, roles, c, through, side)
    mixing = mixing_of(b, c, roles["predict"], roles["write"], through, side)
    if rule.error.affine and rule.kernels is None:
        rows = _affine(b, states, roles, c, mixing)
    elif rule.error.affine:
        rows = _solved(b, _base(b, states, roles, c, side), roles, inverse_of(b, c, mixing, roles))
    else:
        rows = _residual(b, mixing, _base(b, states, roles, c, side), roles)
    return (source_of(b, c, rows, roles["write"], through),)


def _predicting(
    b: Builder, states: States, roles: dict[str, str], c: Coefficients, through: str
) -> Side:
    """How predictions meet the memory."""
    if states.kept is None or b.rule.kernels is None:
        return PLAIN
    seen, targets, keys = c.seen[through], roles["predict"], roles["write"]
    if b.rule.kernels.predict.normalised:
        seen = seen or b.call("sums", ("t", "s"), "lower_ones_of", targets)
        seen = b.call(f"{seen}_strict", ("t", "s"), "strictly_lower", seen)
    return meeting(b, b.rule.kernels.predict, states.kept, targets, keys, seen,
                   (c.reach_seen, c.carry_seen))  # fmt: skip


def _solved(b: Builder, base: str, roles: dict[str, str], inverse: str) -> str:
    """u = (I + η slope L)⁻¹ (−η e(base)) for an affine error."""
    start = b.error(b.rule.error.signal, base, roles["value"], roles["predict"], "start",
                    step_factor(b))  # fmt: skip
    return b.product("u", rows_of(b, roles), inverse, start, equation="error")


def rows_of(b: Builder, roles: dict[str, str]) -> tuple[str, str]:
    """The axes of errors and predictions: those of the values."""
    return b.plan.axes(roles["value"])[0], "v"


def step_factor(b: Builder) -> Any:
    """−η, with the window's weight where rows are a window's; a band holds both itself."""
    rule = b.rule
    if rule.window > 1 and not b.slot:
        return sp.Integer(-1)
    weight = WINDOW_WEIGHT if b.slot else sp.Integer(1)
    gain = rule.gain if rule.momentum is None else sp.Integer(1)
    return -b.rate * gain * weight


def source_of(b: Builder, c: Coefficients, rows: str, keys: str, through: str) -> Source:
    """Written rows with their keys, and what of them is left at the chunk's end."""
    mix = c.mix[through]
    remain = None if mix is None else b.call(f"{mix}_end", ("s",), "last_row", mix)
    fade = c.fades
    if fade is not None and c.banded:
        fade = _faded_band(b, fade)
    if fade is not None and c.rows > 1 and c.log_channel is None:
        fade = b.call("fades_rows", ("s",), "repeat", fade, times=c.rows)
    return Source(rows, keys, through, remain, fade)


def _faded_band(b: Builder, fade: str) -> str:
    (band,) = [name for name in b.plan.graph if name == "band"]
    return b.call("fades_window", ("s",), "vector_matrix", fade, band)


def _base(b: Builder, states: States, roles: dict[str, str], c: Coefficients, side: Side) -> str:
    """Predictions from the state at the chunk's start."""
    predict = seen_by_channel(b, c, roles["predict"])
    times = c.rows
    base = from_state(b, c, predict, _on_rows(b, c.reach_seen, times), states.memory, "base",
                      row_decay=False, side=side)  # fmt: skip
    if states.momentum is not None:
        speed = from_state(b, c, predict, _on_rows(b, c.carry_seen, times), states.momentum,
                           "base_speed", row_decay=False, side=side)  # fmt: skip
        one, two = sp.Symbol("x_", real=True), sp.Symbol("y_", real=True)
        base = b.map("predicted", one + two, {"x_": base, "y_": speed}, "prediction")
    return side.divided(b, base, "base_mean", "prediction")


def seen_by_channel(b: Builder, c: Coefficients, predict: str) -> str:
    """Prediction keys times the decay that the gradient sees, where it differs by channel."""
    rule = b.rule
    if c.log_channel is None or rule.seen == 1:
        return predict
    factor = b.row_map("seen", rule.seen)
    rows = b.plan.axes(predict)[0]
    if c.rows > 1:
        factor = b.call("seen_rows", ("s", "k"), "repeat_rows", factor, times=c.rows)
    x, f = sp.Symbol("x_", real=True), sp.Symbol("f_", real=True)
    axes = tuple(rows if a in ("t", "s") else a for a in b.plan.axes(factor))
    return b.map(f"{predict}_seen", x * f, {"x_": predict, "f_": (factor, axes)})


def _on_rows(b: Builder, factor: str | None, times: int) -> str | None:
    if factor is None or times == 1:
        return factor
    channel = b.plan.axes(factor)[1:]
    function = "repeat_rows" if channel else "repeat"
    return b.call(f"{factor}_flat", ("s", *channel), function, factor, times=times)


def mixing_of(
    b: Builder, c: Coefficients, targets: str, keys: str, through: str, side: Side = PLAIN
) -> str:
    """L: what the prediction of row t sees of what row s wrote, strictly lower triangular."""
    if c.log_channel is not None:
        targets = seen_by_channel(b, c, targets)
        return c.channel_call(b, f"{targets}_{keys}_L", targets, keys, through, before=True)
    raw = b.product(f"{targets}_{keys}", ("t", "s"), targets, keys, flip_right=True)
    seen, raw = side.mix or c.seen[through], side.of_new(b, raw)
    if seen is None:
        return b.call(f"{raw}_L", ("t", "s"), "strictly_lower", raw, rows=c.rows)
    if c.rows > 1:
        seen = b.call(f"{seen}_rows", ("t", "s"), "spread_rows", seen, targets=c.rows, sources=1)
    one, two = sp.Symbol("s_", real=True), sp.Symbol("m_", real=True)
    env = {"s_": raw, "m_": (seen, ("t", "s"))}
    mixed = b.map(f"{raw}_seen", one * two, env)
    if side.mix is not None:
        return side.divided(b, mixed, f"{raw}_L")
    return b.call(f"{raw}_L", ("t", "s"), "strictly_lower", mixed, rows=c.rows)


def inverse_of(b: Builder, c: Coefficients, mixing: str, roles: dict[str, str]) -> str:
    """(I + η slope ∘ L)⁻¹."""
    rule = b.rule
    weight = -step_factor(b) * rule.error.slope
    if weight != 1:
        env: dict[str, Any] = b.row_coefficients(weight)
        if weight.has(sym.kappa):
            rows = b.plan.axes(roles["value"])[:-1]
            env["kappa"] = b.square(rows, roles["predict"])
        env = {n: (q, tuple("t" if a in ("t", "s") else a for a in b.plan.axes(q)))
               for n, q in env.items()}  # fmt: skip
        one = sp.Symbol("L_", real=True)
        mixing = b.map(f"{mixing}_eta", weight * one, {"L_": (mixing, ("t", "s")), **env})
    return b.call("inverse", ("t", "s"), "unit_lower_inverse", mixing, equation="error")


def _affine(b: Builder, states: States, roles: dict[str, str], c: Coefficients, mixing: str) -> str:
    """u = known − Σ erasing·stateᵀ: the inverse is applied for all chunks at once."""
    axes = rows_of(b, roles)
    whole = -step_factor(b) * b.rule.error.signal
    scalar, rest = whole.as_independent(sym.y, sym.v, as_Add=False)
    inverse = _rated(b, inverse_of(b, c, mixing, roles), scalar, roles)
    offset = b.error(rest.subs(sym.y, 0), None, roles["value"], roles["predict"], "target",
                     sp.Integer(-1))  # fmt: skip
    rows = b.product("u_known", axes, inverse, offset, equation="error")
    predict = seen_by_channel(b, c, roles["predict"])
    one, two = sp.Symbol("x_", real=True), sp.Symbol("y_", real=True)
    for state, factor in ((states.memory, c.reach_seen), (states.momentum, c.carry_seen)):
        if state is None:
            continue
        seen = reached(b, predict, _on_rows(b, factor, c.rows))
        slope = sp.diff(rest, sym.y)
        if slope != 1:
            env: dict[str, Any] = {"x_": seen, **b.row_coefficients(slope)}
            if slope.has(sym.kappa):
                env["kappa"] = b.call("kappa", axes[:1], "squared_norm", roles["predict"])
            seen = b.map(f"{seen}_slope", slope * one, env)
        erasing = b.product("erasing", (axes[0], "k"), inverse, seen, equation="error")
        erased = b.product("u_erased", axes, erasing, state, flip_right=True)
        rows = b.map("u", one - two, {"x_": rows, "y_": erased}, "error")
    return rows


def _rated(b: Builder, inverse: str, scalar: Any, roles: dict[str, str]) -> str:
    """The inverse with its columns times the rate, so that the scan need not."""
    if scalar == 1:
        return inverse
    env: dict[str, Any] = b.row_coefficients(scalar)
    if scalar.has(sym.kappa):
        rows = b.plan.axes(roles["value"])[:-1]
        env["kappa"] = b.call("kappa", rows, "squared_norm", roles["predict"])
    env = {n: (q, ("s",)) for n, q in env.items()}
    one = sp.Symbol("T_", real=True)
    return b.map(f"{inverse}_rate", scalar * one, {"T_": (inverse, ("t", "s")), **env})


def _split(
    b: Builder, states: States, roles: dict[str, str], c: Coefficients, through: str, side: Side
) -> tuple[Source, ...]:
    """Written and erased rows apart: written ones are known, erased ones solve the system."""
    rule = b.rule
    direct = "memory" if rule.momentum_on == "write" else through
    written = b.error(rule.error.offset, None, roles["value"], roles["predict"], "written",
                      step_factor(b))  # fmt: skip
    base = _base(b, states, roles, c, side)
    known = mixing_of(b, c, roles["predict"], roles["write"], through, side)
    added = b.product("base_written", rows_of(b, roles), known, written)
    one, two = sp.Symbol("x_", real=True), sp.Symbol("y_", real=True)
    whole = b.map("base_whole", one + two, {"x_": base, "y_": added}, "prediction")
    mixing = mixing_of(b, c, roles["predict"], roles["erase"], direct, side)
    inverse = inverse_of(b, c, mixing, roles)
    start = b.error(rule.error.slope * sym.y, whole, roles["value"], roles["predict"],
                    "erased_alone", step_factor(b))  # fmt: skip
    erased = b.product("erased", rows_of(b, roles), inverse, start, equation="error")
    return (
        source_of(b, c, erased, roles["erase"], direct),
        source_of(b, c, written, roles["write"], through),
    )


def _frozen(
    b: Builder, states: States, roles: dict[str, str], c: Coefficients, through: str
) -> tuple[Source, ...]:
    """Gradients at the memory of the last chunk's end: no system."""
    assert states.anchor is not None
    rule = b.rule
    base = _at_anchor(b, states, roles)
    if rule.split:
        direct = "memory" if rule.momentum_on == "write" else through
        erased = b.error(rule.error.slope * sym.y, base, roles["value"], roles["predict"],
                         "erased", step_factor(b))  # fmt: skip
        written = b.error(rule.error.offset, None, roles["value"], roles["predict"], "written",
                          step_factor(b))  # fmt: skip
        return (
            source_of(b, c, erased, roles["erase"], direct),
            source_of(b, c, written, roles["write"], through),
        )
    rows = headed(b, base, roles, step_factor(b), "u")
    return (source_of(b, c, rows, roles["write"], through),)


def _at_anchor(b: Builder, states: States, roles: dict[str, str]) -> str:
    """Predictions of the memory of the last chunk's end."""
    assert states.anchor is not None
    axes, kernels = rows_of(b, roles), b.rule.kernels
    if states.kept is None or kernels is None:
        return b.product("y_hat", axes, roles["predict"], states.anchor, flip_right=True,
                         equation="prediction")  # fmt: skip
    side = meeting_anchor(b, kernels.predict, states.kept, roles["predict"])
    weights = side.of_past(b, roles["predict"])
    whole = b.product("y_hat", axes, weights, states.anchor, equation="prediction")
    return side.divided(b, whole, "y_hat_mean", "prediction")


def _residual(b: Builder, mixing: str, base: str, roles: dict[str, str]) -> str:
    """ŷ = base + L u(ŷ) for a u that is not affine, then u.

    Where e depends on ŷ − v alone, the unknown is the residual R = ŷ − v.
    """
    one, two = sp.Symbol("x_", real=True), sp.Symbol("y_", real=True)
    factor, axes = step_factor(b), rows_of(b, roles)
    function = error_functions(b, roles)
    if factor != 1:  # u = −η e: the rate stands in the system's columns
        env = {n: (q, ("s",)) for n, q in b.row_coefficients(factor).items()}
        mixing = b.map(f"{mixing}_rate", factor * one, {"x_": (mixing, ("t", "s")), **env})
    start = base
    if function.of_residual:
        start = b.map("start", one - two, {"x_": base, "y_": roles["value"]}, "error")
    unknown = b.call("R" if function.of_residual else "y_hat", axes, "residual", mixing, start,
                     *function.arguments, equation="error", error="error",
                     adjoint="error_adjoint")  # fmt: skip
    e = b.call("e", axes, "error", unknown, *function.arguments, equation="error")
    return b.map("u", factor * one, {"x_": e, **b.row_coefficients(factor)}, "gradient")
