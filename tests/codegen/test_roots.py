"""Bracketed roots: exact to rounding, in few evaluations, past poles and jumps."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from mnemic.codegen.support import ops
from mnemic.codegen.support.roots import falling_root

FUNCTIONS = {
    "line": (lambda x: 3 - 2 * x, 1.5),
    "cubic": (lambda x: 8 - x**3, 2.0),
    "steep": (lambda x: 1 - torch.exp(30 * (x - 1)), 1.0),
    "flat": (lambda x: -(x**3), 0.0),
    "kink": (lambda x: torch.where(x < 1, 5 * (1 - x), 0.01 * (1 - x)), 1.0),
    "far": (lambda x: 1 / x - 1e-3, 1e3),
    "pole": (lambda x: torch.where(x > 0.25, 1 / (x - 0.25) - 4, torch.nan), 0.5),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_roots(name: str, dtype: torch.dtype) -> None:
    function, root = FUNCTIONS[name]
    calls = []

    def counted(x: Tensor) -> Tensor:
        calls.append(x)
        return function(x)

    low = torch.tensor([-4.0, -1.0, -1e-3], dtype=dtype)
    low = low.clamp_min(1e-3) if name == "far" else low
    high = torch.tensor([2e3, 5e3, 1e5], dtype=dtype) if name == "far" else 3 - low
    found = falling_root(counted, low, high)
    near = 1e-7 if name == "flat" else 8 * torch.finfo(dtype).eps * max(abs(root), 1)
    assert bool(((found - root).abs() <= near).all())
    assert len(calls) < (210 if name == "flat" else 90)


def test_a_jump_is_found() -> None:
    """Where the function jumps over zero the place of the jump comes out."""
    found = falling_root(
        lambda x: torch.where(x < 0.3, 1.0, -2.0).to(x),
        torch.zeros(2).double(),
        torch.ones(2).double(),
    )
    torch.testing.assert_close(found, torch.full((2,), 0.3).double())


def test_an_end_that_rounding_puts_on_the_wrong_side_is_the_root() -> None:
    low, high = torch.zeros(2).double(), torch.ones(2).double()
    found = falling_root(lambda x: 1 + 1e-16 - x, low, high, f_high=torch.tensor([1e-16, 0.0]))
    torch.testing.assert_close(found, high)
    found = falling_root(lambda x: -1e-16 - x, low, high, f_low=torch.tensor([-1e-16, 0.0]))
    torch.testing.assert_close(found, low, atol=1e-15, rtol=0)


def test_ends_may_be_given() -> None:
    ones = torch.ones(3, dtype=torch.float64)
    found = falling_root(
        lambda x: torch.tensor([0.5, 0.0, -0.9]) - torch.atanh(x).tanh(),
        -ones, ones, f_low=1e30 * ones, f_high=-1e30 * ones,
    )  # fmt: skip
    torch.testing.assert_close(found, torch.tensor([0.5, 0.0, -0.9]).double(), atol=1e-7, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_no_root_depends_on_the_others(dtype: torch.dtype) -> None:
    """Easy roots beside hard ones are the same numbers as alone."""
    shift = torch.logspace(-3, 3, 60, dtype=dtype)

    def left(x: Tensor, at: Tensor) -> Tensor:
        return torch.tanh(at - x) + 0.01 * (at - x) ** 3

    low, high = torch.full_like(shift, -1.0), torch.full_like(shift, 5e3)
    whole = falling_root(lambda x: left(x, shift), low, high)
    for i in range(len(shift)):
        one = slice(i, i + 1)
        alone = falling_root(lambda x, at=shift[one]: left(x, at), low[one], high[one])
        assert torch.equal(alone, whole[one])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_jump_of_the_slope_is_a_root_that_is_found_at_once(dtype: torch.dtype) -> None:
    """w + w³ + l1 sign(w) = a: zero where |a| ≤ l1, else the real root of w³ + w = a ∓ l1."""
    size, calls = 0.3, []

    def slope(w: torch.Tensor) -> torch.Tensor:
        calls.append(w)
        return w + w**3 + size * torch.sign(w)

    dual = torch.tensor([[-2.0, -0.31, -0.29, -1e-9, 0.0, 1e-12, 0.2, 0.2999, 0.3001, 5.0]])
    dual = dual.to(dtype).requires_grad_()
    found = ops.inverse_link(
        dual, slope=slope, steep=lambda w: 1 + 3 * w**2, domain=(-math.inf, math.inf)
    )
    assert len(calls) < 60  # halvings to the smallest number are more than a hundred
    (moved,) = torch.autograd.grad(found.sum(), dual)
    for a, w, by in zip(*(x.flatten().tolist() for x in (dual, found, moved)), strict=True):
        beyond = max(abs(a) - size, 0.0)
        roots = np.roots([1.0, 0.0, 1.0, -beyond])
        exact = math.copysign(float(roots[np.abs(roots.imag) < 1e-9].real[0]), a)
        assert w == pytest.approx(exact, abs=20 * torch.finfo(dtype).eps)
        assert by == pytest.approx(1 / (1 + 3 * exact**2) if beyond else 0.0, rel=1e-4)
