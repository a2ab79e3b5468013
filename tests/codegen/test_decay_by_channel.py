"""A decay by channel of a memory whose steps pass through O, or have averages of their own."""

from typing import Any

import pytest
import torch
from conformance import Sizes, Tensors, close, compiled, error, gradients, inputs, weighed
from test_adjoint import own_conforms
from test_own_expressions import conforms
from torch import Tensor

from mnemic.codegen.support.ops import newton_schulz
from mnemic.compiler.classify import BY_ROW
from mnemic.errors import InvalidSpec

ROWS = {"from": "input", "per": "value", "activation": "sigmoid"}
DECAYS: dict[str, dict[str, Any]] = {
    "key": {"decay": "channel"},
    "value": {"decay": ROWS},
    "both": {"decay": "outer", "row_decay": ROWS},
}
MUON = {"method": "muon", "rate": "token"}
STEPS: dict[str, dict[str, Any]] = {
    "muon": MUON,
    "muon with momentum": {**MUON, "momentum": "token"},
    "lion": {"method": "lion", "rate": "token", "momentum": "token", "beta2": 0.9},
    "adagrad": {"method": "adagrad", "rate": "token"},
}
ANCHOR = {"anchor": {"chunk": 4}}
B, T, H, D, V = 1, 9, 2, 4, 3


def spec(decay: str, optimizer: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": "fading", "bias": "l2", "retention": DECAYS[decay], "optimizer": optimizer,
            **more}  # fmt: skip


def by_hand(x: Tensors, optimizer: dict[str, Any], chunk: int) -> tuple[Tensor, Tensor]:
    """Token by token for all heads: the read-outs, and the last memory."""
    W = torch.zeros(B, H, V, D, dtype=torch.float64)
    S, anchor, outs = torch.zeros_like(W), W, []
    for t in range(T):
        k, v, eta = x["k"][:, t], x["v"][:, t], x["eta"][:, t, :, None, None]
        theta = x["theta"][:, t, :, None, None] if "theta" in x else 0.0
        seen = anchor if chunk > 1 else W
        G = (torch.einsum("bhvk,bhk->bhv", seen, k) - v)[..., None] * k[..., None, :]
        match optimizer["method"]:
            case "muon":
                S = theta * S + eta * G
                step = newton_schulz(S, steps=5)
            case "lion":
                step = eta * torch.sign(theta * S + (1 - theta) * G)
                S = 0.9 * S + 0.1 * G
            case "adagrad":
                S = S + G**2
                step = eta * G / (S.sqrt() + 1e-8)
        for name in ("log_alpha", "log_beta"):
            if name in x:
                fade = torch.exp(x[name][:, t])
                W = W * (fade[..., None, :] if fade.shape[-1] == D else fade[..., None])
        W = W - step
        anchor = W if (t + 1) % chunk == 0 else anchor
        outs.append(torch.einsum("bhvk,bhk->bhv", W, x["q"][:, t]))
    return torch.stack(outs, 1), W


@pytest.mark.some(6)
@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("chunk", [1, 4])
@pytest.mark.parametrize("decay", DECAYS)
def test_a_plain_loop_takes_the_same_steps(decay: str, chunk: int, steps: str) -> None:
    """Columns that fade by themselves have a chunk form at an anchor; rows have none."""
    optimizer = STEPS[steps] | (ANCHOR if chunk > 1 else {})
    case = compiled(spec(decay, optimizer))
    assert ("chunk" in case.forms) == (chunk > 1 and decay == "key")
    x = {n: y.requires_grad_() for n, y in inputs(case, T, sizes=Sizes(B, T, H, D, V)).items()}
    expected, last = by_hand(x, optimizer, chunk)
    known = gradients(weighed(expected) + weighed(last), x)
    for form in case.forms:
        out, states = case.operator(**x, form=form, output_final_state=True)
        assert error(out, expected) <= 1e-10
        assert error(states["W"], last) <= 1e-10
        close(gradients(weighed(out) + weighed(states["W"]), x), known, 1e-8)


@pytest.mark.some(2)
@pytest.mark.parametrize(
    "more",
    [{}, {"window": 3}, {"readout": {"memory": "anchor"}}, {"bias": {"expr": "log(cosh(e))"}}],
    ids=str,
)
def test_columns_that_fade_in_a_chunk_are_the_recurrence(more: dict[str, Any]) -> None:
    """Beside a window, a read-out at the anchor and another loss; adjoints, too."""
    optimizer = STEPS["muon with momentum"] | ANCHOR
    told = {**spec("key", optimizer), **more}
    conforms(told)
    own_conforms(told)


def test_layers_of_which_one_has_the_channels_are_refused() -> None:
    """With the place and the reason."""
    with pytest.raises(InvalidSpec, match=r"retention\.decay: .*memory of several layers"):
        compiled({**spec("key", MUON), "memory": {"kind": "mlp", "depth": 2}})


def test_rows_that_fade_by_themselves_say_why_there_is_no_chunk_form() -> None:
    """In the class's reason, which derive prints."""
    rule = compiled(spec("both", MUON | ANCHOR)).rule
    assert rule.structure.reason.endswith(BY_ROW)
