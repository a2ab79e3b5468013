"""Links from the dual to the memory, evaluated plainly; roots by bisection.

Every root ends with one Newton step whose gradient is that of the implicit function.
"""

from collections.abc import Callable
from typing import Any, Final

import sympy as sp
import torch
from torch import Tensor

from mnemic.compiler import symbols as sym
from mnemic.compiler.distances import NEAR, Distances
from mnemic.compiler.distances import u as place
from mnemic.compiler.oracle.evaluate import evaluate
from mnemic.compiler.retention import Link, Retained

AXES: Final = {"all": (-2, -1), "rows": (-1,), "columns": (-2,)}
"""The axes of W [..., d_v, D] that a group of a constraint spans."""

TINY: Final = 1e-30
HALVINGS: Final = 110
KINK: Final = 1e-6

Values = dict[Any, Tensor]


def apply_link(link: Link, dual: Tensor, values: Values) -> Tensor:
    """Compute W = link(A), each matrix by itself."""
    values = {**values, sym.a: dual}
    if link.normaliser == "softmax":
        axes = AXES[link.over]
        exponent = evaluate(link.expr, values) + torch.zeros_like(dual)
        return evaluate(link.scale, values) * torch.exp(
            exponent - torch.logsumexp(exponent, axes, keepdim=True)
        )
    if link.normaliser == "root":
        return _with_multiplier(link, dual, values, torch.ones_like(dual))
    if link.normaliser == "norm":
        power = float(link.power)
        size = dual.abs().clamp_min(TINY).pow(power).sum((-2, -1), keepdim=True) ** (1 / power)
        return evaluate(link.expr, {**values, sym.nu: size})
    if link.normaliser == "ball":
        radius, free = evaluate(link.scale, values), evaluate(link.expr, values)
        size = (free**2).sum((-2, -1), keepdim=True).clamp_min(TINY).sqrt()
        return free * torch.minimum(torch.ones_like(size), radius / size)
    if link.expr is None:
        return inverse(link.slope, link.domain, dual, values)
    return evaluate(link.expr, values) + torch.zeros_like(dual)


def multiply(retained: Retained, memory: Tensor, step: Tensor, values: Values) -> Tensor:
    """Return W' ∘ g(S − ζ): an f-divergence."""
    if retained.link.normaliser == "root":
        return _with_multiplier(retained.link, step, values, memory)
    return memory * apply_link(retained.link, step, values)


def rest(retained: Retained, shape: torch.Size, values: Values) -> Tensor:
    """Return the memory whose dual is zero: the minimiser of the local term alone."""
    link, zero = retained.link, torch.zeros(shape, dtype=torch.float64)
    if retained.mode == "dual":
        return apply_link(link, zero, values)
    if link.normaliser in ("root", "softmax"):
        count = torch.ones_like(zero).sum(AXES[link.over], keepdim=True)
        return zero + evaluate(link.scale, values) / count
    if retained.mode == "multiplicative":
        return zero + 1
    return from_dual(retained, zero, values)


def from_dual(retained: Retained, dual: Tensor, values: Values) -> Tensor:
    """Return (∇R)⁻¹ of the local generator alone."""
    if retained.mirror == sym.w:
        return dual
    return inverse(retained.mirror, retained.link.domain, dual, values)


def inverse(slope: Any, domain: tuple[Any, Any], dual: Tensor, values: Values) -> Tensor:
    """Return the root w of slope(w) = a on a domain, entry by entry."""
    stretch = _stretch(domain)

    def excess(w: Tensor) -> Tensor:
        return evaluate(slope, {**values, sym.w: w}) - dual

    low, high = torch.full_like(dual, -700.0), torch.full_like(dual, 700.0)
    return _polish(excess, stretch(_bisect(lambda u: excess(stretch(u)), low, high)))


def _stretch(domain: tuple[Any, Any]) -> Callable[[Tensor], Tensor]:
    """Return an increasing map of the real line onto the domain, fine near its ends."""
    low, high = domain
    if high == sp.oo:
        return torch.exp if low == 0 else torch.sinh
    return lambda u: float(low) + (float(high) - float(low)) * torch.sigmoid(u)


def _bisect(excess: Callable[[Tensor], Tensor], low: Tensor, high: Tensor) -> Tensor:
    """Find the zero of an increasing function; nan counts as beyond the nearer end."""
    with torch.no_grad():
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            above = excess(middle)
            above = torch.where(above.isnan(), middle, above)
            low, high = torch.where(above < 0, middle, low), torch.where(above < 0, high, middle)
    return (low + high) / 2


def _polish(excess: Callable[[Tensor], Tensor], root: Tensor) -> Tensor:
    with torch.enable_grad():
        point = root.detach().requires_grad_()
        (steep,) = torch.autograd.grad(excess(point).sum(), point)
    left = excess(root)  # far from zero where the root is a kink, which Newton would leave
    usable = (steep.abs() > TINY) & steep.isfinite() & (left.detach().abs() < KINK)
    return root - torch.where(usable, left / torch.where(usable, steep, 1.0), 0.0)


def _with_multiplier(link: Link, dual: Tensor, values: Values, weight: Tensor) -> Tensor:
    """Compute weight ∘ g(a − ζ), ζ such that every group sums to ``scale``.

    The value of g at the largest dual is found by bisection on its logarithm. Every other entry
    follows from how much farther its dual is from the pole of g.
    """
    apart, axes, scale = link.apart, AXES[link.over], evaluate(link.scale, values)
    assert apart is not None
    if apart.pole:  # w f(w/0) is w f′(∞)
        weight = torch.maximum(weight, FLOOR * scale + torch.zeros_like(weight))
    seen = dual if apart.pole else torch.where(weight > 0, dual, -FAR)
    gap = seen.amax(axes, keepdim=True) - seen
    end = float(apart.end)

    def entries(u: Tensor) -> Tensor:
        x = end * torch.sigmoid(u) if end < torch.inf else torch.exp(u)
        distance = evaluate(apart.distance, {**values, sym.w: x}) + gap
        endless = (distance <= float(NEAR)) & apart.pole  # at the pole, where x itself is the entry
        entry = _at(apart, torch.where(endless, 1.0, distance), values)
        entry = entry + (torch.minimum(entry, x) - entry).detach()  # no tie's slope
        return weight * torch.where(endless, x, entry)

    def excess(u: Tensor) -> Tensor:
        return entries(u).sum(axes, keepdim=True) - scale

    group = torch.zeros_like(gap).sum(axes, keepdim=True)
    u = _bisect(excess, group - 80.0, group + 80.0)
    return entries(_polish(excess, u))


FLOOR: Final = 1e-30
FAR: Final = 1e30


def _at(apart: Distances, distance: Tensor, values: Values) -> Tensor:
    """Return the entry at a distance to the pole (without a pole: to a dual of zero)."""
    if apart.entry is not None:
        return evaluate(apart.entry, {**values, place: distance})
    return inverse(-apart.distance, (sp.Integer(0), apart.end), -distance, values)
