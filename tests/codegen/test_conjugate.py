"""Conjugate gradients of a chunk against direct solves, their gradients, and their warning."""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import mpmath
import pytest
import torch
from torch import Tensor

from mnemic import pipeline
from mnemic.codegen.support import conjugate
from mnemic.codegen.support.conjugate import ToleranceNotMet, cholesky_rows, conjugated
from mnemic.codegen.support.definite import Forgotten


def parts(rows: int = 5, size: int = 4, ridge: float = 0.3, seed: int = 0) -> tuple[Tensor, ...]:
    """q, keys, weights, H_0, ridge and reach of two chunks."""
    rng = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(2, *shape, generator=rng, dtype=torch.float64)

    root = normal(size, size)
    return (
        normal(rows, size), normal(rows, size), torch.sigmoid(normal(rows, rows)).tril(),
        root @ root.mT / size, ridge + torch.sigmoid(normal(rows, size)),
        torch.sigmoid(normal(rows)),
    )  # fmt: skip


def solution(*given: Tensor) -> Tensor:
    """Conjugate gradients with weights cut to those of earlier rows and a symmetric H_0."""
    q, key, weights, h, ridge, reach = given
    h = (h + h.mT) / 2
    return conjugated(q, key, weights.tril(), h, ridge, reach, tolerance=1e-14, iterations=50)


def test_a_direct_solve_of_every_row() -> None:
    q, key, weights, h, ridge, reach = parts(9, 6)
    found = conjugated(q, key, weights, h, ridge, reach, tolerance=1e-14, iterations=50)
    for t in range(9):
        new = torch.einsum("bs,bsi,bsj->bij", weights[:, t], key, key)
        whole = reach[:, t, None, None] * h + new + torch.diag_embed(ridge[:, t])
        expected = torch.linalg.solve(whole, q[:, t])
        torch.testing.assert_close(found[:, t], expected, rtol=1e-10, atol=1e-12)
    direct = cholesky_rows(q, key, weights, h, ridge, reach)
    torch.testing.assert_close(found, direct, rtol=1e-10, atol=1e-12)


def test_gradients_and_their_gradients() -> None:
    leaves = tuple(x.requires_grad_() for x in parts(3, 3))
    assert torch.autograd.gradcheck(solution, leaves)
    assert torch.autograd.gradgradcheck(solution, leaves)


def test_gradients_are_those_of_the_direct_solve() -> None:
    results = []
    for solve in (solution, cholesky_rows):
        leaves = [x.requires_grad_() for x in parts(7, 5)]
        loss = solve(*leaves).square().sum()
        grads = list(torch.autograd.grad(loss, leaves))
        grads[2], grads[3] = grads[2].tril(), (grads[3] + grads[3].mT) / 2
        results.append(grads)
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)


def test_an_exact_zero_of_the_right_hand_side() -> None:
    q, *rest = parts()
    found = conjugated(0 * q, *rest, tolerance=1e-12, iterations=50)
    assert torch.equal(found, torch.zeros_like(q))


def test_not_a_number_stays_one() -> None:
    q, *rest = parts()
    q[0, 2, 1] = torch.nan
    with pytest.warns(ToleranceNotMet):
        found = conjugated(q, *rest, tolerance=1e-12, iterations=50)
    assert found[0, 2].isnan().all()
    assert found[0, 1].isfinite().all()


def test_fewer_iterations_than_the_tolerance_needs() -> None:
    q, key, weights, h, ridge, reach = parts(9, 8, ridge=1e-3)
    with pytest.warns(ToleranceNotMet) as caught:
        x = conjugated(q, key, weights, h, ridge, reach, tolerance=1e-9, iterations=2)
    message = str(caught[0].message)
    matrices = conjugate.Matrices(key, weights, h, ridge, reach)
    size = torch.linalg.vector_norm(q, dim=-1)
    left = torch.linalg.vector_norm(q - matrices.times(x), dim=-1) / size
    assert f"a relative residual of {float(left.max()):.1e}" in message
    assert "above the tolerance of 1.0e-09, after 2 iterations" in message
    assert caught[0].filename == __file__


def test_one_warning_a_call_site() -> None:
    given = parts(9, 8, ridge=1e-3)

    def poor() -> Tensor:
        return conjugated(*given, tolerance=1e-9, iterations=1)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            poor()
        conjugated(*given, tolerance=1e-9, iterations=1)
    assert len({w.lineno for w in caught}) == len(caught) == 2


