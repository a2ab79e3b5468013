"""Gradients, minimisers and roots that a stated problem names, in float64.

They use only values of the expressions: a gradient is found by automatic differentiation, a
minimiser by BFGS and Newton's method or, where the function has kinks, by bisection along each
coordinate, a root by Brent's method.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from mnemic.compiler.published import evaluate
from mnemic.dsl.expressions import Apply, Name, Node

if TYPE_CHECKING:
    from torch import Tensor

POLISHED, SWEEPS = 4, 60
"""Newton steps after BFGS, and sweeps over the coordinates where there are kinks."""

REACH: Final = (1e-6, 1e-3, 0.1, 1.0, 10.0, 100.0)
"""How far from zero, on either side, a root is looked for."""


def value(tree: Node, environment: Mapping[str, Any]) -> Tensor:
    """Return a gradient, a minimiser or a root.

    Raises ValueError where the second argument is no name, and where nothing is found.
    """
    match tree:
        case Apply("gradient", (body, Name(name))):
            return gradient(body, name, environment)
        case Apply("argmin", (body, Name(name))):
            return minimiser(_function(body, name, environment), _read(name, environment))
        case Apply("argmin", (body, Name(name), size)):
            function = _function(body, name, environment)
            start = _read(name, environment)
            return on_simplex(function, start, evaluate(size, environment))
        case Apply("root", (body, Name(name))):
            return root(_function(body, name, environment))
        case Apply("expect", (body, Name(name))):
            return expectation(body, name, environment)
    raise ValueError("gradient, argmin, root and expect take a name as their second argument")


def _read(name: str, environment: Mapping[str, Any]) -> Tensor:
    return evaluate(Name(name), environment)


def _function(body: Node, name: str, environment: Mapping[str, Any]) -> Callable[[Tensor], Tensor]:
    return lambda x: evaluate(body, {**environment, name: x}).sum()


def gradient(body: Node, name: str, environment: Mapping[str, Any]) -> Tensor:
    """Return the derivative of a number in every entry of ``name``, by autograd."""
    import torch

    at = _read(name, environment).detach().clone().requires_grad_()
    with torch.enable_grad():
        (found,) = torch.autograd.grad(_function(body, name, environment)(at), at)
    return found


def expectation(body: Node, name: str, environment: Mapping[str, Any]) -> Tensor:
    """Return the mean of an expression of numbers over a standard normal one, by quadrature.

    The trapezoid rule on steps of 1/1000 from -14 to 14, to 1e-10 where the slope has no jump.
    """
    import math

    import torch

    grid = torch.arange(-14_000, 14_001, dtype=torch.float64) / 1000
    density = torch.exp(-(grid**2) / 2) / math.sqrt(2 * math.pi)
    return (evaluate(body, {**environment, name: grid}) * density).sum() / 1000


def minimiser(function: Callable[[Tensor], Tensor], start: Tensor) -> Tensor:
    """Return where a convex function is least: to 1e-10 where it is smooth, 1e-7 elsewhere."""
    found = _smooth(function, start)
    return found if found is not None else _by_coordinates(function, start)


def on_simplex(function: Callable[[Tensor], Tensor], start: Tensor, size: Tensor) -> Tensor:
    """Return the least point with entries at least 0 that sum to ``size``, by SLSQP from inside."""
    import torch
    from scipy.optimize import minimize

    def both(flat: Any) -> tuple[float, Any]:
        f, slope = _slope(function, torch.tensor(flat, dtype=torch.float64).reshape(start.shape))
        return float(f), slope.flatten().numpy()

    count, total = start.numel(), float(size)
    found = minimize(
        both, [total / count] * count, jac=True, method="SLSQP", bounds=[(1e-12, None)] * count,
        constraints={"type": "eq", "fun": lambda x: x.sum() - total},
        options={"ftol": 1e-16, "maxiter": 1000},
    )  # fmt: skip
    return torch.tensor(found.x, dtype=torch.float64).reshape(start.shape)


def root(function: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the number nearest to zero at which a function of one number changes its sign."""
    import torch
    from scipy.optimize import brentq

    def at(z: float) -> float:
        return float(function(torch.tensor(z, dtype=torch.float64)))

    for reach in REACH:
        grid = [reach * i / 50 for i in range(-50, 51)]
        values = [at(z) for z in grid]
        pieces = zip(grid, grid[1:], values, values[1:], strict=False)
        for a, b, f, g in sorted(pieces, key=lambda piece: abs(piece[0] + piece[1])):
            if f * g > 0 or not abs(f) + abs(g) < 1e12:
                continue
            found = float(brentq(at, a, b, xtol=1e-15))
            if abs(at(found)) < 1e-9:  # and no pole
                return torch.tensor(found, dtype=torch.float64)
    raise ValueError("no root was found between -100 and 100")


