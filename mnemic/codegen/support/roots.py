"""Roots of falling functions, entry by entry, by Chandrupatla's method.

T. R. Chandrupatla (1997), A new hybrid quadratic/bisection algorithm for finding the zero of a
nonlinear function without using derivatives. Never slower than bisection by more than a factor of
two, and about ten evaluations for a smooth function.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .search import searched

HUGE = 1e30
"""Stands for an infinite value, or for none at all: such a point counts as left of the root."""

MOST = 200
"""Evaluations at most."""


def falling_root(
    function: Callable[[Tensor], Tensor],
    low: Tensor,
    high: Tensor,
    *,
    f_low: Tensor | None = None,
    f_high: Tensor | None = None,
) -> Tensor:
    """Find x in [low, high] with f(x) = 0, f falling in every entry, f(low) ≥ 0 ≥ f(high).

    Values at the ends may be given where f is not to be taken there. Where f(x) is infinite or no
    number the root is taken to lie to the right. Not differentiable: one Newton step from here is.
    An entry that is done stays, so that no entry's root depends on the others.
    """
    fa = finite(function(high) if f_high is None else f_high).clamp_max(0.0)  # an end that rounding
    fb = finite(function(low) if f_low is None else f_low).clamp_min(0.0)  # puts over zero is it
    a, b = high.expand_as(fa), low.expand_as(fa)
    eps = torch.finfo(fa.dtype).eps

    def step(
        _: Any, a: Tensor, b: Tensor, fa: Tensor, fb: Tensor, t: Tensor, found: Tensor, done: Tensor
    ) -> tuple[Tensor, ...]:
        x = a + t * (b - a)
        fx = finite(function(x))
        same = torch.sign(fx) == torch.sign(fa)
        c, fc = torch.where(same, a, b), torch.where(same, fa, fb)
        b, fb = torch.where(same, b, a), torch.where(same, fb, fa)
        a, fa = x, fx
        best = torch.where(fa.abs() < fb.abs(), a, b)
        share = (2 * eps * best.abs() + torch.finfo(fa.dtype).tiny) / (b - a).abs()
        found = torch.where(done, found, best)
        done = done | (share >= 0.5) | (fa == 0)
        t = _interpolated(a, b, c, fa, fb, fc)
        t = torch.where(t.isfinite(), t, 0.5).clamp(share.clamp_max(0.5), 1 - share.clamp_max(0.5))
        return a, b, fa, fb, t, found, done

    start = (a, b, fa, fb, torch.full_like(fa, 0.5), a, torch.zeros_like(fa, dtype=torch.bool))
    *_, found, _ = searched(step, lambda *carried: ~carried[-1], start, most=MOST)
    return found


def _interpolated(a: Tensor, b: Tensor, c: Tensor, fa: Tensor, fb: Tensor, fc: Tensor) -> Tensor:
    """Return the root's place from a (0) to b (1), by an inverse parabola if safe, else a half."""
    xi, phi = (a - b) / (c - b), (fa - fb) / (fc - fb)
    safe = (phi**2 < xi) & ((1 - phi) ** 2 < 1 - xi)
    first = fa / (fb - fa) * (fc / (fb - fc))
    second = (c - a) / (b - a) * (fa / (fc - fa)) * (fb / (fc - fb))
    return torch.where(safe, first + second, 0.5)


def finite(value: Tensor) -> Tensor:
    """Return a function's value, with ``HUGE`` for +∞ or no number, and −``HUGE`` for −∞."""
    return torch.nan_to_num(value, nan=HUGE, posinf=HUGE, neginf=-HUGE)
