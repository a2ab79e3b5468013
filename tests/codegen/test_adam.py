"""Adam as the inner optimizer: against torch.optim, where nothing flows, and across documents."""

from typing import Any

import pytest
import torch
from conformance import (
    Case,
    Sizes,
    Tensors,
    agree,
    as_interpreted,
    beginning,
    close,
    compiled,
    error,
    gradients,
    inputs,
    interpreted,
    run,
    weighed,
)
from torch import Tensor

ADAM = {"method": "adam", "rate": "token"}
MEANS = {**ADAM, "momentum": "token", "beta2": "token"}
DECAY = {"retention": {"decay": "token"}}
MLP = {"memory": {"kind": "mlp", "residual": False, "activation": "tanh"}}
GLU = {"memory": {"kind": "glu", "residual": False, "activation": "silu"}}
ANCHOR = {"anchor": {"chunk": 4}}


def spec(**told: Any) -> dict[str, Any]:
    return {"mnemic": 1, "name": "by-adam", "bias": "l2", "optimizer": ADAM, **told}


# -- torch.optim ------------------------------------------------------------------------------

BY_TORCH: dict[str, dict[str, Any]] = {
    "a matrix": {"optimizer": {**ADAM, "momentum": 0.9}},
    "a matrix that decays": {**DECAY, "optimizer": {**ADAM, "momentum": 0.9}},
    "no momentum": {**DECAY, "optimizer": {**ADAM, "beta2": 0.9}},
    "the rate of a number": {"optimizer": {**ADAM, "rate": 0.05, "momentum": 0.3}},
    "a large epsilon": {"optimizer": {**ADAM, "momentum": 0.9, "epsilon": 0.1}},
    "an anchor": {**DECAY, "optimizer": {**ADAM, "momentum": 0.9, **ANCHOR}},
    "a window": {"window": 3, "optimizer": {**ADAM, "momentum": 0.9, **ANCHOR}},
    "layers": {**MLP, **DECAY, "optimizer": {**ADAM, "momentum": 0.9, **ANCHOR}},
    "layers by token": {**MLP, "optimizer": {**ADAM, "momentum": 0.5, "beta2": 0.95}},
    "gated layers": {**GLU, **DECAY, "optimizer": {**ADAM, "momentum": 0.9, **ANCHOR}},
}


def memory(w: Tensors, x: Tensor) -> Tensor:
    """M(W, x), by the matrices that there are."""
    if "W3" in w:
        return w["W1"] @ (torch.nn.functional.silu(w["W2"] @ x) * (w["W3"] @ x))
    return w["W1"] @ torch.tanh(w["W2"] @ x) if "W2" in w else w["W"] @ x


def by_torch(case: Case, x: Tensors, b: int, h: int) -> tuple[Tensor, Tensors]:
    """One head: the squared error's gradient by autograd, the step by torch.optim.Adam."""
    optimizer = case.rule.problem.spec.optimizer
    chunk, width = optimizer.anchor.chunk, case.rule.window
    first = {n: p[h] for n, p in beginning(case, x["k"], x["v"]).items()}
    first = first or {"W": torch.zeros(x["v"].shape[-1], x["k"].shape[-1], dtype=torch.float64)}
    weights = {n: p.clone().requires_grad_() for n, p in first.items()}
    theta = 0.0 if optimizer.momentum is None else optimizer.momentum.value
    assert theta is not None
    assert optimizer.beta2.value is not None
    stepper = torch.optim.Adam(
        weights.values(), betas=(theta, optimizer.beta2.value), eps=optimizer.epsilon
    )
    anchor, outs = first, []
    for t in range(x["k"].shape[1]):
        seen = anchor if chunk > 1 else weights
        leaves = {n: p.detach().clone().requires_grad_() for n, p in seen.items()}
        pairs = range(max(0, t - width + 1), t + 1)
        loss = sum(((memory(leaves, x["k"][b, i, h]) - x["v"][b, i, h]) ** 2).sum() for i in pairs)
        found = torch.autograd.grad(loss / 2, list(leaves.values()))
        for p, g in zip(weights.values(), found, strict=True):
            p.grad = g
            p.data *= torch.exp(x["log_alpha"][b, t, h]) if "log_alpha" in x else 1.0
        rate = optimizer.rate.value if "eta" not in x else float(x["eta"][b, t, h])
        stepper.param_groups[0]["lr"] = rate
        stepper.step()
        now = {n: p.detach().clone() for n, p in weights.items()}
        anchor = now if (t + 1) % chunk == 0 else anchor
        outs.append(memory(now, x["q"][b, t, h]))
    states = {n: p.detach() for n, p in weights.items()}
    for n, p in weights.items():
        own = stepper.state[p]
        states[f"squares{n[1:]}"] = own["exp_avg_sq"]
        if theta:
            states[f"S{n[1:]}"] = -own["exp_avg"]
    return torch.stack(outs), states


