"""Behind a kernel: keys and rows in place of a matrix, W φ(x) = Σ_i c_i u_i κ(k_i·x).

A matrix is an array of rows u_i over kept keys, [n, d_v], its coefficients c_i in the rows; the
momentum and the anchor are others over the same keys. Decays and sums act on rows as they do on
entries, so the forms differ only in how a matrix is read and how it grows. Where a kernel's rows
of weights are divided by their sums, the coefficients are kept beside as well.
"""

from dataclasses import dataclass, replace
from typing import Any

import sympy as sp

from mnemic.codegen.builder import Builder
from mnemic.compiler import symbols as sym
from mnemic.compiler.kernels import Kernel

ROWS = ("n", "v")
"""The axes of a matrix as rows over kept keys."""

ONE, TWO, THREE, FOUR = sp.symbols("x_ y_ f_ g_", real=True)


@dataclass(frozen=True)
class Kept:
    """What is carried beside the rows: the keys, and coefficients of memory, momentum, anchor.

    Coefficients are ``None`` where they are all alike, or where no sum needs them.
    """

    keys: str
    counts: str | None = None
    momentum: str | None = None
    anchor: str | None = None


def declare(b: Builder, *, momentum: bool, anchor: bool) -> Kept | None:
    """Declare kept keys, and coefficients where sums need them; ``None`` for an entire matrix."""
    rule = b.rule
    if rule.kernels is None:
        return None
    keys = b.plan.given("K", ("n", "k"), state=True)
    if not rule.kernels.normalised:
        return Kept(keys)
    again = rule.problem.spec.optimizer.inner_steps > 1  # a key's steps are summed into one row
    fades = rule.decay != 1 or momentum or again
    return Kept(
        keys,
        counts=b.plan.given("shares", ("n",), state=True) if fades else None,
        momentum=b.plan.given("S_shares", ("n",), state=True) if momentum else None,
        anchor=b.plan.given("anchor_shares", ("n",), state=True) if anchor else None,
    )


def similarity(b: Builder, expr: Any, product: str) -> str:
    """Plan κ(s), or its logarithm, of products of keys."""
    return b.map(f"kappa_{product}", expr.subs(sym.s, ONE), {"x_": product}, "kernel")


# -- one token -------------------------------------------------------------------------------


def recall(
    b: Builder, kernel: Kernel, keys: str, rows: str, counts: str | None, x: str, name: str,
    equation: str,
) -> str:  # fmt: skip
    """Plan Σ_i u_i κ(k_i·x) of a vector, over Σ_i κ if normalised, or of each of a window's."""
    several = b.plan.axes(x)[:-1]
    function = "recall_rows" if several else "recall"
    product = b.call(f"{x}_{keys}", (*several, "n"), function, keys, x)
    if several:
        weights = similarity(b, kernel.expr, product)
        return b.product(name, (*several, "v"), weights, rows, equation=equation)
    if not kernel.normalised:
        weights = similarity(b, kernel.expr, product)
        return b.call(name, ("v",), "vector_matrix", weights, rows, equation=equation)
    left = () if counts is None else (counts,)
    if kernel.log is None:
        weights = similarity(b, kernel.expr, product)
    else:
        logits = similarity(b, kernel.log, product)
        top = b.call("top", (), "row_top", logits, *left)
        weights = b.call("weights", ("n",), "exp_over", logits, top, *left, equation="kernel")
    total = b.call("total", (), "row_total", weights, *left)
    whole = b.call(f"{name}_whole", ("v",), "vector_matrix", weights, rows)
    return b.call(name, ("v",), "over_total", whole, total, equation=equation)


def grow(b: Builder, kept: Kept, key: str) -> Kept:
    """Plan the keys and coefficients after a token, which the next state and the read-out see."""
    plan, rule = b.plan, b.rule
    own = newest(b, key)
    keys = b.call("K_next", ("n", "k"), "append", kept.keys, own)
    plan.following[kept.keys] = keys
    theta: Any = sp.Integer(0) if rule.momentum is None else rule.momentum
    speed = counts = None
    if kept.momentum is not None:
        old = b.map("S_shares_left", theta * ONE, {"x_": kept.momentum, **b.coefficients(theta)})
        speed = b.call("S_shares_next", ("n",), "with_ones", old, own)
        plan.following[kept.momentum] = speed
    if kept.counts is not None:
        expr = rule.decay * ONE
        env: dict[str, Any] = {"x_": kept.counts, **b.coefficients(rule.decay)}
        if kept.momentum is not None:
            expr = expr + theta * TWO
            env |= {"y_": kept.momentum, **b.coefficients(theta)}
        counts = b.call("shares_next", ("n",), "with_ones", b.map("shares_left", expr, env), own)
        plan.following[kept.counts] = counts
    _hold(b, kept, counts, keys, own)
    return Kept(keys, counts, speed)


