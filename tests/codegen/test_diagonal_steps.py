"""A diagonal memory whose steps are scaled entry by entry: each channel is a memory by itself."""

from typing import Any

import pytest
import torch
from conformance import Sizes, Tensors, close, compiled, error, gradients, inputs, weighed
from test_adjoint import own_conforms
from torch import Tensor

from mnemic.compiler.explain.cost import cost
from mnemic.errors import InvalidSpec

STEPS: dict[str, dict[str, Any]] = {
    "adam": {"method": "adam", "rate": "token", "momentum": 0.9, "beta2": 0.95},
    "lion": {"method": "lion", "rate": "token", "momentum": 0.9, "beta2": 0.95},
    "adagrad": {"method": "adagrad", "rate": "token"},
}
SETTINGS: dict[str, dict[str, Any]] = {
    "by token": {},
    "a decay a head": {"retention": {"decay": "token"}},
    "a decay a channel": {"retention": {"decay": "channel"}},
    "a window": {"window": 3},
}
B, T, H, D = 1, 9, 2, 4


def by_hand(x: Tensors, spec: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """w ∘ k for v, by autograd of the squared error and the optimizers' own formulas."""
    method, chunk = spec["optimizer"]["method"], spec["optimizer"].get("anchor", {}).get("chunk", 1)
    w = torch.zeros(B, H, D, dtype=torch.float64).requires_grad_()
    m, s, anchor, outs = torch.zeros_like(w), torch.zeros_like(w), w, []
    for t in range(T):
        seen = (anchor if chunk > 1 else w) + 0
        pairs = range(max(0, t - spec.get("window", 1) + 1), t + 1)
        loss = sum(((seen * x["k"][:, i] - x["v"][:, i]) ** 2).sum() / 2 for i in pairs)
        (g,) = torch.autograd.grad(loss, seen, create_graph=True)
        match method:
            case "adam":
                m, s = 0.9 * m + 0.1 * g, 0.95 * s + 0.05 * g**2
                mean, square = m / (1 - 0.9 ** (t + 1)), s / (1 - 0.95 ** (t + 1))
                step = mean / (square.sqrt() + 1e-8)
            case "lion":
                step = torch.sign(0.9 * m + 0.1 * g)
                m = 0.95 * m + 0.05 * g
            case "adagrad":
                s = s + g**2
                step = g / (s.sqrt() + 1e-8)
        if "log_alpha" in x:
            fade = torch.exp(x["log_alpha"][:, t])
            w = w * (fade if fade.ndim == w.ndim else fade[..., None])
        w = w - x["eta"][:, t, :, None] * step
        anchor = w if (t + 1) % chunk == 0 else anchor
        outs.append(w * x["q"][:, t])
    return torch.stack(outs, 1), w


@pytest.mark.parametrize("method", STEPS)
@pytest.mark.parametrize("anchored", [False, True])
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_plain_loop_takes_the_same_steps(setting: str, anchored: bool, method: str) -> None:
    """Read-outs, the memory and all gradients, in every form."""
    optimizer = STEPS[method] | ({"anchor": {"chunk": 4}} if anchored else {})
    spec = {"name": "by-channel", "memory": "diagonal", "bias": "l2", **SETTINGS[setting],
            "optimizer": optimizer}  # fmt: skip
    case = compiled(spec)
    assert ("chunk" in case.forms) == anchored
    x = {n: y.requires_grad_() for n, y in inputs(case, T, sizes=Sizes(B, T, H, D, D)).items()}
    expected, last = by_hand(x, spec)
    known = gradients(weighed(expected) + weighed(last), x)
    for form in case.forms:
        out, states = case.operator(**x, form=form, output_final_state=True)
        assert error(out, expected) <= 1e-9
        assert error(states["W"].reshape(last.shape), last) <= 1e-9
        found = gradients(weighed(out) + weighed(states["W"].reshape(last.shape)), x)
        close(found, known, 1e-7)
    if "window" in spec:  # whose pairs carry marks of which are there, too
        return
    carried = sum(y.numel() for n, y in states.items() if n != "position") / (B * H)
    assert carried == cost(case.rule).evaluate(d_k=D, d_v=D, T=T)["state"]


@pytest.mark.parametrize("method", STEPS)
def test_an_adjoint_is_autograd(method: str) -> None:
    """Under another loss."""
    own_conforms({"memory": "diagonal", "bias": {"expr": "log(cosh(e))"}, "name": "by-channel",
                  "optimizer": {**STEPS[method], "anchor": {"chunk": 4}}})  # fmt: skip


def test_an_interval_is_refused() -> None:
    """With the place."""
    with pytest.raises(InvalidSpec, match="memory: a diagonal memory behind an interval"):
        compiled({"memory": "diagonal", "bias": "l2", "name": "held",
                  "optimizer": {"method": "gd", "rate": "token", "every": 4}})  # fmt: skip
