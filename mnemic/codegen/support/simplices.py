"""Links on a simplex: W = factor ∘ g(A − ζ) with ζ such that the entries sum to a scale.

ζ itself is ill-conditioned where g has a pole: an entry that takes nearly all lies so near to it
that A − ζ keeps no digit of how near. So the root that is searched for is x, what g is at the
highest entry of A. Its distance to the pole is H − s(x), s the inverse of g, and that of every
other entry is larger by how far it lies below the highest one. x lies between the scale over the
sum of the factors and the scale over one of them, whatever A is.

All act on the last two axes; ``top`` and ``root`` have the axes that the sums leave.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .roots import falling_root
from .search import searched

FLOOR = 1e-30
"""The least factor, as a share of the scale: what less would do is no number of float32."""

FLAT = 1e-20
"""The least x s′(x): at less, an entry moves by more than its neighbours can follow."""

ROUNDS = 200
"""Evaluations of a sum."""

SMOOTH = 12
"""Evaluations before the bracket is halved: most roots of smooth sums are found in six to ten."""

LEFT = 0.05
"""What may be left of a logarithm at a root whose bracket is as narrow as numbers are: an entry at
which f″ is zero moves by the cube root of a rounding. The entries are scaled by what is left."""

CENTRED = 3
"""Means that are taken out: each leaves a rounding of what the one before has left."""

Function = Callable[..., Tensor]


def highest(dual: Tensor) -> Tensor:
    """Return max A_vk, which no gradient goes through: [..., V, K] → [...]."""
    return dual.detach().amax((-2, -1))


def highest_of_rows(dual: Tensor) -> Tensor:
    """Return max A_vk of each row, without a gradient: [..., V, K] → [..., V]."""
    return dual.detach().amax(-1)


def highest_of_columns(dual: Tensor) -> Tensor:
    """Return max A_vk of each column, without a gradient: [..., V, K] → [..., K]."""
    return dual.detach().amax(-2)


def simplex_root(
    dual: Tensor, scale: Tensor, top: Tensor, *extra: Tensor,
    entry: Function, distance: Function, end: float = torch.inf,
) -> Tensor:  # fmt: skip
    """Find x in (0, end) with Σ factor ∘ min(g(H − s(x) + top − A), x) = scale, g by distances.

    ``extra`` may begin with the factor (a tensor of the dual's shape); what follows are
    coefficients of g and s. No number where no x has that sum.
    """
    return _root(dual, scale, top[..., None, None], extra, (entry, distance), end, (-2, -1))[
        ..., 0, 0
    ]


def simplex_root_of_rows(
    dual: Tensor, scale: Tensor, top: Tensor, *extra: Tensor,
    entry: Function, distance: Function, end: float = torch.inf,
) -> Tensor:  # fmt: skip
    """Find the root of ``simplex_root`` for each row by itself: [..., V, K] → [..., V]."""
    return _root(dual, scale, top[..., None], extra, (entry, distance), end, (-1,))[..., 0]


def simplex_root_of_columns(
    dual: Tensor, scale: Tensor, top: Tensor, *extra: Tensor,
    entry: Function, distance: Function, end: float = torch.inf,
) -> Tensor:  # fmt: skip
    """Find the root of ``simplex_root`` for each column by itself: [..., V, K] → [..., K]."""
    return _root(dual, scale, top[..., None, :], extra, (entry, distance), end, (-2,))[..., 0, :]


@torch.no_grad()
def _root(
    dual: Tensor, scale: Tensor, top: Tensor, extra: tuple[Tensor, ...],
    functions: tuple[Function, Function], end: float, axes: tuple[int, ...],
) -> Tensor:  # fmt: skip
    """Find the root in log x of log Σ entries − log scale, each group of ``axes`` by itself."""
    entry, distance = functions
    dual, scale, top = dual.detach(), scale.detach(), top.detach()  # a loop of a graph asks for it
    factor, rest = _factor(dual, tuple(x.detach() for x in extra))
    gap, target = top - dual, _matrix(scale)

    def left(x: Tensor) -> Tensor:
        reached = torch.minimum(entry(distance(x, *rest) + gap, *rest), x)
        return torch.log((factor * reached).sum(axes, keepdim=True) / target)

    return rising_root(left, torch.full_like(top, min(1.0, end / 2)), end)


def rising_root(
    function: Callable[[Tensor], Tensor], start: Tensor, end: float = torch.inf
) -> Tensor:
    """Find x in (0, end) with f(x) = 0, f rising in log x about as that does; else no number.

    The bracket is all positive numbers until both ends are known. Then steps are secants in log x,
    in which an end that stays counts for less (Anderson and Björck, 1973), and after `SMOOTH`
    evaluations, which suffice where f is smooth, every third step halves the bracket. A root that
    is found stays as it is, whatever its neighbours still do; one is found where nothing is left of
    f, or nothing of the bracket, and f nearly zero.
    """
    ends = torch.finfo(start.dtype)
    eps, most = ends.eps, min(ends.max / 4, end * (1 - ends.eps))
    x, low, high = start, torch.zeros_like(start), torch.full_like(start, torch.inf)
    f_low, f_high = -torch.ones_like(start), torch.full_like(start, 2.0)  # until they are known
    width, moving = torch.ones_like(start), torch.ones_like(start, dtype=torch.bool)

    def step(
        count: Any, x: Tensor, low: Tensor, high: Tensor, f_low: Tensor, f_high: Tensor,
        width: Tensor, before: Tensor, moving: Tensor,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        f = function(x)
        above, below = moving & (f > 0), moving & (f < 0)
        less = _less(f, before)
        low, f_low = torch.where(below, x, low), torch.where(below, f, f_low * less)
        high, f_high = torch.where(above, x, high), torch.where(above, f, f_high * less)
        known = (low > 0) & (high < torch.inf)
        narrow = known & (high - low <= 2 * eps * high)
        moving = moving & (f.abs() > 2 * eps) & ~narrow & ~f.isnan()
        outer = x * torch.exp(torch.where(f > 0, -width, width))
        inner = _between(low, high, f_low, f_high, secant=(count < SMOOTH) | (count % 3 != 2))
        following = torch.where(known, inner, outer.clamp(4 * ends.tiny, most))
        x = torch.where(moving, following, x)
        return x, low, high, f_low, f_high, torch.where(known, width, 4 * width), f, moving

    none = torch.full_like(start, torch.nan)  # no two alike: graphs would make them one in memory
    first = (x, low, high, f_low, f_high, width, none, moving)
    x, *_, f, moving = searched(step, lambda *carried: carried[-1], first, most=ROUNDS)
    settled = ~moving & (f.abs() <= LEFT)
    return torch.where(settled, x, torch.nan)


def _less(f: Tensor, before: Tensor) -> Tensor:
    """Return what an end counts for after an evaluation at whose side there was one before it."""
    share = f / before
    return torch.where(share > 0, torch.where(share < 1, (1 - share).clamp_min(0.1), 0.5), 1.0)


def _between(low: Tensor, high: Tensor, f_low: Tensor, f_high: Tensor, *, secant: Any) -> Tensor:
    """Return the zero of a ``secant`` in log x between low and high, or else the middle."""
    length = torch.log(high / low)
    least = (2 * torch.finfo(low.dtype).eps / length).clamp_max(0.5)
    share = f_low / (f_low - f_high)
    share = torch.where(share.isfinite() & secant, share, 0.5)
    return low * torch.exp(torch.minimum(torch.maximum(share, least), 1 - least) * length)


def simplex_entries(
    dual: Tensor, scale: Tensor, top: Tensor, root: Tensor, *extra: Tensor, entry: Function,
    distance: Function, flow: Function, partials: Function | None = None,
) -> Tensor:  # fmt: skip
    """Compute W = factor ∘ min(g(H − s(x) + top − A), x), x the root; differentiable twice.

    With P = W/(x s′(x)) at every entry's own x, the gradient d of W gives A: P (d − d̄),
    d̄ = Σ P d / Σ P, the factor x (d − d̄), the scale d̄, and a coefficient κ −Σ ∂s/∂κ P (d − d̄).
    ``flow`` is x s′(x), ``partials`` the ∂s/∂κ.
    """
    places = top[..., None, None], root[..., None, None]
    return _entries(dual, scale, places, extra, (entry, distance, flow), partials, (-2, -1))


def simplex_entries_of_rows(
    dual: Tensor, scale: Tensor, top: Tensor, root: Tensor, *extra: Tensor, entry: Function,
    distance: Function, flow: Function, partials: Function | None = None,
) -> Tensor:  # fmt: skip
    """Compute the W of ``simplex_entries`` for each row by itself, with a root a row."""
    places = top[..., None], root[..., None]
    return _entries(dual, scale, places, extra, (entry, distance, flow), partials, (-1,))


def simplex_entries_of_columns(
    dual: Tensor, scale: Tensor, top: Tensor, root: Tensor, *extra: Tensor, entry: Function,
    distance: Function, flow: Function, partials: Function | None = None,
) -> Tensor:  # fmt: skip
    """Compute the W of ``simplex_entries`` for each column by itself, with a root a column."""
    places = top[..., None, :], root[..., None, :]
    return _entries(dual, scale, places, extra, (entry, distance, flow), partials, (-2,))


def _entries(
    dual: Tensor, scale: Tensor, places: tuple[Tensor, Tensor], extra: tuple[Tensor, ...],
    functions: tuple[Function, ...], partials: Function | None, axes: tuple[int, ...],
) -> Tensor:  # fmt: skip
    entry, distance, flow = functions
    factor, rest = _factor(dual, extra)
    target = _matrix(scale)
    with torch.no_grad():
        top, root = places
        reached = torch.minimum(entry(distance(root, *rest) + (top - dual), *rest), root)
        reached = reached * (target / (factor * reached).sum(axes, keepdim=True))
    kind = _Entries if torch.compiler.is_compiling() else _MovingEntries
    found: Tensor = kind.apply(axes, flow, partials, reached, dual, target, factor, *rest)
    return found


class _Entries(torch.autograd.Function):
    """factor ∘ x with the gradients of a simplex; x at every entry is given."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        axes: tuple[int, ...], flow: Function, partials: Function | None, reached: Tensor,
        dual: Tensor, scale: Tensor, factor: Tensor, *rest: Tensor,
    ) -> Tensor:  # fmt: skip
        """Return W = factor ∘ reached."""
        return factor * reached

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep W and what moves it, for its derivatives."""
        ctx.axes, ctx.flow, ctx.partials, reached, _, scale, factor, *rest = inputs
        ctx.save_for_backward(output, reached, scale, factor, *rest)

    @staticmethod
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the implicit equation."""
        memory, reached, scale, factor, *rest = ctx.saved_tensors
        x, moved, whole = _moved(ctx, memory, reached, factor, rest)
        mean = torch.zeros_like(whole)
        for _ in range(CENTRED):
            part = (moved * d).sum(ctx.axes, keepdim=True) / whole
            mean, d = mean + part, d - part
        d_dual = moved * d
        parts = ctx.partials(x, *rest) if ctx.partials else ()
        d_rest = [-_like(part * d_dual, c) for part, c in zip(parts, rest, strict=True)]
        d_scale = _like(mean, scale)
        return None, None, None, None, d_dual, d_scale, _like(x * d, factor), *d_rest


