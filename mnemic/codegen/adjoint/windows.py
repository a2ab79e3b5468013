"""Rules of windows: rows laid flat, repeated, and bands of weights; and of turned keys."""

from collections.abc import Callable

from mnemic.codegen.adjoint.at import At


def flat(at: At) -> None:
    """Slots laid flat into rows."""
    (x,) = at.arguments
    at.give_call(x, "in_shape_of", at.d, x)


def repeat(at: At) -> None:
    """Every number several times."""
    (x,) = at.arguments
    at.give_call(x, "run_sums", at.d, times=at.option("times"))


def repeat_rows(at: At) -> None:
    """Every row several times."""
    (x,) = at.arguments
    at.give_call(x, "token_sums", at.d, rows=at.option("times"))


def spread_rows(at: At) -> None:
    """Every entry as a block."""
    (x,) = at.arguments
    sizes = {name: at.option(name) for name in ("targets", "sources")}
    at.give_call(x, "block_sums", at.d, **sizes)


def band(at: At) -> None:
    """Weights of windows as a matrix."""
    (weights,) = at.arguments
    at.give_call(weights, "unbanded", at.d, weights)


def newest(at: At) -> None:
    """A window's last slot."""
    (x,) = at.arguments
    at.give_call(x, "at_last_row", at.d, x)


def own_rows(at: At) -> None:
    """A chunk's rows without the tail before them."""
    x, _ = at.arguments
    at.give_call(x, "after_tail", at.d, x)


def folded(at: At) -> None:
    """Windows' rows added up by token."""
    (rows,) = at.arguments
    at.give_call(rows, "unfolded", at.d, width=at.option("width"))


def turned(at: At) -> None:
    """[x cos Ω, x sin Ω]: dx turns back, and dΩ is x times what turns back a quarter further."""
    x, angle = at.arguments
    at.give_call(x, "turned_back", at.d, angle)
    if at.wants(angle):
        axes = at.axes(angle)
        further = at.map(f"{angle}_further", axes, "a + pi/2", a=angle)
        back = at.call(f"{at.d}_further", axes, "turned_back", at.d, further)
        at.give_map(angle, "x*b", x=x, b=back)


RULES: dict[str, Callable[[At], None]] = {
    "flat": flat,
    "flat_rows": flat,
    "repeat": repeat,
    "repeat_rows": repeat_rows,
    "spread_rows": spread_rows,
    "band": band,
    "newest": newest,
    "own_rows": own_rows,
    "folded": folded,
    "turned": turned,
}
