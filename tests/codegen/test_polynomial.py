"""Polynomial features with their a_i: the kernel Σ a_i (x·y)^i, learned, given, refused."""

import math
from typing import Any

import pytest
import torch
from conformance import compiled, error, inputs
from torch import Tensor

import mnemic
from mnemic.compiler.explain.key_sizes import key_size
from mnemic.errors import InvalidSpec

DELTA: dict[str, Any] = {
    "mnemic": 1, "name": "delta", "bias": "l2", "optimizer": {"rate": "token"},
}  # fmt: skip


def spec(degree: int = 3, **features: Any) -> dict[str, Any]:
    """A delta rule on polynomial features."""
    return {**DELTA, "features": {"kind": "polynomial", "degree": degree, **features}}


def taylor(degree: int = 3) -> dict[str, Any]:
    """The same on the series of exp."""
    return {**DELTA, "features": {"kind": "taylor", "order": degree}}


def by_kernel(given: dict[str, Tensor], weights: list[Tensor]) -> Tensor:
    """The delta rule of one sequence by Σ a_i (x·y)^i alone: W_t φ(x) = Σ_s u_s κ(k_s, x)."""

    def kappa(x: Tensor, y: Tensor) -> Tensor:
        s = torch.einsum("bthd,bshd->bhts", x, y)
        return sum(a[:, :, None, None] * s**i for i, a in enumerate(weights))

    written, outs = [], []
    own, asked = kappa(given["k"], given["k"]), kappa(given["q"], given["k"])
    for t in range(given["q"].shape[1]):
        past = [own[:, :, t, s, None] * u for s, u in enumerate(written)]
        error = given["v"][:, t] - sum(past, torch.zeros_like(given["v"][:, t]))
        written.append(given["eta"][:, t, :, None] * error)
        outs.append(sum(asked[:, :, t, s, None] * u for s, u in enumerate(written)))
    return torch.stack(outs, 1)


@pytest.mark.parametrize("form", ["recurrent", "chunk"])
def test_features_have_the_kernel_of_their_weights(form: str) -> None:
    case = compiled(spec())
    given = inputs(case, 9)
    names = [f"a{i}" for i in range(4)]
    leaves = {n: (x[:1, :1] if n in names else x).clone() for n, x in given.items()}
    leaves = {n: x.requires_grad_() for n, x in leaves.items()}
    spread = {n: x.expand(given[n].shape) for n, x in leaves.items()}
    found = case.operator(**spread, form=form, **({"chunk_size": 4} if form == "chunk" else {}))[0]
    expected = by_kernel(leaves, [leaves[n][:, 0] for n in names])
    assert error(found, expected) <= 1e-12
    weights = torch.randn(expected.shape, dtype=torch.float64)
    grads = [torch.autograd.grad((y * weights).sum(), list(leaves.values())) for y in
             (found, expected)]  # fmt: skip
    wrong = {n: error(a, b) for n, a, b in zip(leaves, *grads, strict=True)}
    assert max(wrong.values()) <= 1e-11, wrong


def test_a_layer_starts_as_the_series_of_exp() -> None:
    x = torch.randn(2, 7, 16, generator=torch.Generator().manual_seed(0))
    mine, series = (mnemic.compile(s).layer(16, heads=2) for s in (spec(2), taylor(2)))
    raw = {f"raw_a{i}" for i in range(3)}
    state = {n: p for n, p in mine.state_dict().items() if n not in raw}
    series.load_state_dict(state)
    y = mine(x)
    torch.testing.assert_close(y, series(x))
    y.square().sum().backward()
    for name in raw:  # a number a head, each with a part in the output
        parameter = mine.get_parameter(name)
        assert parameter.shape == (2,)
        assert parameter.grad.abs().min() > 0


def test_given_numbers_are_the_series_of_exp() -> None:
    told = spec(2, a=[1, 1, "1/2"])
    same = mnemic.diff({**told, "name": "told"}, {**taylor(2), "name": "series"})
    assert "are the same rule" in str(same) or same.verdict == "equal", str(same)
    one, two = compiled(told), compiled(taylor(2))
    given = inputs(one, 9)
    for form in ("recurrent", "chunk"):
        assert error(one.operator(**given, form=form)[0], two.operator(**given, form=form)[0]) == 0