class _MovingEntries(_Entries):
    """`_Entries` with forward derivatives, which torch.compile (torch 2.13) does not trace."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep what moves W for both modes."""
        _Entries.setup_context(ctx, inputs, output)
        _, _, _, reached, _, scale, factor, *rest = inputs
        ctx.save_for_forward(output, reached, scale, factor, *rest)

    @staticmethod
    def jvp(ctx: Any, *moves: Tensor | None) -> Tensor:
        """Return how W moves when its arguments do: the transpose of the gradient."""
        memory, reached, _, factor, *rest = ctx.saved_tensors
        d_dual, d_scale, d_factor, *d_rest = moves[4:]
        x, moved, whole = _moved(ctx, memory, reached, factor, rest)
        y = torch.zeros_like(memory)
        if d_dual is not None:
            y = y + moved * d_dual
        if d_factor is not None:
            y = y + x * d_factor
        parts = ctx.partials(x, *rest) if ctx.partials else ()
        for part, d in zip(parts, d_rest, strict=True):
            y = y if d is None else y - part * moved * d
        total = -y.sum(ctx.axes, keepdim=True) + (0.0 if d_scale is None else d_scale)
        return y + moved / whole * total


def _moved(
    ctx: Any, memory: Tensor, reached: Tensor, factor: Tensor, rest: list[Tensor]
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return every entry's own x, P = W/(x s′(x)), and Σ P."""
    alive = factor > 0
    x = torch.where(alive, memory / torch.where(alive, factor, 1.0), reached).clamp_min(FLOOR)
    moved = torch.where(memory > 0, memory / ctx.flow(x, *rest).clamp_min(FLAT), 0.0)
    return x, moved, moved.sum(ctx.axes, keepdim=True).clamp_min(FLOOR)


def _like(gradient: Tensor, of: Tensor) -> Tensor:
    """Reduce a gradient, by sums, to the shape of what it is of."""
    return gradient.sum_to_size(of.shape)


def falling_entry(
    u: Tensor, *rest: Tensor, distance: Function, flow: Function, end: float = torch.inf
) -> Tensor:
    """Find w in (0, end) with H − s(w) = u, entry by entry, for an s whose inverse is not known."""
    ends = torch.finfo(u.dtype)
    ones = torch.ones_like(u)

    def place(t: Tensor) -> Tensor:
        return torch.exp(t) if end == torch.inf else end * torch.sigmoid(t)

    def short(t: Tensor) -> Tensor:
        return distance(place(t), *rest) - u

    low, high = (math.log(z) * ones for z in (ends.tiny, ends.max / 4))
    w = place(falling_root(short, low, high, f_low=ends.max * ones, f_high=-ends.max * ones))
    step = (distance(w, *rest) - u) / flow(w, *rest)
    w = w * torch.where(step.abs() <= ends.eps**0.5, 1 + step, 1.0)
    return torch.where(w <= 4 * ends.tiny, 0.0, w)


def _factor(dual: Tensor, extra: tuple[Tensor, ...]) -> tuple[Tensor, list[Tensor]]:
    first = bool(extra) and extra[0].shape[-2:] == dual.shape[-2:] and extra[0].ndim == dual.ndim
    rest = extra[1:] if first else extra
    return (extra[0] if first else torch.ones_like(dual)), [_matrix(x) for x in rest]


def _matrix(scalar: Tensor) -> Tensor:
    return scalar[..., None, None] if scalar.ndim else scalar