def _smooth(function: Callable[[Tensor], Tensor], start: Tensor) -> Tensor | None:
    """Return the point that BFGS and then Newton's method reach; None where its slope is not 0."""
    import torch
    from scipy.optimize import minimize

    hessian: Callable[..., Tensor] = torch.autograd.functional.hessian

    def both(flat: Any) -> tuple[float, Any]:
        f, slope = _slope(function, torch.tensor(flat, dtype=torch.float64).reshape(start.shape))
        if not bool(torch.isfinite(f)):
            return 1e12, slope.nan_to_num().flatten().numpy()
        return float(f), slope.flatten().numpy()

    near = minimize(both, start.flatten().numpy(), jac=True, method="BFGS",
                    options={"gtol": 1e-9, "maxiter": 500})  # fmt: skip
    at = torch.tensor(near.x, dtype=torch.float64)
    for _ in range(POLISHED):
        slope = _slope(function, at.reshape(start.shape))[1].flatten()
        with torch.enable_grad():
            bend = hessian(lambda x: function(x.reshape(start.shape)), at)
        if not bool(torch.isfinite(bend).all()):
            break
        closer = at - torch.linalg.lstsq(bend, slope[:, None]).solution[:, 0]
        if not _slope(function, closer.reshape(start.shape))[1].abs().max() < slope.abs().max():
            break
        at = closer
    found = at.reshape(start.shape)
    return found if float(_slope(function, found)[1].abs().max()) < 1e-8 else None


def _slope(function: Callable[[Tensor], Tensor], at: Tensor) -> tuple[Tensor, Tensor]:
    import torch

    at = at.detach().clone().requires_grad_()
    with torch.enable_grad():
        f = function(at)
        (slope,) = torch.autograd.grad(f, at)
    return f.detach(), slope


def _by_coordinates(function: Callable[[Tensor], Tensor], start: Tensor) -> Tensor:
    """Return where no coordinate alone lowers the function: least where its kinks are separable.

    Along one coordinate the slope of a convex function only grows, so bisection, of all
    coordinates at once, finds where it turns. Raises ValueError where that does not settle.
    """
    at = start.detach().clone()
    for _ in range(SWEEPS):
        before, at = at, _turns(function, at)
        if float((at - before).abs().max()) < 1e-10 and _least(function, at):
            return at
    raise ValueError("no minimiser was found")


def _least(function: Callable[[Tensor], Tensor], at: Tensor) -> bool:
    """Return whether no small move, along a coordinate or across, lowers a function."""
    import torch

    rng = torch.Generator().manual_seed(0)
    moves = torch.cat([
        torch.eye(at.numel(), dtype=torch.float64),
        torch.randn(2 * at.numel(), at.numel(), generator=rng, dtype=torch.float64),
    ]).reshape(-1, *at.shape)  # fmt: skip
    here = float(function(at))
    return all(float(function(at + s * 1e-3 * m)) >= here - 1e-12 for m in moves for s in (1, -1))


def _turns(function: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    """Return for each coordinate where the slope along it changes its sign, others at ``at``."""
    import torch

    def slope(trial: Tensor) -> Tensor:
        return _slope(function, trial)[1]

    low, high = at - 64.0, at + 64.0
    for _ in range(56):
        middle = (low + high) / 2
        rising = slope(middle) < 0
        low, high = torch.where(rising, middle, low), torch.where(rising, high, middle)
    tiny = torch.full_like(at, 1e-14)
    kink = (slope(-tiny) < 0) & (slope(tiny) > 0)
    return torch.where(kink, torch.zeros_like(at), (low + high) / 2)