def test_some_are_learned_and_some_given() -> None:
    """κ(s) = a s + s²/2 with a of one's own, per head; a_0 = 0 leaves the constant out."""
    told = spec(2, a=[0, "w/(h + 1)", 0.5])
    case = compiled(
        {**told, "coefficients": {"w": {"from": "parameter", "activation": "softplus"}}}
    )
    given = inputs(case, 9)
    w = given["w"][:1, 0]
    weights = [0 * w, w / torch.tensor([1.0, 2.0]), 0 * w + 0.5]
    expected = by_kernel(given, weights)
    for form in ("recurrent", "chunk"):
        assert error(case.operator(**given, form=form)[0], expected) <= 1e-12


def test_slots_have_the_features_of_their_keys() -> None:
    """K_t = Σ w φ(k)ᵀ with weights of its own is that of the same features with numbers."""
    slots: dict[str, Any] = {
        "mnemic": 1, "name": "slots", "memory": {"kind": "linear", "slots": 3},
        "retention": {"decay": "channel"}, "keys": {"write": "1 - alpha"},
    }  # fmt: skip
    own = compiled({**slots, "features": {"kind": "polynomial", "degree": 1}})
    told = compiled({**slots, "features": {"kind": "polynomial", "degree": 1, "a": [0.25, 0.75]}})
    given = inputs(told, 9)
    numbers = {f"a{i}": torch.full((2, 9, 2), a).double() for i, a in enumerate((0.25, 0.75))}
    for form in own.forms:
        mine = own.operator(**given, **numbers, form=form)[0]
        assert error(mine, told.operator(**given, form=form)[0]) <= 1e-12


def test_layers_with_weights_of_their_own_run_at_once() -> None:
    layer = mnemic.compile(spec(2)).layer(8, heads=2)
    x = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
    both = {n: torch.stack([p, 0.5 * p]).detach() for n, p in layer.named_parameters()}
    found = torch.func.vmap(lambda p: torch.func.functional_call(layer, p, (x,)))(both)
    torch.testing.assert_close(found[0], layer(x))


def test_numbers_that_differ_between_tokens_are_refused() -> None:
    case = compiled(spec(1))
    given = inputs(case, 5)
    given["a1"] = given["a1"] * torch.arange(1, 6)[None, :, None]
    with pytest.raises(ValueError, match="delta: a1: differs between tokens, one number a head"):
        case.operator(**given)


REFUSED = {
    "a number too few": (spec(2, a=[1, 1]), "degree 2 has a_0 … a_2, 3 numbers, not 2"),
    "a negative one": (spec(1, a=[1, -1]), "must be at least 0"),
    "nothing": (spec(1, a=[0, 0]), "one a_i at least is above 0"),
    "from the input": (spec(1, a=[1, "token"]), "a feature map is the same at every token"),
    "of the step": (spec(1, a=[1, "1/(t + 1)"]), "a feature map is the same at every token"),
    "a sign that is free": (
        spec(1, a=[1, {"from": "parameter", "activation": "x", "init": 1}]),
        "a_i may be negative",
    ),
    "of a tensor power": (spec(2, mode="power", a=[0, 0, 1]), "the self-tensor has one degree"),
    "a difference": (
        {**spec(1, a=[1, "w - 1"]), "coefficients": {"w": "learned"}}, "a_i may be negative",
    ),
    "by channel": (
        spec(1, a=[1, {"from": "parameter", "per": "key"}]), "cannot have one value per key",
    ),
}  # fmt: skip


@pytest.mark.parametrize("which", REFUSED)
def test_what_is_no_weight_is_refused(which: str) -> None:
    told, message = REFUSED[which]
    with pytest.raises(InvalidSpec) as caught:
        mnemic.derive(told)
    assert message in str(caught.value)
    assert "features.a" in str(caught.value)


def test_the_bound_is_twice_that_of_the_series() -> None:
    """‖φ‖² ≤ Σ 2/i! at unit keys, whatever is learned."""
    rule = mnemic.derive(spec(3))
    most = 2 * sum(1 / math.factorial(i) for i in range(4))
    assert key_size(rule).high == pytest.approx(most)
    told = next(step.equation for step in rule.steps if step.title == "features")
    assert told == "φ(x)·φ(y) = a0 + a1 (x·y) + a2 (x·y)^2 + a3 (x·y)^3"
