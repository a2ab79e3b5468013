"""Decay, momentum, rate and window of a chunk as matrices.

mix_ts is what the dual after row t holds of the row written at s; ``mix_before`` is what the
gradient at t sees of it. Scalar decays are matrices; channel decays stay inside the scores.
"""

from dataclasses import dataclass, field
from typing import Any

import sympy as sp

from mnemic.codegen.builder import WINDOW_WEIGHT, Builder
from mnemic.codegen.keyed_rows import Side
from mnemic.compiler.rule import Rule

PLAIN = Side()
"""Products of keys as they are."""


@dataclass
class Coefficients:
    """The quantities of one chunk; ``None`` stands for a factor of one that is not computed."""

    banded: bool
    rows: int
    mix: dict[str, str | None]
    seen: dict[str, str | None]
    before: dict[str, str | None]
    reach: str | None = None
    reach_seen: str | None = None
    reach_before: str | None = None
    carry: str | None = None
    carry_seen: str | None = None
    carry_before: str | None = None
    decay: str | None = None
    """What the dual after row t holds of an O(S_s): decay and gain alone."""
    gained: str | None = None
    """What the dual after row t holds of S_s, where the retention has a gain."""
    faded: str | None = None
    """What the momentum after row t holds of the gradient at s, windows aside."""
    fade: str | None = None
    fades: str | None = None
    remain: dict[str, str] = field(default_factory=dict)
    log_channel: str | None = None
    log_row: str | None = None
    row_reach: str | None = None
    row_remain: str | None = None
    seen_factor: str | None = None
    m: str | None = None
    blended: str | None = None

    def scores(
        self, b: Builder, targets: str, keys: str, through: str, *, before: bool, side: Side = PLAIN
    ) -> str:
        """Plan (x·k) ∘ mix of targets (rows t) with written rows s; κ(x·k) behind a kernel."""
        mix = side.mix or (self.before if before else self.mix)[through]
        if self.log_channel is not None:
            return self._channel_scores(b, targets, keys, through, before=before)
        raw = b.product(f"{targets}_{keys}", ("t", "s"), targets, keys, flip_right=True)
        raw = side.of_new(b, raw)
        if mix is None:
            name = "strictly_lower" if before else "lower"
            return b.call(f"{raw}_low", ("t", "s"), name, raw)
        one, two = sp.Symbol("s_", real=True), sp.Symbol("m_", real=True)
        return b.map(f"{raw}_mixed", one * two, {"s_": raw, "m_": (mix, ("t", "s"))})

    def _channel_scores(
        self, b: Builder, targets: str, keys: str, through: str, *, before: bool
    ) -> str:
        name = f"{targets}_{keys}_" + ("before" if before else "now")
        return self.channel_call(b, name, targets, keys, through, before=before)

    def channel_call(
        self, b: Builder, name: str, targets: str, keys: str, through: str, *, before: bool
    ) -> str:
        """Plan scores under a decay by channel, blended with momentum if rows go through it."""
        assert self.log_channel is not None
        blended = self.blended if through == "momentum" else None
        extra = () if blended is None else (blended,)
        kind = "scores" if blended is None else "blended"
        function = f"{kind}_before" if before else f"{kind}_after"
        return b.call(
            name, ("t", "s"), function, targets, keys, self.log_channel, *extra, rows=self.rows
        )

    def accumulated(self, b: Builder, source: Any, name: str = "A_sums") -> str:
        """Plan Σ_s mix_ts u_s r_sᵀ for every row t."""
        axes = ("t", "v", "k")
        if self.log_channel is not None:
            if self.blended is not None and source.through == "momentum":
                return b.call(name, axes, "accumulate_blended", self.blended, source.rows,
                              source.keys, rows=self.rows)  # fmt: skip
            return b.call(name, axes, "accumulate_rows", self.log_channel, source.rows,
                          source.keys, rows=self.rows)  # fmt: skip
        mix = self.mix[source.through]
        if mix is None:
            mix = b.call("ones", ("t", "s"), "lower_ones_of", source.rows)
        return b.call(name, axes, "accumulate", mix, source.rows, source.keys)


def channel_decay(rule: Rule) -> bool:
    """Return whether the decay differs by key channel."""
    if rule.diagonal:
        return False
    per = {s.symbol: s.per for s in rule.scalars}
    return any(per.get(symbol) in ("key", "outer") for symbol in rule.decay.free_symbols)


