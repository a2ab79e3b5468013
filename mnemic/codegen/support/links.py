"""Links with a scalar to be found: simplices, norms, balls, inverses without a closed form.

All act on the last two axes, each matrix by itself.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .roots import HUGE, falling_root
from .rows import TINY
from .transforms import transformed

AXES = {"all": (-2, -1), "rows": (-1,), "columns": (-2,)}

SMALL = (3, 4, 5, 6, 7, 8)
"""Powers that are products of a few factors."""

POLISHED = 2
"""Newton steps from a root, each of which makes one more derivative right."""


def constant(like: Tensor, *, value: float) -> Tensor:
    """Return a number as a tensor without axes."""
    return torch.tensor(value, dtype=like.dtype, device=like.device)


def _matrix(scalar: Tensor) -> Tensor:
    return scalar[..., None, None] if scalar.ndim else scalar


def simplex(exponent: Tensor, scale: Tensor, *, over: str) -> Tensor:
    """Compute scale · softmax(exponent) over the matrix, its rows or its columns."""
    if transformed():
        return _softmax(exponent, scale, AXES[over])
    found: Tensor = _Simplex.apply(exponent, scale, AXES[over])
    return found


def _softmax(exponent: Tensor, scale: Tensor, axes: tuple[int, ...]) -> Tensor:
    weights = torch.exp(exponent - exponent.amax(axes, keepdim=True))
    return weights * (_matrix(scale) / weights.sum(axes, keepdim=True))


class _Simplex(torch.autograd.Function):
    """w = c softmax(a): da = w (d − Σ d w / c), dc = Σ d w / c."""

    @staticmethod
    def forward(ctx: Any, exponent: Tensor, scale: Tensor, axes: tuple[int, ...]) -> Tensor:
        found = _softmax(exponent, scale, axes)
        ctx.save_for_backward(found, scale)
        ctx.axes = axes
        return found

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        found, scale = ctx.saved_tensors
        inner = _dotted(grads[0], found, ctx.axes) / _matrix(scale)
        d_scale = inner.sum((-2, -1)).sum_to_size(scale.shape) if ctx.needs_input_grad[1] else None
        return found * (grads[0] - inner), d_scale, None


def _dotted(x: Tensor, y: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Add up x y over the axes, which stay with length one."""
    if axes == AXES["all"]:
        return x.flatten(-2)[..., None, :] @ y.flatten(-2)[..., None]
    return (x * y).sum(axes, keepdim=True)


def entry_norm(x: Tensor, *, power: float) -> Tensor:
    """Compute ‖A‖_p over the entries of each matrix: [..., V, K] → [...], at least ``TINY``."""
    if transformed():
        largest = x.detach().abs().amax((-2, -1)).clamp_min(TINY)
        unit = x / largest[..., None, None]
        size: Tensor = largest * torch.linalg.vector_norm(unit, ord=power, dim=(-2, -1))
        return size.clamp_min(TINY)
    found: Tensor = _Norm.apply(x, power)
    return found


class _Norm(torch.autograd.Function):
    """ν = ‖x‖_p: dx = d sign(x) (|x|/ν)^{p−1}; none where ν is ``TINY``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, power: float) -> Tensor:
        unit = x.abs()
        largest = unit.amax((-2, -1)).clamp_min(TINY)
        unit.div_(largest[..., None, None])
        if power in SMALL:
            shown = _raised(unit, int(power)).sum((-2, -1)) ** (1 / power)
        else:
            shown = torch.linalg.vector_norm(unit, ord=power, dim=(-2, -1))
        size = (largest * shown).clamp_min(TINY)
        ctx.save_for_backward(x, size)
        ctx.power = power
        return size

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        x, size = ctx.saved_tensors
        share = torch.where(size > TINY, grads[0], 0.0)[..., None, None]
        unit = x / size[..., None, None]
        if ctx.power == 2:
            return unit * share, None
        if torch.is_grad_enabled():  # to be differentiated once more
            return unit.sign() * unit.abs().pow(ctx.power - 1) * share, None
        if ctx.power in SMALL:
            steep = _raised(unit.abs(), int(ctx.power) - 2)
            return steep.mul_(unit).mul_(share), None
        return unit.abs().pow_(ctx.power - 1).mul_(unit.sign_()).mul_(share), None


def _raised(x: Tensor, power: int) -> Tensor:
    """Raise x to a whole power, in place, by products: a tenth of the time of ``pow``."""
    if power == 1:
        return x
    if power % 2:
        return _raised(x.clone(), power - 1).mul_(x)
    return _raised(x, power // 2).square_()


def ball(x: Tensor, radius: Tensor) -> Tensor:
    """Return the projection of W on ‖W‖_F ≤ radius."""
    norm = torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True).clamp_min(TINY)
    return x * torch.clamp_max(_matrix(radius) / norm, 1.0)


def inverse_link(
    dual: Tensor, *coefficients: Tensor,
    slope: Callable[..., Tensor], steep: Callable[..., Tensor], domain: tuple[float, float],
) -> Tensor:  # fmt: skip
    """Return the root w of slope(w) = a entry by entry, slope increasing on ``domain``, ``steep``
    its derivative.

    Bracketed on a stretched line; Newton's steps carry the gradients, of second order too. Where
    the slope jumps over a at w = 0, as of |w|, that is the root: halving would take a hundred steps
    to come as near as numbers are, and a thousand in float64.
    """
    rest = [_matrix(x) for x in coefficients]
    low, high = domain
    with torch.no_grad():

        def short(unit: Tensor) -> Tensor:
            return dual - slope(_stretch(unit, low, high), *rest)

        least = torch.full_like(dual, torch.finfo(dual.dtype).tiny)
        before, behind = short(-least), short(least)
        ones = torch.ones_like(before)
        at_middle = (before >= 0) & (behind <= 0)
        ends = torch.where(at_middle, 0.0, ones)
        unit = falling_root(short, -ends, ends, f_low=HUGE * ones, f_high=-HUGE * ones)
        w = _stretch(unit, low, high)
        eps = torch.finfo(w.dtype).eps
        jumps = at_middle & (before - behind > 8 * eps * (1 + dual.abs()))
        steepness = steep(w, *rest).clamp_min(TINY)
        left = (slope(w, *rest) - dual).abs()
        near = ~jumps & (left <= eps**0.5 * (1 + dual.abs()))
        middle = _stretch(torch.zeros_like(w), low, high)
    for _ in range(POLISHED):
        step = (slope(torch.where(near, w, middle), *rest) - dual) / steepness
        w = w - torch.where(near, step, 0.0)  # a kink stays where it is
    return w


def _stretch(unit: Tensor, low: float, high: float) -> Tensor:
    """Map (−1, 1) onto the domain, fine near its ends and never on them."""
    line = unit / (1 - unit.abs())
    if high == float("inf") and low == float("-inf"):
        return line
    ends = torch.finfo(unit.dtype)
    if high == float("inf"):
        return low + torch.exp(line.clamp(math.log(ends.tiny), math.log(ends.max) - 1))
    edge = -math.log(ends.eps)
    return low + (high - low) * torch.sigmoid(line.clamp(-edge, edge))
