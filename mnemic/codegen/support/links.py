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

POLISHED = 2
"""Newton steps from a root, each of which makes one more derivative right."""


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


def inverse_link(
    dual: Tensor, *coefficients: Tensor,
    slope: Callable[..., Tensor], steep: Callable[..., Tensor], domain: tuple[float, float],
) -> Tensor:  # fmt: skip
    """The root w of slope(w) = a entry by entry, slope increasing on ``domain``, ``steep`` its
    derivative.

    Bracketed on a stretched line; Newton's steps carry the gradients, of second order too.
    """
    rest = [_matrix(x) for x in coefficients]
    low, high = domain
    with torch.no_grad():
        ones = torch.ones_like(dual)

        def short(unit: Tensor) -> Tensor:
            return dual - slope(_stretch(unit, low, high), *rest)

        unit = falling_root(short, -ones, ones, f_low=HUGE * ones, f_high=-HUGE * ones)
        w = _stretch(unit, low, high)
        steepness = steep(w, *rest).clamp_min(TINY)
        left = (slope(w, *rest) - dual).abs()
        near = left <= torch.finfo(w.dtype).eps ** 0.5 * (1 + dual.abs())
        middle = _stretch(torch.zeros_like(w), low, high)
    for _ in range(POLISHED):
        step = (slope(torch.where(near, w, middle), *rest) - dual) / steepness
        w = w - torch.where(near, step, 0.0)  # a kink stays where it is
    return w


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
