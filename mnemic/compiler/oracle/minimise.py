"""Numerical minimisers of a convex sum over entries, with or without one coupling constraint.

They use only an objective's values and automatic differentiation.
"""

from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor

Entries = Callable[[Tensor], Tensor]
"""Entries of an objective: a sum over entries w of f_i(w), any leading axes."""

DOMAINS: Final = ((-torch.inf, torch.inf), (0.0, torch.inf), (-1.0, 1.0), (0.0, 1.0))
HALVINGS: Final = 54
"""Halvings of 1,400 on the line that is stretched onto a domain: to 1e-13."""
ROUNDS: Final = 7
"""Rounds of a search that parts 40 by 151 in each: to 2e-14."""
AXES: Final = {"all": (-2, -1), "rows": (-1,), "columns": (-2,)}


def domain_of(function: Entries) -> tuple[float, float]:
    """Return the widest of ``DOMAINS`` on which the function has values."""
    for low, high in DOMAINS:
        points = stretch((low, high))(torch.linspace(-4, 4, 41, dtype=torch.float64))
        if bool(function(points).isfinite().all()):
            return low, high
    raise ValueError("the objective has values on no interval")


def stretch(domain: tuple[float, float]) -> Callable[[Tensor], Tensor]:
    """Return an increasing map from the real line onto the domain."""
    low, high = domain
    if high == torch.inf:
        return torch.exp if low == 0 else torch.sinh
    return lambda u: low + (high - low) * torch.sigmoid(u)


def separable(function: Entries, shape: torch.Size, domain: tuple[float, float]) -> Tensor:
    """Return argmin over each entry, by bisection on the derivative's sign."""
    onto = stretch(domain)
    low = torch.full(shape, -700.0, dtype=torch.float64)
    high = -low
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        point = onto(middle).requires_grad_()
        (slope,) = torch.autograd.grad(function(point).sum(), point)
        slope = torch.where(slope.isnan(), middle, slope)
        low, high = torch.where(slope < 0, middle, low), torch.where(slope < 0, high, middle)
    return onto((low + high) / 2)


def on_simplex(
    function: Entries, shape: torch.Size, domain: tuple[float, float], over: str, scale: Tensor
) -> Tensor:
    """Return argmin with w ≥ 0 and entries that sum to ``scale`` in every group."""
    domain = (max(domain[0], 0.0), domain[1])
    axes = AXES[over]

    def at(zeta: Tensor) -> Tensor:
        return separable(
            lambda w: function(w) + zeta * w, (zeta + torch.zeros(shape)).shape, domain
        )

    def excess(zeta: Tensor) -> Tensor:
        return scale - at(zeta).sum(axes, keepdim=True)

    group = torch.zeros(shape, dtype=torch.float64).sum(axes, keepdim=True).shape
    return at(_search(excess, group, -20.0, 20.0))


def in_ball(
    function: Entries, shape: torch.Size, domain: tuple[float, float], radius: Tensor
) -> Tensor:
    """Return argmin with ‖W‖_F ≤ radius."""
    axes = (-2, -1)

    def at(mu: Tensor) -> Tensor:
        wide = (mu + torch.zeros(shape)).shape
        return separable(lambda w: function(w) + mu * w**2 / 2, wide, domain)

    def excess(mu: Tensor) -> Tensor:
        return radius**2 - (at(mu) ** 2).sum(axes, keepdim=True)

    free = at(torch.zeros((), dtype=torch.float64))
    group = free.sum(axes, keepdim=True).shape
    bound = at(_search(excess, group, 0.0, 20.0))
    inside = (free**2).sum(axes, keepdim=True) <= radius**2
    return torch.where(inside, free, bound)


def _search(
    excess: Callable[[Tensor], Tensor], shape: torch.Size, low: float, high: float, many: int = 150
) -> Tensor:
    """Find the zero of an increasing function of sinh(u), a grid of u at a time."""
    bottom = torch.full(shape, low, dtype=torch.float64)
    width = high - low
    steps = torch.arange(1, many + 1, dtype=torch.float64).reshape(-1, *[1] * len(shape))
    for _ in range(ROUNDS):
        grid = bottom + width * steps / (many + 1)
        below = (excess(torch.sinh(grid)) < 0).sum(0)
        bottom = bottom + width * below / (many + 1)
        width = width / (many + 1)
    return torch.sinh(bottom + width / 2)


def hessian(function: Callable[[Tensor], Tensor], point: Tensor) -> Tensor:
    """Return the second derivatives of a function of a vector."""
    at = point.detach().requires_grad_()
    (slope,) = torch.autograd.grad(function(at), at, create_graph=True)
    rows = [torch.autograd.grad(s, at, retain_graph=True)[0] for s in slope]
    return torch.stack(rows)


def newton(function: Callable[[Tensor], Tensor], start: Tensor, steps: int = 100) -> Tensor:
    """Return argmin of a convex function of a whole array: Newton steps, halved until the slope
    falls."""
    point, shape = start.detach().flatten(), start.shape

    def slope(x: Tensor) -> Tensor:
        with torch.enable_grad():
            at = x.detach().requires_grad_()
            return torch.autograd.grad(function(at.reshape(shape)), at)[0]

    for _ in range(steps):
        here = slope(point)
        curve = hessian(lambda x: function(x.reshape(shape)), point)
        step = torch.linalg.solve(curve + 1e-14 * torch.eye(len(point)), here)
        if not bool(step.isfinite().all()):
            break
        length = 1.0
        while length > 1e-9 and not float(slope(point - length * step).norm()) < float(here.norm()):
            length /= 2
        if length <= 1e-9 or float(step.abs().max()) < 1e-15:
            break
        point = point - length * step
    return point.reshape(shape)