def newest(b: Builder, key: str = "") -> str:
    """Return a token's own key, of a window the last one."""
    key = key or b.featured("k")
    return b.call("newest_key", ("k",), "newest", key) if "r" in b.plan.axes(key) else key


def _hold(b: Builder, kept: Kept, counts: str | None, keys: str, like: str) -> None:
    """Move the anchor's coefficients: none for later pairs, the memory's where a chunk ends."""
    if kept.anchor is None:
        return
    plan, state = b.plan, kept.anchor
    plan.following[state] = b.call("anchor_shares_wide", ("n",), "with_zeros", state, like)
    plan.close(b.rule.anchor, state, counts or b.call("all_ones", ("n",), "ones_of", keys))


def hold_rows(b: Builder, anchor: str, like: str) -> None:
    """Carry the anchor's rows on, zeros for pairs that came after it."""
    b.plan.following[anchor] = b.call("anchor_wide", ROWS, "with_zeros", anchor, like)


def append_rows(b: Builder, name: str, old: str, new: str, equation: str) -> str:
    """Grow rows by a token's own, or a window's, whose last c − 1 pairs are there already."""
    if b.plan.axes(new)[0] == "v":
        return b.call(name, ROWS, "append", old, new, equation=equation)
    return b.call(name, ROWS, "grown", old, new, equation=equation, tail=b.rule.window - 1)


# -- a chunk ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Side:
    """How a chunk's vectors meet the memory: by products, or through a kernel.

    ``top`` shifts an exponential kernel's logits, ``total`` is what each row is divided by.
    """

    kernel: Kernel | None = None
    top: str | None = None
    total: str | None = None
    left: str | None = None
    mix: str | None = None
    keys: str | None = None

    def of_new(self, b: Builder, product: str) -> str:
        """Plan the weights of a chunk's own keys, from their products with the targets."""
        if self.kernel is None or self.kernel.identity:
            return product
        if self.top is None:
            return similarity(b, self.kernel.expr, product)
        logits = similarity(b, self.kernel.log, product)
        left = () if self.mix is None else (self.mix,)
        return b.call(f"weights_{product}", b.plan.axes(product), "exp_over", logits, self.top,
                      *left, equation="kernel")  # fmt: skip

    def of_past(self, b: Builder, targets: str) -> str:
        """Plan the weights of the pairs kept before the chunk."""
        assert self.kernel is not None
        assert self.keys is not None
        axes = (b.plan.axes(targets)[0], "n")
        product = b.product(f"{targets}_{self.keys}", axes, targets, self.keys, flip_right=True)
        if self.top is None:
            return similarity(b, self.kernel.expr, product)
        logits = similarity(b, self.kernel.log, product)
        left = () if self.left is None else (self.left,)
        return b.call(f"weights_{product}", axes, "exp_over", logits, self.top, *left,
                      equation="kernel")  # fmt: skip

    def divided(self, b: Builder, x: str, name: str, equation: str = "") -> str:
        """Divide rows by their sums, where the kernel asks for it."""
        if self.total is None:
            return x
        return b.call(name, b.plan.axes(x), "over_total", x, self.total, equation=equation)


def meeting(
    b: Builder, kernel: Kernel, kept: Kept, targets: str, keys: str, mix: str | None,
    factors: tuple[str | None, str | None],
) -> Side:  # fmt: skip
    """Plan how targets meet kept pairs and the chunk's own keys, of coefficients ``mix``.

    ``factors``: what is left at each row of the memory's coefficients and of the momentum's.
    """
    if not kernel.normalised:
        return Side(kernel, keys=kept.keys)
    if mix is None:
        mix = b.call("sums", ("t", "s"), "lower_ones_of", targets)
    side = Side(kernel, left=_left(b, kept, factors), mix=mix, keys=kept.keys)
    product = b.product(f"{targets}_{keys}", ("t", "s"), targets, keys, flip_right=True)
    left = () if side.left is None else (side.left,)
    if kernel.log is not None:
        past = similarity(b, kernel.log, _past_product(b, kept, targets))
        new = similarity(b, kernel.log, product)
        top = b.call("tops", ("t",), "row_tops", past, new, mix, *left)
        side = replace(side, top=top)
    one, two = sp.symbols("s_ m_", real=True)  # the same product that scores take
    env: dict[str, Any] = {"s_": side.of_new(b, product), "m_": (mix, ("t", "s"))}
    mixed = b.map(f"mixed_{product}", one * two, env)
    total = b.call("totals", ("t",), "row_totals", side.of_past(b, targets), mixed, *left)
    return replace(side, total=total)