def coefficients(b: Builder, banded: bool) -> Coefficients:
    """Plan decay, momentum, rate and window of a chunk as matrices."""
    rule = b.rule
    rows = rule.window if b.slot else 1
    nothing: dict[str, str | None] = {"memory": None, "momentum": None}
    c = Coefficients(banded, rows, dict(nothing), dict(nothing), dict(nothing))
    if rule.row_decay != 1:
        c.log_row = b.needed_log_decay(rule.row_decay, "log_row_decay")
        c.row_reach = b.call("row_reach", ("t", "v"), "reach_rows", c.log_row)
        c.row_remain = b.call("row_remain", ("t", "v"), "remain_rows", c.log_row)
    if channel_decay(rule):
        _by_channel(b, c)
    else:
        _by_head(b, c)
    return c


# -- decay by key channel --------------------------------------------------------------------


def _by_channel(b: Builder, c: Coefficients) -> None:
    c.log_channel = b.needed_log_decay(b.rule.decay)
    c.reach = b.call("reach", ("t", "k"), "reach_rows", c.log_channel)
    c.reach_before = b.call("reach_before", ("t", "k"), "delayed_rows", c.reach, fill=1.0)
    c.reach_seen = c.reach_before
    if b.rule.momentum is not None:
        _blend(b, c)
    if b.rule.momentum is None or b.rule.momentum_on == "write":
        c.remain["memory"] = b.call("remain", ("t", "k"), "remain_rows", c.log_channel)
    if c.rows > 1:
        for through, remain in c.remain.items():
            c.remain[through] = b.call(
                f"{remain}_flat", ("s", "k"), "repeat_rows", remain, times=c.rows
            )


def _blend(b: Builder, c: Coefficients) -> None:
    """Plan momentum under a decay by channel: one matrix a channel."""
    theta = _momentum(b)
    c.blended = b.call("mix", ("k", "t", "s"), "decayed_products", c.log_channel or "", theta)
    c.fade = b.call("fade", ("t",), "running_product", theta)
    c.carry = b.call("carry", ("t", "k"), "blended_carry", c.log_channel or "", c.fade)
    c.carry_before = b.call("carry_before", ("t", "k"), "delayed_rows", c.carry, fill=0.0)
    c.carry_seen = c.carry_before
    c.remain["momentum"] = b.call("remain_blended", ("s", "k"), "blended_remain", c.blended)
    c.faded = b.call("faded", ("t", "s"), "products", theta)
    c.fades = b.call("fades", ("s",), "last_row", c.faded)
    if c.rows > 1:
        c.fades = b.call("fades_flat", ("s",), "repeat", c.fades, times=c.rows)


def _momentum(b: Builder) -> str:
    rule = b.rule
    env: dict[str, Any] = b.coefficients(rule.momentum)
    expr = rule.momentum
    if not env:
        env["zero"] = b.zero()
        expr = expr + sp.Symbol("zero", real=True)
    return b.map("theta", expr, env)


# -- scalar decay ----------------------------------------------------------------------------


def _by_head(b: Builder, c: Coefficients) -> None:
    if b.stabilised:
        _stabilised(b, c)
        return
    c.decay = decay = _decay_matrix(b, c)
    through = {"memory": decay, "momentum": decay}
    if b.rule.momentum is not None:
        through["momentum"] = _momentum_matrix(b, c, decay)
        if b.rule.momentum_on == "write":  # what is erased goes past S
            through["memory"] = c.gained or decay
    for state, matrix in through.items():
        c.mix[state] = _windowed(b, c, matrix, state)
    _delay(b, c)


def _decay_matrix(b: Builder, c: Coefficients) -> str | None:
    rule = b.rule
    if rule.decay == 1:
        return None
    log_decay = b.log_decay(rule.decay)
    if log_decay is None:
        decay = b.map("decay", rule.decay, b.coefficients(rule.decay))
        c.reach = b.call("reach", ("t",), "running_product", decay)
        return b.call("mix", ("t", "s"), "products", decay)
    c.reach = b.call("reach", ("t",), "reach", log_decay)
    return b.call("mix", ("t", "s"), "segments", log_decay)


