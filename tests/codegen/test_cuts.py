"""Roots of what is cut at zero: flat where it is cut, and no number comes of that."""

import pytest
import sympy as sp
import torch

import mnemic
from mnemic.compiler import symbols as sym
from mnemic.compiler.symbolic import read

CUTS = ["sqrt(relu(x))", "max(x, 0)**0.3", "x*sqrt(relu(x))", "log(1 + sqrt(relu(x)))",
        "sqrt(max(min(x, 1), 0))", "relu(x)**1.5", "relu(x - 1/4)**0.7",
        "sqrt(min(relu(x), 1))", "sqrt(relu(x)*sigmoid(x))"]  # fmt: skip


def written(text: str, x: torch.Tensor) -> torch.Tensor:
    """Compute an expression as written, a root of what is positive alone."""

    def root(u: torch.Tensor, p: float) -> torch.Tensor:
        return torch.where(u > 0, torch.where(u > 0, u, 1.0) ** p, 0.0)

    return {
        "sqrt(relu(x))": lambda: root(x, 0.5), "max(x, 0)**0.3": lambda: root(x, 0.3),
        "x*sqrt(relu(x))": lambda: x * root(x, 0.5),
        "log(1 + sqrt(relu(x)))": lambda: torch.log1p(root(x, 0.5)),
        "sqrt(max(min(x, 1), 0))": lambda: root(x.clamp_max(1.0), 0.5),
        "relu(x)**1.5": lambda: root(x, 1.5), "relu(x - 1/4)**0.7": lambda: root(x - 0.25, 0.7),
        "sqrt(min(relu(x), 1))": lambda: root(x.clamp_max(1.0), 0.5),
        "sqrt(relu(x)*sigmoid(x))": lambda: root(x, 0.5) * torch.sigmoid(x).sqrt(),
    }[text]()  # fmt: skip


X = torch.tensor([-2.0, -0.3, 0.0, 0.1, 0.25, 0.9, 1.7], dtype=torch.float64)


@pytest.mark.parametrize("text", CUTS)
def test_features_have_gradients_where_they_are_cut(text: str) -> None:
    spec = {"mnemic": 1, "name": "cut", "bias": "l2", "features": {"expr": text},
            "optimizer": {"rate": 0.1}}  # fmt: skip
    rule = mnemic.compile(spec).operator
    value = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    q, k = (X.clone().requires_grad_() for _ in range(2))
    y, _ = rule(q.view(1, 1, 1, -1), k.view(1, 1, 1, -1), value)
    y.sum().backward()
    a, b = (X.clone().requires_grad_() for _ in range(2))
    expected = 0.1 * written(text, b) @ written(text, a)  # W = η v φᵀ from zero
    expected.backward()
    torch.testing.assert_close(y.flatten()[0], expected)
    torch.testing.assert_close(q.grad, a.grad)
    torch.testing.assert_close(k.grad, b.grad)


@pytest.mark.parametrize("form", ["recurrent", "chunk"])
@pytest.mark.parametrize("text", CUTS)
def test_layers_step_and_learn_where_an_activation_is_cut(text: str, form: str) -> None:
    memory = {"kind": "mlp", "depth": 2, "activation": text, "residual": False}
    spec = {"mnemic": 1, "name": "cut", "bias": "l2", "memory": memory,
            "optimizer": {"rate": 0.1, "anchor": {"chunk": 2}}}  # fmt: skip
    rule = mnemic.compile(spec).operator
    one = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    first = torch.tensor([[0.5, -0.4, 0.3]], dtype=torch.float64)
    second = torch.tensor([[0.8], [-0.7], [1.4]], dtype=torch.float64)
    params = {"W1": first[None].clone().requires_grad_(),
              "W2": second[None].clone().requires_grad_()}  # fmt: skip
    y, _ = rule(one, one, 2 * one, params=params, form=form)
    y.sum().backward()
    w1, w2 = first.clone().requires_grad_(), second.clone().requires_grad_()
    error = w1 @ written(text, w2[:, 0]) - 2
    moved = torch.autograd.grad((error**2).sum() / 2, (w1, w2), create_graph=True)
    new1, new2 = w1 - 0.1 * moved[0], w2 - 0.1 * moved[1]
    expected = new1 @ written(text, new2[:, 0])
    expected.sum().backward()
    torch.testing.assert_close(y.flatten(), expected)
    torch.testing.assert_close(params["W1"].grad[0], w1.grad)
    torch.testing.assert_close(params["W2"].grad[0], w2.grad)


def test_whole_powers_stay_as_they_are() -> None:
    assert not read("relu(x)**2 + 1/(1 + relu(x))", {"x": sym.x}).has(sp.Piecewise)
    assert read("max(x, y, 0)**0.5", {"x": sym.x, "y": sym.y}).has(sp.Piecewise)