@pytest.mark.some(6)
@pytest.mark.parametrize("title", BY_TORCH)
def test_torch_optim_takes_the_same_steps(title: str) -> None:
    case = compiled(spec(**BY_TORCH[title]))
    x = inputs(case, 11, sizes=Sizes(2, 11, 2, 4, 3))
    for form in case.forms:
        out, states = case.operator(**x, form=form, output_final_state=True)
        for b in range(2):
            for h in range(2):
                expected, ends = by_torch(case, x, b, h)
                assert error(out[b, :, h], expected) <= 1e-10
                close({n: states[n][b, h] for n in ends}, ends, 1e-10)


def test_the_first_step_is_a_sign() -> None:
    """m̂/√ŝ = G/|G| at t = 1, whatever θ and β₂."""
    case = compiled(spec(optimizer=MEANS))
    x = inputs(case, 1)
    _, states = case.operator(**x, output_final_state=True)
    gradient = -x["v"][:, 0, :, :, None] * x["k"][:, 0, :, None, :]
    step = -x["eta"][:, 0, :, None, None] * torch.sign(gradient)
    assert error(states["W"], step) <= 1e-6


# -- where nothing flows ----------------------------------------------------------------------


@pytest.mark.parametrize("told", [{}, {"optimizer": {**MEANS, **ANCHOR}}, {**MLP}])
@pytest.mark.parametrize("zero", ["k", "v", "q"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_of_zero_are_finite(told: dict[str, Any], zero: str, dtype: torch.dtype) -> None:
    """Zero keys, or values that the empty memory predicts: s = 0, where √s has no slope."""
    case = compiled(spec(**told))
    x = inputs(case, 6, dtype=dtype)
    for end in (3, 6):
        part = x[zero].clone()
        part[:, :end] = 0
        for form in case.forms:
            found = run(case, {**x, zero: part}, form)
            assert all(y.isfinite().all() for _, y in found.parts())


def test_a_mean_that_outlives_its_squares() -> None:
    """β₂ = 0 forgets the squares at once: a zero gradient leaves Ŝ/ε, as the definition has it."""
    case = compiled(spec(bias="dot", optimizer={**MEANS, "beta2": 0, "epsilon": 0.5}))
    x = inputs(case, 2)
    x["v"][:, 1] = 0
    _, states = case.operator(**x, output_final_state=True)
    first = -x["v"][:, 0, :, :, None] * x["k"][:, 0, :, None, :]
    theta = x["theta"][..., None, None]
    mean = theta[:, 1] * (1 - theta[:, 0]) * first / (1 - theta[:, 0] * theta[:, 1])
    rate = x["eta"][..., None, None]
    step = -rate[:, 0] * first / (first.abs() + 0.5) - rate[:, 1] * mean / 0.5
    assert error(states["W"], step) <= 1e-12


def test_averages_that_nothing_enters() -> None:
    """θ = β₂ = 1 from the start: both means stay empty, W stays, and no gradient is lost to 0/0."""
    case = compiled(spec(optimizer={**MEANS, **ANCHOR}))
    x = inputs(case, 6)
    still = {**x, "theta": torch.ones_like(x["theta"]), "beta2": torch.ones_like(x["beta2"])}
    for form in case.forms:
        found = run(case, still, form)
        assert (found.states["W"] == 0).all()
        assert all(y.isfinite().all() for _, y in found.parts())


def test_the_gathered_weight_keeps_its_digits() -> None:
    """1 − Πβ₂ of a slow mean in float32: 1 − 0.9999² is gathered, not what is left of a one."""
    case = compiled(spec(optimizer={**ADAM, "beta2": "token", **ANCHOR}))
    x = inputs(case, 2, dtype=torch.float32)
    x["beta2"] = torch.full_like(x["beta2"], 0.9999)
    exact = 1 - x["beta2"].double()[:, 0] ** 2
    for form in case.forms:
        _, states = case.operator(**x, form=form, output_final_state=True)
        assert (states["squares_weight"].double() / exact - 1).abs().max() <= 1e-6


# -- documents, masks, calls ------------------------------------------------------------------


@pytest.mark.parametrize("told", [{**MLP, "optimizer": {**MEANS, **ANCHOR}}, {"optimizer": MEANS}])
def test_documents_and_masks_have_weights_of_their_own(told: dict[str, Any]) -> None:
    case = compiled(spec(**told))
    x = inputs(case, 9, sizes=Sizes(1, 9, 2, 4, 4))
    ends = torch.tensor([0, 4, 9])
    mask = torch.tensor([[True, False, True, True, False, True, True, True, False]])
    for form in case.forms:
        out, states = case.operator(**x, form=form, cu_seqlens=ends, output_final_state=True)
        alone = [
            case.operator(**{n: y[:, a:b] for n, y in x.items()}, form=form,
                          output_final_state=True)
            for a, b in ((0, 4), (4, 9))
        ]  # fmt: skip
        assert error(out, torch.cat([y for y, _ in alone], 1)) <= 1e-12
        close(states, {n: torch.cat([s[n] for _, s in alone]) for n in states}, 1e-12)
        out, states = case.operator(**x, form=form, mask=mask, output_final_state=True)
        live = {n: y[:, mask[0]] for n, y in x.items()}
        expected, other = case.operator(**live, form=form, output_final_state=True)
        assert error(out[:, mask[0]], expected) <= 1e-12
        close(states, other, 1e-12)


@pytest.mark.parametrize("form", ["recurrent", "chunk"])
def test_a_state_that_is_given_goes_on(form: str) -> None:
    """Gradients of every initial state, and the interpreter from the same one."""
    case = compiled(spec(**MLP, **DECAY, optimizer={**MEANS, **ANCHOR}))
    x = inputs(case, 9)
    first = case.operator(**inputs(case, 5, seed=3), output_final_state=True)[1]
    first = {n: y.detach() for n, y in first.items()}
    agree(run(case, x, form, state=first), run(case, x, "recurrent", state=first))
    out, states = case.operator(**x, form=form, initial_state=first, output_final_state=True)
    told = {n: y for n, y in as_interpreted(first).items()}
    expected, other = interpreted(case, x, initial_state=told)
    assert error(out, expected) <= 1e-10
    found = as_interpreted(states)
    close(found, {n: other[n] for n in found}, 1e-10)


def test_behind_a_link() -> None:
    """The dual takes Adam's steps, and W is its image."""
    retention = {"local": "kl", "constraint": {"kind": "simplex", "over": "rows"}}
    case = compiled(spec(retention=retention, optimizer={**MEANS, **ANCHOR}))
    x = {n: y.requires_grad_() for n, y in inputs(case, 9).items()}
    expected, _ = interpreted(case, x)
    known = gradients(weighed(expected), x)
    for form in case.forms:
        out = case.operator(**x, form=form)[0]
        assert error(out, expected) <= 1e-10
        close(gradients(weighed(out), x), known)