def test_the_line_is_the_users() -> None:
    """Frames of generated code, of mnemic and of torch are passed over."""
    user = _function("notebook", "def user(inner, solve):\n    return inner(solve)\n")
    inner = _function("mnemic.invented", "def inner(solve):\n    return solve()\n")
    solve = partial(conjugated, *parts(9, 8, ridge=1e-3), tolerance=1e-9, iterations=1)
    with pytest.warns(ToleranceNotMet) as caught:
        user(inner, solve)
    assert [(w.filename, w.lineno) for w in caught] == [("<notebook>", 2)]


def _function(module: str, text: str) -> Callable[..., Tensor]:
    """The function of a module of that name."""
    space: dict[str, Any] = {"__name__": module}
    exec(compile(text, f"<{module}>", "exec"), space)
    found: Callable[..., Tensor] = list(space.values())[-1]
    return found


@pytest.mark.parametrize("solver", ["conjugated", "cholesky"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_a_matrix_that_is_singular_to_rounding_is_refused(
    solver: str, dtype: torch.dtype, scale: float
) -> None:
    """Whatever its scale; what is well in its dtype is solved."""
    rng = torch.Generator().manual_seed(3)
    key = scale * torch.randn(1, 6, 4, generator=rng, dtype=dtype)
    key[..., 3] = key[..., 2]
    q, weights = torch.randn(1, 6, 4, generator=rng, dtype=dtype), torch.ones(1, 6, 6, dtype=dtype)
    h, reach = torch.zeros(1, 4, 4, dtype=dtype), torch.ones(1, 6, dtype=dtype)

    def solve(ridge: float) -> Tensor:
        filled = torch.full((1, 6, 4), ridge * scale**2, dtype=dtype)
        given = (q, key, weights.tril(), h, filled, reach)
        if solver == "cholesky":
            return cholesky_rows(*given)
        return conjugated(*given, tolerance=1e-6, iterations=50)

    assert bool(solve(1e-2).isfinite().all())
    for roundings in (0.01, 0.5, 1):
        with pytest.raises(Forgotten, match="not positive definite to within rounding"):
            solve(roundings * torch.finfo(dtype).eps)


@pytest.mark.parametrize("ridge", ["forgotten", "constant"])
def test_a_ridge_that_is_forgotten_is_refused_or_solved_in_float32(ridge: str) -> None:
    """Each form is near what 50 digits give, as near as the matrix's condition lets float32 be, or
    refuses: a weight of e⁻⁴ a token leaves four keys nothing of the ridge, and one number in 10⁸
    of the oldest."""
    tokens, size = 48, 4
    spec = {
        "mnemic": 1, "name": "solves", "bias": "l2", "window": "all",
        "weights": {"kind": "geometric", "gamma": "token", "ridge": ridge},
        "retention": {"global": {"l2": 0.1}},
        "optimizer": {"method": "exact", "solver": {"kind": "conjugate-gradients"}},
    }  # fmt: skip
    rule = pipeline.compile(spec)
    rng = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 1, tokens, 1, size, generator=rng)
    k = torch.nn.functional.normalize(k, dim=-1)
    came = set()
    for fade in (-0.5, -2.0, -4.0, -5.0):
        exact = _least_squares(q[0, :, 0], k[0, :, 0], v[0, :, 0], fade, ridge == "forgotten")
        for form in ("recurrent", "chunk"):
            try:
                out, _ = rule(q, k, v, log_gamma=torch.full((1, tokens, 1), fade), form=form)
            except ValueError as error:
                assert type(error).__name__ == "Forgotten"
                came.add("refused")
                continue
            came.add("solved")
            assert float((out[0, :, 0] - exact).abs().max() / exact.abs().max()) < 0.05
    assert came == ({"refused", "solved"} if ridge == "forgotten" else {"solved"})


def _least_squares(q: Tensor, k: Tensor, v: Tensor, fade: float, forgets: bool) -> Tensor:
    """(Σ γ v kᵀ)(Σ γ k kᵀ + ridge·I)⁻¹ q of every token, with 50 digits."""
    with mpmath.workdps(50):
        size, gamma, left = k.shape[-1], mpmath.exp(fade), mpmath.mpf(0.1)
        h, u, found = mpmath.zeros(size), mpmath.zeros(size), []
        for row in range(len(k)):
            key, value, query = (mpmath.matrix(x[row].double().tolist()) for x in (k, v, q))
            h, u = gamma * h + key * key.T, gamma * u + value * key.T
            left = left * gamma if forgets else left
            found.append(
                [float(y) for y in u * mpmath.lu_solve(h + left * mpmath.eye(size), query)]
            )
    return torch.tensor(found)
