"""Where tokens stand: rotary positions, and padding moved behind the tokens."""

import torch
from torch import Tensor

BASE = 10_000.0
"""The longest wavelength of a rotary position, over 2π."""


def rotate(x: Tensor, position: Tensor) -> Tensor:
    """Turn channel pairs (i, i + d/2) by position · BASE^(−2i/d) (Su et al. 2021).

    x [B, T, …, d] with even d, position [B, T].
    """
    half = x.shape[-1] // 2
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    rates = BASE ** (-torch.arange(half, device=x.device, dtype=wide) / half)
    angle = position[..., None].to(wide) * rates
    angle = angle.reshape(*position.shape, *[1] * (x.ndim - 3), half)
    cos, sin = torch.cos(angle).to(x.dtype), torch.sin(angle).to(x.dtype)
    low, high = x[..., :half], x[..., half:]
    return torch.cat([low * cos - high * sin, low * sin + high * cos], -1)


def live_first(mask: Tensor) -> Tensor:
    """Return the order [B, T] that puts a row's tokens before its padding, each kept in order."""
    return torch.argsort(~mask, dim=1, stable=True)


def live_alone(order: Tensor, lengths: Tensor) -> Tensor:
    """Return an order [B, T] with copies of a row's last token in place of its padding."""
    time = torch.arange(order.shape[1], device=order.device)
    return order.gather(1, torch.minimum(time, (lengths[:, None] - 1).clamp(min=0)))


def emptied(x: Tensor, mask: Tensor | None) -> Tensor:
    """Return x [B, T, …] with zeros at padding, where a product of NaN with zero would be NaN.

    Its gradient is zero there too, and so is what padding adds to the gradients of weights.
    """
    if mask is None:
        return x
    return x.masked_fill(~mask.reshape(*mask.shape, *[1] * (x.ndim - 2)), 0.0)


def taken(x: Tensor, order: Tensor) -> Tensor:
    """Return x [B, T, …] in an order [B, T]."""
    return x.gather(1, order.reshape(*order.shape, *[1] * (x.ndim - 2)).expand_as(x))


def put_back(y: Tensor, order: Tensor, mask: Tensor) -> Tensor:
    """Return y [B, T, …] in the order that ``taken`` changed, with zeros at padding."""
    return emptied(taken(y, torch.argsort(order, dim=1)), mask)
