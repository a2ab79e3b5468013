"""Complex states: a diagonal memory under a phase, and the linear recurrent unit that it makes."""

from typing import Any

import pytest
import torch
from conformance import compiled, error, inputs, interpreted, run
from torch import Tensor

import mnemic
from mnemic.errors import InvalidSpec

DELTA: dict[str, Any] = {
    "mnemic": 1, "name": "turning", "memory": "diagonal", "bias": "l2",
    "retention": {
        "decay": {"from": "input", "per": "key"}, "order": "before",
        "phase": {"from": "input", "per": "key"},
    },
    "optimizer": {"method": "momentum", "rate": "token", "momentum": "token"},
}  # fmt: skip


def whole(z: Tensor) -> Tensor:
    """Real parts before imaginary ones as complex numbers."""
    return torch.complex(*(x.contiguous() for x in z.chunk(2, -1)))


def parts(z: Tensor) -> Tensor:
    return torch.cat([z.real, z.imag], -1)


def complex_units(layer: Any, u: Tensor) -> Tensor:
    """x_t = λ ∘ x_(t−1) + γ ∘ B u_t, y_t = Re(C x_t) + D ∘ u_t by complex numbers and a loop.

    λ = exp(−exp(ν) + i exp(θ)), γ = √(1 − |λ|²); C x is Σ over channels of (c − i c′) x, whose real
    part has c and c′ as factors of the real and the imaginary part of x.
    """
    n = layer.sizes.key_dim
    lam = torch.exp(torch.complex(-torch.exp(layer.raw_alpha), torch.exp(layer.raw_phase)))
    gamma = torch.sqrt(1 - lam.abs() ** 2)
    B = whole(layer.vectors.project.weight.mT).mT  # [n, dim]
    C = torch.complex(layer.out.weight[:, :n], -layer.out.weight[:, n:])  # [dim, n]
    x, outs = torch.zeros(len(u), n, dtype=lam.dtype), []
    for t in range(u.shape[1]):
        x = lam * x + gamma * (u[:, t].to(lam.dtype) @ B.mT)
        outs.append((x @ C.mT).real + layer.skip * u[:, t])
    return torch.stack(outs, 1)


@pytest.mark.parametrize("form", ["recurrent", "chunk"])
def test_the_linear_recurrent_unit(form: str) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layer = mnemic.compile("lru").layer(10).double()
        u = torch.randn(2, 37, 10, dtype=torch.float64, requires_grad=True)
    assert (layer.sizes.key_dim, layer.sizes.value_dim) == (5, 10)
    leaves = {"u": u, **dict(layer.named_parameters())}
    found, expected = layer(u, form=form), complex_units(layer, u)
    assert error(found, expected) <= 1e-12
    weights = torch.cos(torch.arange(u.numel(), dtype=torch.float64)).view(u.shape)
    one, two = (torch.autograd.grad((y * weights).sum(), list(leaves.values())) for y in
                (found, expected))  # fmt: skip
    wrong = {n: error(a, b) for n, a, b in zip(leaves, one, two, strict=True)}
    assert max(wrong.values()) <= 1e-11, wrong


def test_a_unit_starts_on_its_arc() -> None:
    layer = mnemic.compile("lru").layer(16)
    size, turn = torch.exp(-torch.exp(layer.raw_alpha)), torch.exp(layer.raw_phase)
    torch.testing.assert_close(size[[0, -1]], torch.tensor([0.9, 0.999]))
    torch.testing.assert_close(turn[[0, -1]], torch.tensor([0.01, 0.3]))


def test_a_skip_keeps_the_type_of_mixed_precision() -> None:
    x = torch.randn(1, 5, 8, generator=torch.Generator().manual_seed(0))
    layer = mnemic.compile("lru").layer(8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16
    assert layer.bfloat16()(x.bfloat16()).dtype == torch.bfloat16


def test_a_delta_rule_on_complex_numbers() -> None:
    """ŷ = α e^{iω} W k, S = θ S − η (ŷ − v) k in the frame of its time, W = α e^{iω} W + S."""
    case = compiled(DELTA)
    given = inputs(case, 9)
    leaves = {n: x.clone().requires_grad_() for n, x in given.items()}
    spread = {n: leaves[n][..., None] for n in ("eta", "theta")}
    turn = torch.exp(torch.complex(torch.zeros_like(leaves["phase"]), leaves["phase"]))
    decay = torch.exp(leaves["log_alpha"]) * turn
    W, S, outs = 0 * decay[:, 0], 0 * decay[:, 0], []
    for t in range(9):
        k, v = leaves["k"][:, t], whole(leaves["v"])[:, t]
        miss = decay[:, t] * W * k - v
        S = spread["theta"][:, t] * turn[:, t] * S - spread["eta"][:, t] * miss * k
        W = decay[:, t] * W + S
        outs.append(parts(W * leaves["q"][:, t]))
    expected = torch.stack(outs, 1)
    weights = torch.cos(torch.arange(expected.numel(), dtype=torch.float64)).view(expected.shape)
    wanted = torch.autograd.grad((expected * weights).sum(), list(leaves.values()))
    for form in ("recurrent", "chunk"):
        own = {n: x.detach().clone().requires_grad_() for n, x in leaves.items()}
        y = case.operator(**own, form=form)[0]
        assert error(y, expected) <= 1e-12
        found = torch.autograd.grad((y * weights).sum(), list(own.values()))
        assert max(map(error, found, wanted)) <= 1e-11
    halves = run(case, given, (("chunk", 4), ("recurrent", 5)))
    assert error(halves.out, expected) <= 1e-12


@pytest.mark.parametrize("memory", ["linear", "diagonal"])
def test_one_angle_a_head(memory: str) -> None:
    told = {"decay": "token", "phase": {"from": "input"}}
    one = compiled({"mnemic": 1, "name": "one", "memory": memory, "retention": told})
    each = {"decay": "token", "phase": {"from": "input", "per": "key"}}
    many = compiled({"mnemic": 1, "name": "many", "memory": memory, "retention": each})
    given = inputs(one, 9)
    assert given["phase"].shape == (2, 9, 2)
    spread = {**given, "phase": given["phase"][..., None].expand(given["k"].shape)}
    for form in ("recurrent", "chunk"):
        found = one.operator(**given, form=form)[0]
        assert error(found, many.operator(**spread, form=form)[0]) <= 1e-12
        assert error(found, interpreted(one, given)[0]) <= 1e-12


REFUSED = {
    "a loss of the coordinates": ({"bias": {"expr": "log(cosh(e))"}}, "error is linear"),
    "a value that is bent": ({"keys": {"value": "tanh(v)"}}, "is a multiple of v"),
    "a link": ({"retention": {**DELTA["retention"], "global": {"elastic": {"l1": 0.1, "l2": 0}}}},
               "link of a complex memory"),
}  # fmt: skip


@pytest.mark.parametrize("which", REFUSED)
def test_what_depends_on_the_angle_is_refused(which: str) -> None:
    told, message = REFUSED[which]
    with pytest.raises(InvalidSpec, match=message):
        mnemic.derive({**DELTA, "optimizer": {"rate": "token"}, **told})


def test_values_have_two_parts_a_key_channel() -> None:
    case = compiled("lru")
    given = inputs(case, 3)
    with pytest.raises(ValueError, match="d_v = 2·d_k is needed, real and imaginary parts; read 4"):
        case.operator(**{**given, "v": given["v"][..., :4]})
    with pytest.raises(ValueError, match="value_dim = 2·key_dim is needed; read 4 and 4"):
        mnemic.compile("lru").layer(8, key_dim=4, value_dim=4)
