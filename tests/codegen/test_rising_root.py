"""The search for a simplex's root, on functions of known roots: smooth ones and hard ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from mnemic.codegen.support.simplices import ROUNDS, rising_root

SMOOTH: dict[str, Callable[[Tensor], Tensor]] = {
    "a line": lambda z: z,
    "a steeper line": lambda z: 3 * z,
    "bent": lambda z: torch.log1p(torch.expm1(z.clamp_max(60)) / 3),
    "a wave": lambda z: z + 0.1 * torch.sin(z),
}
"""By z = log x − log root; zero at zero."""

HARD: dict[str, Callable[[Tensor], Tensor]] = {
    "flat at first": lambda z: torch.where(z < 0, 1e-3 * z, 30 * z),
    "flat at last": lambda z: torch.where(z < 0, 30 * z, 1e-3 * z),
    "a kink": lambda z: z + 10 * torch.relu(z),
    "bounded": torch.tanh,
    "a jump": lambda z: torch.where(z < 0, -0.03, 0.04).to(z),
}


def found(
    curve: Callable[[Tensor], Tensor], dtype: torch.dtype, spread: float
) -> tuple[Tensor, Tensor, int]:
    """Roots as they were found and as they are, and how many evaluations all took together."""
    generator = torch.Generator().manual_seed(0)
    root = torch.exp(spread * torch.randn(64, dtype=dtype, generator=generator))
    turns = 0

    def function(x: Tensor) -> Tensor:
        nonlocal turns
        turns += 1
        return curve(torch.log(x / root))

    return rising_root(function, torch.ones_like(root)), root, turns


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", [*SMOOTH, *HARD])
def test_the_root_is_found(name: str, dtype: torch.dtype) -> None:
    curve = {**SMOOTH, **HARD}[name]
    x, root, turns = found(curve, dtype, spread=5.0)
    eps = torch.finfo(dtype).eps
    slope = 1e-3 if "flat" in name else 1.0  # a rounding of f moves the root by so much more
    torch.testing.assert_close(x, root, rtol=8 * eps / slope, atol=0)
    assert turns < ROUNDS


def test_smooth_ones_take_few_evaluations() -> None:
    """32 for these four; 49 where every third step halves the bracket from the first one on."""
    turns = [found(curve, torch.float32, spread=2.0)[-1] for curve in SMOOTH.values()]
    assert sum(turns) <= 36


def test_a_jump_that_misses_zero_by_much_has_no_root() -> None:
    x, *_ = found(lambda z: torch.where(z < 0, -0.3, 0.4).to(z), torch.float32, spread=5.0)
    assert x.isnan().all()
