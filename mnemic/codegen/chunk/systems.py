"""The rows that a chunk writes, u_s = −η e_s: known, or the root of a triangular system."""

from typing import Any

import sympy as sp

from mnemic.codegen.builder import Builder
from mnemic.codegen.chunk.parts import Chunk, Source, source_of, step_factor
from mnemic.codegen.coefficients import PLAIN
from mnemic.codegen.error_functions import error_functions
from mnemic.codegen.keyed_rows import Side, meeting
from mnemic.codegen.state_reads import from_state, reached
from mnemic.compiler import symbols as sym


def solve(p: Chunk) -> tuple[Source, ...]:
    """Return the rows of a chunk whose predictions see what its earlier rows wrote."""
    rule, roles = p.b.rule, p.roles
    through = "memory" if rule.momentum is None else "momentum"
    side = _predicting(p, through)
    if rule.split:
        return _split(p, through, side)
    mixing = mixing_of(p, roles["predict"], roles["write"], through, side)
    affine = rule.structure.algebra == "affine"
    if affine and rule.kernels is None:
        rows = _affine(p, mixing)
    elif affine:
        rows = _solved(p, _base(p, side), inverse_of(p, mixing))
    else:
        rows = _residual(p, mixing, _base(p, side))
    return (source_of(p, rows, roles["write"], through),)


def _predicting(p: Chunk, through: str) -> Side:
    """Return how predictions meet the memory."""
    b, c, kept = p.b, p.c, p.m.kept
    if kept is None or b.rule.kernels is None:
        return PLAIN
    seen, targets, keys = c.seen[through], p.roles["predict"], p.roles["write"]
    if b.rule.kernels.predict.normalised:
        seen = seen or b.call("sums", ("t", "s"), "lower_ones_of", targets)
        seen = b.call(f"{seen}_strict", ("t", "s"), "strictly_lower", seen)
    return meeting(b, b.rule.kernels.predict, kept, targets, keys, seen,
                   (c.reach_seen, c.carry_seen))  # fmt: skip


def _solved(p: Chunk, base: str, inverse: str) -> str:
    """Return u = (I + η slope L)⁻¹ (−η e(base)) for an affine error."""
    b, roles = p.b, p.roles
    start = b.error(b.rule.error.signal, base, roles["value"], roles["predict"], "start",
                    step_factor(b))  # fmt: skip
    return b.product("u", _rows(p), inverse, start, equation="error")


def _rows(p: Chunk) -> tuple[str, str]:
    """Return the axes of errors and predictions: those of the values."""
    return p.b.plan.axes(p.roles["value"])[0], "v"


def _base(p: Chunk, side: Side) -> str:
    """Plan predictions from the state at the chunk's start."""
    b, c, m = p.b, p.c, p.m
    predict = seen_by_channel(p, p.roles["predict"])
    times = c.rows
    base = from_state(b, c, predict, _on_rows(b, c.reach_seen, times), m.memory, "base",
                      row_decay=False, side=side)  # fmt: skip
    if m.momentum is not None:
        speed = from_state(b, c, predict, _on_rows(b, c.carry_seen, times), m.momentum,
                           "base_speed", row_decay=False, side=side)  # fmt: skip
        one, two = sp.Symbol("x_", real=True), sp.Symbol("y_", real=True)
        base = b.map("predicted", one + two, {"x_": base, "y_": speed}, "prediction")
    return side.divided(b, base, "base_mean", "prediction")


def seen_by_channel(p: Chunk, predict: str) -> str:
    """Return prediction keys times the decay that the gradient sees, if it differs by channel."""
    b, c, rule = p.b, p.c, p.b.rule
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


def mixing_of(p: Chunk, targets: str, keys: str, through: str, side: Side = PLAIN) -> str:
    """Plan L: what the prediction of row t sees of what row s wrote, strictly lower triangular."""
    b, c = p.b, p.c
    if c.log_channel is not None:
        targets = seen_by_channel(p, targets)
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


def inverse_of(p: Chunk, mixing: str) -> str:
    """Return (I + η slope ∘ L)⁻¹."""
    b, roles, rule = p.b, p.roles, p.b.rule
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


def _affine(p: Chunk, mixing: str) -> str:
    """Plan u = known − Σ erasing·stateᵀ: the inverse is applied for all chunks at once."""
    b, c, m, roles = p.b, p.c, p.m, p.roles
    axes = _rows(p)
    whole = -step_factor(b) * b.rule.error.signal
    scalar, rest = whole.as_independent(sym.y, sym.v, as_Add=False)
    inverse = _rated(p, inverse_of(p, mixing), scalar)
    offset = b.error(rest.subs(sym.y, 0), None, roles["value"], roles["predict"], "target",
                     sp.Integer(-1))  # fmt: skip
    rows = b.product("u_known", axes, inverse, offset, equation="error")
    predict = seen_by_channel(p, roles["predict"])
    one, two = sp.Symbol("x_", real=True), sp.Symbol("y_", real=True)
    for state, factor in ((m.memory, c.reach_seen), (m.momentum, c.carry_seen)):
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


def _rated(p: Chunk, inverse: str, scalar: Any) -> str:
    """Plan the inverse with its columns times the rate, so that the scan need not."""
    if scalar == 1:
        return inverse
    b, roles = p.b, p.roles
    env: dict[str, Any] = b.row_coefficients(scalar)
    if scalar.has(sym.kappa):
        rows = b.plan.axes(roles["value"])[:-1]
        env["kappa"] = b.call("kappa", rows, "squared_norm", roles["predict"])
    env = {n: (q, ("s",)) for n, q in env.items()}
    one = sp.Symbol("T_", real=True)
    return b.map(f"{inverse}_rate", scalar * one, {"T_": (inverse, ("t", "s")), **env})


def _split(p: Chunk, through: str, side: Side) -> tuple[Source, ...]:
    """Plan written and erased rows apart: written ones are known, erased ones solve the system."""
    b, roles, rule = p.b, p.roles, p.b.rule
    direct = "memory" if rule.momentum_on == "write" else through
    written = b.error(rule.error.offset, None, roles["value"], roles["predict"], "written",
                      step_factor(b))  # fmt: skip
    base = _base(p, side)
    known = mixing_of(p, roles["predict"], roles["write"], through, side)
    added = b.product("base_written", _rows(p), known, written)
    one, two = sp.Symbol("x_", real=True), sp.Symbol("y_", real=True)
    whole = b.map("base_whole", one + two, {"x_": base, "y_": added}, "prediction")
    mixing = mixing_of(p, roles["predict"], roles["erase"], direct, side)
    inverse = inverse_of(p, mixing)
    start = b.error(rule.error.slope * sym.y, whole, roles["value"], roles["predict"],
                    "erased_alone", step_factor(b))  # fmt: skip
    erased = b.product("erased", _rows(p), inverse, start, equation="error")
    return (
        source_of(p, erased, roles["erase"], direct),
        source_of(p, written, roles["write"], through),
    )


def _residual(p: Chunk, mixing: str, base: str) -> str:
    """Solve ŷ = base + L u(ŷ) for a u that is not affine, then return u.

    Where e depends on ŷ − v alone, the unknown is the residual R = ŷ − v.
    """
    b, roles = p.b, p.roles
    one, two = sp.Symbol("x_", real=True), sp.Symbol("y_", real=True)
    factor, axes = step_factor(b), _rows(p)
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
