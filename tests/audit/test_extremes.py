"""Minimisers, gradients and roots of stated problems, against what is known in closed form."""

import pytest
import torch

from mnemic.compiler.published import step

GIVEN = {
    "W": [[0.3, -1.2, 0.4], [0.7, 0.2, -0.1]], "A": [[0.5, -0.3, 0.9], [-0.2, 0.8, 0.1]],
    "X": [[1.0, 2.0, -1.0], [0.5, -0.5, 0.3]],
}  # fmt: skip


@pytest.mark.parametrize(
    ("problem", "closed"),
    [
        ("Y = argmin(norm(X - W)**2 + 3*norm(X)**2, X)", "Y = W/4"),
        ("Y = argmin(norm(X, 4)**2/6 - inner(A, X), X)",
         "Y = 3*sign(A)*abs(A)**(1/3)/norm(A, 4/3)**(4/3 - 2)"),
        ("Y = argmin(norm(X - W)**2/2 + norm(X, 1)/2, X)", "Y = sign(W)*max(abs(W) - 0.5, 0)"),
        ("Y = argmin(inner(X, A) + total(X*log(X)), X, 2)", "Y = 2*softmax(-A)"),
        ("Y = gradient(norm(W)**4, W)", "Y = 4*norm(W)**2*W"),
        ("Y = root(exp(z) - 3, z)", "Y = log(3)"),
        ("Y = root(1/(1 - z) - 4, z)", "Y = 3/4"),
        ("Y = expect(exp(1.5*z)*z**2, z)", "Y = (1 + 1.5**2)*exp(1.5**2/2)"),
        ("Y = expect(relu(z)**2, z)", "Y = 1/2"),
    ],
)  # fmt: skip
def test_against_the_closed_form(problem, closed):
    found, expected = step(problem, GIVEN)["Y"], step(closed, GIVEN)["Y"]
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)


def test_a_constraint_that_binds_puts_entries_at_zero():
    found = step("Y = argmin(norm(X - W)**2, X, 1)", GIVEN)["Y"]
    expected = torch.tensor([[0.15, 0, 0.25], [0.55, 0.05, 0]], dtype=torch.float64)
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=0)


def test_nothing_is_returned_where_there_is_no_root():
    with pytest.raises(ValueError, match="no root"):
        step("Y = root(exp(z), z)", {})
