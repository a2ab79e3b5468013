"""Feature maps that are not elementwise. All act on the last axis."""

import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor


def features(x: Tensor, *rows: Tensor, kind: str, **options: Any) -> Tensor:
    """Compute φ(x) by the name of its map: [..., d] → [..., D]; ``rows`` are numbers a row for it.

    x may have axes between the rows and d, as a window has.
    """
    return MAPS[kind](x, *rows, **options)


def polynomial(
    x: Tensor, *weights: Tensor, degree: int, mode: str = "graded",
    a: tuple[float | None, ...] | None = None,
) -> Tensor:  # fmt: skip
    """Compute monomials of degree ≤ p, φ(x)·φ(y) = Σ a_i (x·y)^i; or the p-fold self-tensor.

    a_i ≥ 0 is a number of ``a``, or where that is None the next of the weights.
    """
    if mode == "graded":
        given, numbers = iter(weights), a or (None,) * (degree + 1)
        parts = _series(x, degree)
        return torch.cat(
            [_weighed(p, i, n, given) for i, (p, n) in enumerate(zip(parts, numbers, strict=True))],
            -1,
        )
    found = x
    for _ in range(degree - 1):
        found = (found[..., None] * x[..., None, :]).flatten(-2)
    return found


def _weighed(part: Tensor, order: int, number: float | None, given: Iterator[Tensor]) -> Tensor:
    """Scale the Taylor features of a degree i, whose kernel is sⁱ/i!, to those of a_i sⁱ."""
    if number is not None:
        return part * math.sqrt(number * math.factorial(order))
    root = torch.sqrt(_same(next(given), part) * math.factorial(order))
    return part * root.reshape(*root.shape, *[1] * (part.ndim - root.ndim))


def _same(weight: Tensor, x: Tensor) -> Tensor:
    """Cut a weight that is the same in all rows to one row where x has others (a window's tail)."""
    for axis, size in enumerate(weight.shape):
        if size != x.shape[axis]:
            weight = weight.narrow(axis, 0, 1)
    return weight


def taylor(x: Tensor, *, order: int) -> Tensor:
    """Compute exp's Taylor features up to ``order``, one a monomial, graded then lexicographic."""
    return torch.cat(_series(x, order), -1)


def _series(x: Tensor, order: int) -> list[Tensor]:
    """Compute the features of each degree: φ_i(x)·φ_i(y) = (x·y)^i / i!."""
    parts = [torch.ones_like(x[..., :1])]
    for i in range(1, order + 1):
        places, weights = _monomials(x.shape[-1], i)
        index = torch.tensor(places, device=x.device)
        scale = torch.tensor(weights, dtype=x.dtype, device=x.device)
        product = x[..., index[0]]
        for row in index[1:]:
            product = product * x[..., row]
        parts.append(product * scale)
    return parts


@cache
def _monomials(size: int, degree: int) -> tuple[list[list[int]], list[float]]:
    """Return the indices of each monomial's factors, and √(1 / Π m_j!).

    Grown factor by factor, in loops that torch's tracer follows into a scan.
    """
    found: list[tuple[list[int], int, float]] = [([], 0, 1.0)]  # how often the last one stands
    for _ in range(degree):
        longer = []
        for places, times, product in found:
            for i in range(places[-1] if places else 0, size):
                again = times + 1 if places and places[-1] == i else 1
                longer.append(([*places, i], again, product * again))
        found = longer
    columns = [[places[at] for places, _, _ in found] for at in range(degree)]
    return columns, [math.sqrt(1 / product) for _, _, product in found]


def cosine(x: Tensor, position: Tensor, *, length: int) -> Tensor:
    """Compute [relu(x) cos(πt/2M), relu(x) sin(πt/2M)]; positive where position + 1 ≤ M."""
    angle = (math.pi / (2 * length) * position)[..., None]
    angle = angle.reshape(*angle.shape[:-1], *([1] * (x.ndim - angle.ndim)), 1)
    positive = torch.relu(x)
    return torch.cat([positive * torch.cos(angle), positive * torch.sin(angle)], -1)


def dpfp(x: Tensor, *, nu: int) -> Tensor:
    """Multiply relu([x, −x]) by its rotations by 1 … ν."""
    both = torch.relu(torch.cat([x, -x], -1))
    return torch.cat([both * both.roll(j, -1) for j in range(1, nu + 1)], -1)


def softmax(x: Tensor) -> Tensor:
    """Compute softmax over the coordinates."""
    return torch.softmax(x, -1)


def random(x: Tensor, *, features: int, seed: int) -> Tensor:
    """Compute exp(ω·x − ‖x‖²/2)/√m, ω from ``seed``: orthogonal blocks with Gaussian row norms."""
    omega = projection(x.shape[-1], features, seed).to(x)
    square = x.square().sum(-1, keepdim=True) / 2
    return torch.exp(x @ omega.mT - square) / math.sqrt(features)


@cache
def projection(size: int, count: int, seed: int) -> Tensor:
    """Draw ω [m, d]: rows of Qᵀ of QR of Gaussian blocks, scaled by the norms of Gaussian rows."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.empty(0, size, dtype=torch.float64)
    while rows.shape[0] < count:
        block = torch.randn(size, size, generator=generator, dtype=torch.float64)
        rows = torch.cat([rows, torch.linalg.qr(block)[0].mT])
    norms = torch.randn(count, size, generator=generator, dtype=torch.float64).norm(dim=1)
    return rows[:count] * norms[:, None]


MAPS: dict[str, Callable[..., Tensor]] = {
    "polynomial": polynomial,
    "taylor": taylor,
    "cosine": cosine,
    "dpfp": dpfp,
    "softmax": softmax,
    "random": random,
}
