"""Links with a scalar to be found: simplices, norms, balls, inverses without a closed form.

All act on the last two axes, each matrix by itself.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from .roots import HUGE, falling_root
from .rows import TINY

AXES = {"all": (-2, -1), "rows": (-1,), "columns": (-2,)}


def constant(like: Tensor, *, value: float) -> Tensor:
    """A number as a tensor without axes."""
    return torch.tensor(value, dtype=like.dtype, device=like.device)


def _matrix(scalar: Tensor) -> Tensor:
    return scalar[..., None, None] if scalar.ndim else scalar


def simplex(exponent: Tensor, scale: Tensor, *, over: str) -> Tensor:
    """scale · softmax(exponent) over the matrix, its rows or its columns."""
    axes = AXES[over]
    weights = torch.exp(exponent - exponent.amax(axes, keepdim=True))
    return _matrix(scale) * weights / weights.sum(axes, keepdim=True)


def entry_norm(x: Tensor, *, power: float) -> Tensor:
    """‖A‖_p over the entries of each matrix, at least ``TINY``: [..., V, K] → [...]."""
    largest = x.detach().abs().amax((-2, -1)).clamp_min(TINY)
    unit = x / largest[..., None, None]
    size: Tensor = largest * torch.linalg.vector_norm(unit, ord=power, dim=(-2, -1))
    return size.clamp_min(TINY)


def ball(x: Tensor, radius: Tensor) -> Tensor:
    """The projection on ‖W‖_F ≤ radius."""
    norm = torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True).clamp_min(TINY)
    return x * torch.clamp_max(_matrix(radius) / norm, 1.0)


def simplex_root(
    dual: Tensor, scale: Tensor, *extra: Tensor, entry: Callable[..., Tensor]
) -> Tensor:
    """ζ with Σ factor ∘ g(A − ζ) = scale; bracketed, then one Newton step for gradients.

    ``extra`` may begin with the factor (a tensor of the dual's shape); what follows are
    coefficients of g. [..., V, K] → [...].
    """
    return _root(dual, scale, extra, entry, (-2, -1))[..., 0, 0]


def simplex_root_of_rows(
    dual: Tensor, scale: Tensor, *extra: Tensor, entry: Callable[..., Tensor]
) -> Tensor:
    """The same for each row by itself: [..., V, K] → [..., V]."""
    return _root(dual, scale, extra, entry, (-1,))[..., 0]


def simplex_root_of_columns(
    dual: Tensor, scale: Tensor, *extra: Tensor, entry: Callable[..., Tensor]
) -> Tensor:
    """The same for each column by itself: [..., V, K] → [..., K]."""
    return _root(dual, scale, extra, entry, (-2,))[..., 0, :]


def _root(
    dual: Tensor, scale: Tensor, extra: tuple[Tensor, ...], entry: Callable[..., Tensor],
    axes: tuple[int, ...],
) -> Tensor:  # fmt: skip
    """ζ of the sums over these axes, which stay."""
    factor, rest = _factor(dual, extra)
    target = _matrix(scale)

    def excess(zeta: Tensor) -> Tensor:
        return (factor * entry(dual - zeta, *rest)).sum(axes, keepdim=True) - target

    with torch.no_grad():
        zeta = _bracketed(excess, dual.amax(axes, keepdim=True), dual.amin(axes, keepdim=True))
    if torch.is_grad_enabled():
        slope = _slope(dual, factor, rest, entry, zeta, axes)
        zeta = zeta - excess(zeta) / slope.clamp_max(-TINY)
    return zeta


def _factor(dual: Tensor, extra: tuple[Tensor, ...]) -> tuple[Tensor, list[Tensor]]:
    first = bool(extra) and extra[0].shape[-2:] == dual.shape[-2:] and extra[0].ndim == dual.ndim
    rest = extra[1:] if first else extra
    return (extra[0] if first else torch.ones_like(dual)), [_matrix(x) for x in rest]


def _slope(
    dual: Tensor, factor: Tensor, rest: list[Tensor], entry: Callable[..., Tensor], zeta: Tensor,
    axes: tuple[int, ...],
) -> Tensor:  # fmt: skip
    """∂/∂ζ of the sum, by autograd."""
    with torch.enable_grad():
        z = zeta.expand_as(dual).detach().clone().requires_grad_()
        total = (factor.detach() * entry(dual.detach() - z, *(x.detach() for x in rest))).sum()
        (slope,) = torch.autograd.grad(total, z)
    return slope.sum(axes, keepdim=True)


def _bracketed(excess: Callable[[Tensor], Tensor], high: Tensor, low: Tensor) -> Tensor:
    """The root of a falling function, from any bracket: it is widened first.

    ``excess`` may be infinite or no number below the root (g has a pole there): that counts as +.
    """
    width = (high - low).clamp_min(1.0)
    for _ in range(80):
        short = excess(high) > 0
        if not bool(short.any()):
            break
        high = torch.where(short, high + width, high)
        width = 2 * width
    width = (high - low).clamp_min(1.0)
    for _ in range(80):
        enough = _above(excess, low, high)
        if bool(enough.all()):
            break
        low = torch.where(enough, low, low - width)
        width = 2 * width
    return falling_root(excess, low, high)


def _above(excess: Callable[[Tensor], Tensor], zeta: Tensor, high: Tensor) -> Tensor:
    value = excess(zeta)
    return (value > 0) | ~torch.isfinite(value)


def inverse_link(
    dual: Tensor, *coefficients: Tensor, slope: Callable[..., Tensor], domain: tuple[float, float]
) -> Tensor:
    """The root w of slope(w) = a entry by entry, slope increasing on ``domain``.

    Bracketed on a stretched line, then one Newton step that carries the gradients.
    """
    rest = [_matrix(x) for x in coefficients]
    low, high = domain
    with torch.no_grad():
        ones = torch.ones_like(dual)

        def short(unit: Tensor) -> Tensor:
            return dual - slope(_stretch(unit, low, high), *rest)

        unit = falling_root(short, -ones, ones, f_low=HUGE * ones, f_high=-HUGE * ones)
        w = _stretch(unit, low, high)
    with torch.enable_grad():
        point = w.detach().clone().requires_grad_()
        value = slope(point, *(x.detach() for x in rest)).sum()
        (steepness,) = torch.autograd.grad(value, point)
    left = slope(w, *rest) - dual
    near = left.detach().abs() <= torch.finfo(w.dtype).eps ** 0.5 * (1 + dual.detach().abs())
    return w - torch.where(near, left / steepness.clamp_min(TINY), 0.0)  # a kink stays where it is


def _stretch(unit: Tensor, low: float, high: float) -> Tensor:
    """(−1, 1) onto the domain, fine near its ends and never on them."""
    line = unit / (1 - unit.abs())
    if high == float("inf") and low == float("-inf"):
        return line
    ends = torch.finfo(unit.dtype)
    if high == float("inf"):
        return low + torch.exp(line.clamp(math.log(ends.tiny), math.log(ends.max) - 1))
    edge = -math.log(ends.eps)
    return low + (high - low) * torch.sigmoid(line.clamp(-edge, edge))
