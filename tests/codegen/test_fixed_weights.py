"""Weights that are numbers or expressions, of windows too, against loops written by hand."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from conformance import agree, compiled, error, inputs, interpreted, run
from test_own_expressions import conforms
from torch import Tensor

from mnemic.compiler.explain.render import to_text
from mnemic.errors import InvalidSpec

Similar = Callable[[Tensor, Tensor], Tensor]


def dot(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sum(-1)


def by_hand(
    x: dict[str, Tensor], window: int, gamma: Callable[[int, int], float | Tensor], similar: Similar
) -> Tensor:
    """Pairs with rows u_i, ŷ(k) = Σ u_i κ(k_i, k), the error e²/(1 + |e|) differentiated."""
    rows: list[Tensor] = []
    found = []
    for t in range(x["k"].shape[1]):
        rows = [x["log_alpha"][:, t, :, None].exp() * u for u in rows]
        rows.append(torch.zeros_like(x["v"][:, t]))

        def at(key: Tensor, rows: list[Tensor] = rows) -> Tensor:
            seen = (similar(x["k"][:, j], key)[..., None] * u for j, u in enumerate(rows))
            return torch.stack(list(seen)).sum(0)

        written = {}
        for i in range(max(0, t - window + 1), t + 1):
            y = at(x["k"][:, i]).requires_grad_()
            e = y - x["v"][:, i]
            (slope,) = torch.autograd.grad((e**2 / (1 + e.abs())).sum(), y)
            written[i] = -x["eta"][:, t, :, None] * gamma(t, i) * slope
        for i, step in written.items():
            rows[i] = rows[i] + step
        found.append(at(x["q"][:, t]))
    return torch.stack(found, 1).detach()


WEIGHTS: dict[str, tuple[Any, int, Callable[[int, int], float]]] = {
    "a number for each place": ({"kind": "window", "gamma": 0.5}, 3, lambda t, i: 0.5),
    "an expression of the step": (
        {"kind": "window", "gamma": {"expr": "1/(t+2)"}}, 3, lambda t, i: 1 / (t + 2),
    ),
    "a number for each token": ({"kind": "token", "gamma": 0.5}, 3, lambda t, i: 0.5),
    "a number, one pair": ({"kind": "token", "gamma": 0.5}, 1, lambda t, i: 0.5),
    "an expression, one pair": (
        {"kind": "token", "gamma": {"expr": "1/(t+2)"}}, 1, lambda t, i: 1 / (t + 2),
    ),
}  # fmt: skip


@pytest.mark.some(2)
@pytest.mark.parametrize("features", ["identity", {"kernel": "1 + tanh(s)"}], ids=str)
@pytest.mark.parametrize("title", WEIGHTS)
def test_weights_that_are_no_arguments(title: str, features: Any) -> None:
    weights, window, gamma = WEIGHTS[title]
    case = compiled({
        "name": "weighed", "bias": {"expr": "e**2/(1+abs(e))"}, "features": features,
        "retention": {"decay": "token", "order": "before"}, "optimizer": {"rate": "token"},
        "weights": weights, "window": window,
    })  # fmt: skip
    arguments = inputs(case, 9)
    similar = dot if features == "identity" else lambda x, y: 1 + torch.tanh(dot(x, y))
    expected = by_hand(arguments, window, gamma, similar)
    found = run(case, arguments, "recurrent")
    assert error(found.out, expected) <= 1e-12
    assert error(interpreted(case, arguments)[0], expected) <= 1e-12
    agree(run(case, arguments, "chunk", chunk_size=4), found, 1e-10)


def test_a_weight_of_past_tokens_that_is_not_kept_is_refused() -> None:
    spec = {"name": "weighed", "bias": "l2", "window": 3, "optimizer": {"rate": "token"},
            "weights": {"kind": "token", "gamma": {"expr": "1/(t+2)"}}}  # fmt: skip
    with pytest.raises(InvalidSpec, match="a token's weight stays with it in the window"):
        compiled(spec)


@pytest.mark.parametrize("gamma", ["token", 0.5], ids=str)
def test_an_exponential_rate_is_weighed(gamma: Any) -> None:
    case = compiled({
        "name": "weighed", "bias": "dot", "weights": {"kind": "token", "gamma": gamma},
        "features": "elu", "retention": {"decay": "token"}, "readout": {"normalizer": "sum"},
        "optimizer": {"rate": {"from": "input", "activation": "exp"}},
    })  # fmt: skip
    x = inputs(case, 9)
    share = x["log_eta"].exp() * (x["gamma"] if gamma == "token" else gamma)
    phi = {n: torch.nn.functional.elu(x[n]) + 1 for n in "qk"}
    left = x["log_alpha"].cumsum(1)
    mixed = torch.einsum("bthd,bshd->btsh", phi["q"], phi["k"]) * share[:, None]
    mixed = mixed * (left[:, :, None] - left[:, None]).exp()
    mixed = mixed * torch.ones(9, 9).tril()[None, :, :, None]
    expected = torch.einsum("btsh,bshd->bthd", mixed, x["v"]) / mixed.sum(2)[..., None]
    found = run(case, x, "recurrent")
    assert error(found.out, expected) <= 1e-12
    agree(run(case, x, "chunk", chunk_size=4), found, 1e-10)


def test_a_fixed_rate_beside_a_normaliser() -> None:
    case = compiled({"name": "weighed", "bias": "dot", "features": "elu",
                     "optimizer": {"rate": 0.5}, "readout": {"normalizer": "max1"}})  # fmt: skip
    x = inputs(case, 9)
    agree(run(case, x, "chunk", chunk_size=4), run(case, x, "recurrent"), 1e-10)


@pytest.mark.few
@pytest.mark.parametrize("steps", ["inner_steps", "micro_steps"])
@pytest.mark.parametrize("optimizer", [
    {"rate": {"expr": "sqrt(1 - alpha**2)"}},
    {"rate": "token", "method": "momentum", "momentum": {"expr": "1 - alpha"}},
], ids=str)  # fmt: skip
def test_a_decay_inside_other_coefficients_of_several_steps(
    optimizer: dict[str, Any], steps: str
) -> None:
    """The decay acts in the first step, the coefficient that names it in every one."""
    conforms({"name": "several", "bias": "l2", "retention": {"decay": "token"},
              "optimizer": {**optimizer, steps: 2}})  # fmt: skip


@pytest.mark.parametrize(
    ("weights", "window", "shown"),
    [
        ({"kind": "window", "gamma": 0.5}, 3, "Gₜ = 1/2 Σ_(i=t−2..t) eᵢ kᵢᵀ"),
        ("token", 1, "Gₜ = γₜ eₜ kₜᵀ"),
    ],
    ids=str,
)
def test_a_weight_inside_o_is_printed(weights: Any, window: int, shown: str) -> None:
    outside = {"method": "muon", "rate": "token", "rate_at": "outside"}
    spec = {"name": "weighed", "bias": "l2", "weights": weights, "window": window}
    assert shown in to_text(compiled({**spec, "optimizer": outside}).rule)
