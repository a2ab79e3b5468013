"""The error at a new prediction on tiles: the spec's own error printed into a bracketed search."""

from mnemic.codegen.plan import Map, Plan
from mnemic.codegen.tiled.axes import NoTiles
from mnemic.codegen.tiled.printer import UnknownFunction, print_exact
from mnemic.compiler.implicit import PLACE, NewErrorBase, roots_of

NEW_ERROR = '''@triton.jit
def _error_at(u{parameters}):
    """e at the new prediction."""
    return {error}


@triton.jit
def _slope_at(u{parameters}):
    """∂e/∂ŷ there."""
    return {slope}


@triton.jit
def new_error(y, c{parameters}):
    """The root s of s = e(y − c s), entry by entry, between 0 and e(y)."""
    start = _error_at(y{parameters}) + 0.0 * (y + c)
    known = start == start
    sign = tl.where(known, tiles.sign(start), tiles.sign(y + 0.0 * c))
    high = tl.where(known, tl.minimum(tl.abs(start), 1e30), 1e30)
    near = (1.0 + tl.abs(y)) / tl.maximum(c, 1e-15) + tl.zeros_like(high)
    beyond = sign * _error_at(y - c * sign * near{parameters}) <= near
    high = tl.where((near < high) & beyond, near, high)
    low = tl.zeros_like(high)
    size = 0.5 * high
    for count in range({most}):
        left = sign * _error_at(y - c * sign * size{parameters}) - size
        right = left > 0
        right = right | (left != left)
        low = tl.where(right, size, low)
        high = tl.where(right, high, size)
        half = 0.5 * (low + high)
        step = size + left / (1.0 + c * _slope_at(y - c * sign * size{parameters}))
        inside = (step > low) & (step < high) & (count >= {halvings})
        size = tl.where(left == 0.0, size, tl.where(inside, step, half))
    s = sign * size
    for _ in range(2):
        left = _error_at(y - c * s{parameters}) - s
        step = left / (1.0 + c * _slope_at(y - c * s{parameters}))
        s += {polished}
    return s
'''


def functions(plan: Plan) -> str:
    """Write the root behind a plan's errors at new predictions as Triton source; empty without one.

    Raises ``NoTiles`` where no tile computes it.
    """
    exprs = [q.op.expr for q in plan.ordered() if isinstance(q.op, Map)]
    exprs += [signal.expr for name, signal in plan.signals.items() if name == "error"]
    kinds = {type(root): root for expr in exprs for root in roots_of(expr)}
    if not kinds:
        return ""
    if len(kinds) > 1:
        raise NoTiles("several errors at new predictions")
    try:
        return _printed(next(iter(kinds.values())))
    except UnknownFunction as reason:
        raise NoTiles(f"the function {reason}") from None


def _printed(root: NewErrorBase) -> str:
    """Write a search: halvings alone find a jump; smooth errors take Newton's steps after some."""
    near = "tl.abs(left) <= tiles.near(s) * (1.0 + tl.abs(s))"  # else it lies inside a jump
    return NEW_ERROR.format(
        parameters="".join(f", {holder.name}" for holder in root.holders),
        error=print_exact(root.signal, {PLACE.name: "u"}, "tl.zeros_like(u)"),
        slope=print_exact(root.slope, {PLACE.name: "u"}, "tl.zeros_like(u)"),
        most=64 if root.jumps else 30, halvings=64 if root.jumps else 18,
        polished=f"tl.where({near}, step, 0.0)" if root.jumps else "step",
    )  # fmt: skip