def _momentum_matrix(b: Builder, c: Coefficients, decay: str | None) -> str:
    """Plan mix = 𝓢(α)·diag(gain)·𝓢(θ), and what the carried S adds."""
    theta = _momentum(b)
    c.faded = faded = b.call("faded", ("t", "s"), "products", theta)
    c.fade = b.call("fade", ("t",), "running_product", theta)
    c.fades = b.call("fades", ("s",), "last_row", faded)
    sums = b.call("sums", ("t", "s"), "lower_ones", theta) if decay is None else decay
    if b.rule.gain != 1:
        s, g = sp.Symbol("s_", real=True), sp.Symbol("g_", real=True)
        gain = b.row_map("gain", b.rule.gain)
        sums = c.gained = b.map("gained", s * g, {"s_": sums, "g_": (gain, ("s",))})
    c.carry = b.call("carry", ("t",), "matrix_rows", sums, c.fade)
    return b.product("mix_momentum", ("t", "s"), sums, faded)


def _windowed(b: Builder, c: Coefficients, mix: str | None, state: str) -> str | None:
    """Add the window to a mix: as a band of weights, or as rows that share their token's decay."""
    if c.rows > 1:
        if mix is None:
            mix = b.call("sums", ("t", "s"), "lower_ones_of", b.vector("q", "k"))
        return b.call(
            f"mix_{state}_rows", ("t", "s"), "spread_rows", mix, targets=1, sources=c.rows
        )
    if not c.banded:
        return mix
    weights = b.map("eta_gamma", *_window_weights(b))
    band = b.call("band", ("t", "s"), "band", weights)
    if mix is None:
        mix = b.call("sums", ("t", "s"), "lower_ones_of", b.vector("q", "k"))
    return b.product(f"mix_{state}_window", ("t", "s"), mix, band)


def _window_weights(b: Builder) -> tuple[Any, dict[str, str]]:
    straight = b.rule.momentum is None and b.rule.applied.kind == "identity"  # no gain inside O
    expr = b.rate * (b.rule.gain if straight else sp.Integer(1)) * WINDOW_WEIGHT
    return expr, b.coefficients(expr) | b.coefficients(WINDOW_WEIGHT)


def _delay(b: Builder, c: Coefficients) -> None:
    """Delay mixes by one row for predictions, times the decay that the gradient sees."""
    rule = b.rule
    for state, mix in c.mix.items():
        if mix is not None:
            c.before[state] = b.call(f"{mix}_before", ("t", "s"), "delayed_rows", mix, fill=0.0)
    if c.reach is not None:
        c.reach_before = b.call("reach_before", ("t",), "delayed", c.reach, fill=1.0)
    if c.carry is not None:
        c.carry_before = b.call("carry_before", ("t",), "delayed", c.carry, fill=0.0)
    c.seen, c.reach_seen, c.carry_seen = dict(c.before), c.reach_before, c.carry_before
    if rule.seen == 1 or rule.error.constant:
        return
    if rule.momentum is None and rule.seen == rule.decay and c.rows == 1:
        c.seen, c.reach_seen = dict(c.mix), c.reach  # α_t times the row before is the row itself
        return
    factor = b.row_map("seen", rule.seen)
    x, f = sp.Symbol("x_", real=True), sp.Symbol("f_", real=True)
    for state, mix in c.before.items():
        if mix is not None:
            env = {"x_": mix, "f_": (factor, ("t",))}
            c.seen[state] = b.map(f"{mix}_seen", x * f, env)
    c.reach_seen = (
        factor
        if c.reach_before is None
        else b.map("reach_seen", x * f, {"x_": c.reach_before, "f_": factor})
    )
    if c.carry_before is not None:
        c.carry_seen = b.map("carry_seen", x * f, {"x_": c.carry_before, "f_": factor})


def _stabilised(b: Builder, c: Coefficients) -> None:
    """Plan mix from the weights' logarithms, divided by exp(m) with m their running maximum."""
    log_decay = b.needed_log_decay(b.rule.decay)
    carried = b.plan.given("m", (), state=True)
    log_eta = b.argument("eta")
    c.m = b.call("m_rows", ("t",), "running_maximum", log_decay, log_eta, carried,
                 equation="readout")  # fmt: skip
    c.mix["memory"] = b.call("mix", ("t", "s"), "stable_mix", log_decay, log_eta, c.m)
    c.reach = b.call("reach", ("t",), "stable_reach", log_decay, carried, c.m)
    b.plan.following[carried] = b.call("m_next", (), "last", c.m)
    b.mixed_rate = True