def meeting_anchor(b: Builder, kernel: Kernel, kept: Kept, targets: str) -> Side:
    """Plan how vectors meet the memory of the last chunk's end, which has no newer keys."""
    if not kernel.normalised:
        return Side(kernel, keys=kept.keys)
    assert kept.anchor is not None
    axes = (b.plan.axes(targets)[0], "n")
    left = b.call("anchor_left", axes, "as_row", kept.anchor)
    side = Side(kernel, left=left, keys=kept.keys)
    if kernel.log is not None:
        logits = similarity(b, kernel.log, _past_product(b, kept, targets))
        side = replace(side, top=b.call("anchor_tops", axes[:1], "row_top", logits, left))
    weights = side.of_past(b, targets)
    return replace(side, total=b.call("anchor_totals", axes[:1], "row_total", weights, left))


def _past_product(b: Builder, kept: Kept, targets: str) -> str:
    axes = (b.plan.axes(targets)[0], "n")
    return b.product(f"{targets}_{kept.keys}", axes, targets, kept.keys, flip_right=True)


def _left(b: Builder, kept: Kept, factors: tuple[str | None, str | None]) -> str | None:
    """Plan c_ti of kept pairs at each row of the chunk; ``None`` where all are one."""
    env: dict[str, Any] = {}
    expr: Any = sp.Integer(0)
    parts = zip((kept.counts, kept.momentum), factors, ((ONE, TWO), (THREE, FOUR)), strict=True)
    for counts, factor, (one, two) in parts:
        if counts is None:
            continue
        env[one.name] = counts
        if factor is not None:
            env[two.name] = (factor, ("t",))
        expr = expr + (one if factor is None else one * two)
    if env and all(factor is None for factor in factors):  # what is alike in all rows has rows too
        env, expr = {**env, "z_": (b.zero(), ("t",))}, expr + sp.Symbol("z_", real=True)
    return None if expr == 0 else b.map("shares_left", expr, env)


def carry(
    b: Builder, kept: Kept, keys: str, factors: tuple[str | None, str | None, str | None],
    remains: tuple[str | None, str | None],
) -> None:  # fmt: skip
    """Plan the keys and coefficients after a chunk.

    ``factors``: what the chunk's end leaves of the shares, adds to them of the momentum's, and
    leaves of the momentum's; ``remains``: the coefficients of the chunk's own pairs in the memory
    and in the momentum.
    """
    plan = b.plan
    after = b.call("K_next", ("n", "k"), "append_rows", kept.keys, keys)
    plan.following[kept.keys] = after
    reach, speed, fade = factors
    counts = None
    if kept.counts is not None:
        old = _scaled(b, "shares_end", ((kept.counts, reach), (kept.momentum, speed)))
        counts = _lengthened(b, "shares_next", old, remains[0], keys)
        plan.following[kept.counts] = counts
    if kept.momentum is not None:
        old = _scaled(b, "S_shares_end", ((kept.momentum, fade),))
        plan.following[kept.momentum] = _lengthened(b, "S_shares_next", old, remains[1], keys)
    _hold(b, kept, counts, after, keys)


def _scaled(b: Builder, name: str, parts: tuple[tuple[str | None, str | None], ...]) -> str:
    env: dict[str, Any] = {}
    expr: Any = sp.Integer(0)
    for (state, factor), (one, two) in zip(parts, ((ONE, TWO), (THREE, FOUR)), strict=False):
        if state is None:
            continue
        env[one.name] = state
        if factor is not None:
            env[two.name] = (factor, ())
        expr = expr + (one if factor is None else one * two)
    return b.map(name, expr, env)


def _lengthened(b: Builder, name: str, old: str, new: str | None, keys: str) -> str:
    if new is None:
        return b.call(name, ("n",), "with_ones", old, keys)
    return b.call(name, ("n",), "append_rows", old, new)
