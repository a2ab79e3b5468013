"""AdaGrad as the inner optimizer: against torch.optim and a plain loop, and where nothing flows."""

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

ADAGRAD = {"method": "adagrad", "rate": "token"}
DECAY = {"retention": {"decay": "token"}}
MLP = {"memory": {"kind": "mlp", "residual": False, "activation": "tanh"}}
ANCHOR = {"anchor": {"chunk": 4}}


def spec(**told: Any) -> dict[str, Any]:
    return {"mnemic": 1, "name": "by-adagrad", "bias": "l2", "optimizer": ADAGRAD, **told}


CASES: dict[str, dict[str, Any]] = {
    "a matrix": {},
    "a matrix at an anchor": {**DECAY, "optimizer": {**ADAGRAD, **ANCHOR}},
    "the rate of a number": {"optimizer": {**ADAGRAD, "rate": 0.05}},
    "a large epsilon": {"optimizer": {**ADAGRAD, "epsilon": 0.1, **ANCHOR}},
    "a window": {"window": 3, "optimizer": {**ADAGRAD, **ANCHOR}},
    "layers": {**MLP, **DECAY, "optimizer": {**ADAGRAD, **ANCHOR}},
    "layers by token": {**MLP},
}


def memory(w: Tensors, x: Tensor) -> Tensor:
    """M(W, x), by the matrices that there are."""
    return w["W1"] @ torch.tanh(w["W2"] @ x) if "W2" in w else w["W"] @ x


def squared_error(case: Case, x: Tensors, w: Tensors, at: tuple[int, int, int]) -> Tensor:
    """Half the squared error over the window of a token."""
    b, t, h = at
    pairs = range(max(0, t - case.rule.window + 1), t + 1)
    found = [((memory(w, x["k"][b, i, h]) - x["v"][b, i, h]) ** 2).sum() / 2 for i in pairs]
    return torch.stack(found).sum()


def begun(case: Case, x: Tensors, h: int) -> Tensors:
    """Where the matrices of one head start."""
    first = {n: p[h] for n, p in beginning(case, x["k"], x["v"]).items()}
    return first or {"W": torch.zeros(x["v"].shape[-1], x["k"].shape[-1], dtype=torch.float64)}


def by_torch(case: Case, x: Tensors, b: int, h: int) -> tuple[Tensor, Tensors]:
    """One head: the gradient by autograd, the step by torch.optim.Adagrad."""
    optimizer = case.rule.problem.spec.optimizer
    anchor, outs = begun(case, x, h), []
    weights = {n: p.clone().requires_grad_() for n, p in anchor.items()}
    stepper = torch.optim.Adagrad(weights.values(), eps=optimizer.epsilon)
    for t in range(x["k"].shape[1]):
        seen = anchor if optimizer.anchor.chunk > 1 else weights
        leaves = {n: p.detach().clone().requires_grad_() for n, p in seen.items()}
        loss = squared_error(case, x, leaves, (b, t, h))
        found = torch.autograd.grad(loss, [*leaves.values()])
        for p, g in zip(weights.values(), found, strict=True):
            p.grad = g
            p.data *= torch.exp(x["log_alpha"][b, t, h]) if "log_alpha" in x else 1.0
        rate = float(x["eta"][b, t, h]) if "eta" in x else optimizer.rate.value
        stepper.param_groups[0]["lr"] = rate
        stepper.step()
        now = {n: p.detach().clone() for n, p in weights.items()}
        anchor = now if (t + 1) % optimizer.anchor.chunk == 0 else anchor
        outs.append(memory(now, x["q"][b, t, h]))
    sums = {f"squares{n[1:]}": stepper.state[p]["sum"] for n, p in weights.items()}
    return torch.stack(outs), {**now, **sums}


@pytest.mark.some(5)
@pytest.mark.parametrize("title", CASES)
def test_torch_optim_takes_the_same_steps(title: str) -> None:
    case = compiled(spec(**CASES[title]))
    x = inputs(case, 11, sizes=Sizes(1, 11, 2, 4, 3))
    assert {"recurrent", "chunk"} == set(case.forms) or "anchor" not in str(CASES[title])
    for form in case.forms:
        out, states = case.operator(**x, form=form, output_final_state=True)
        for h in range(2):
            expected, ends = by_torch(case, x, 0, h)
            assert error(out[0, :, h], expected) <= 1e-10
            close({n: states[n][0, h] for n in ends}, ends, 1e-10)


def by_hand(case: Case, x: Tensors, first: Tensors, h: int) -> tuple[Tensor, Tensors]:
    """One head by W ← αW − η G/(√(Σ G²) + ε), so that autograd goes through all of it."""
    optimizer = case.rule.problem.spec.optimizer
    w = first or begun(case, x, h)
    total, anchor, outs = {n: torch.zeros_like(p) for n, p in w.items()}, w, []
    for t in range(x["k"].shape[1]):
        seen = {n: p + 0 for n, p in (anchor if optimizer.anchor.chunk > 1 else w).items()}
        seen = {n: p if p.requires_grad else p.requires_grad_() for n, p in seen.items()}
        loss = squared_error(case, x, seen, (0, t, h))
        found = torch.autograd.grad(loss, [*seen.values()], create_graph=True)
        alpha = torch.exp(x["log_alpha"][0, t, h]) if "log_alpha" in x else 1.0
        rate = x["eta"][0, t, h] if "eta" in x else optimizer.rate.value
        for (name, p), g in zip([*w.items()], found, strict=True):
            total[name] = total[name] + g * g
            step = g / (total[name].sqrt() + optimizer.epsilon)
            w = {**w, name: alpha * p - rate * step}
        anchor = w if (t + 1) % optimizer.anchor.chunk == 0 else anchor
        outs.append(memory(w, x["q"][0, t, h]))
    return torch.stack(outs), {**w, **{f"squares{n[1:]}": y for n, y in total.items()}}


@pytest.mark.parametrize("title", ["a matrix", "a window", "layers", "layers by token"])
def test_a_plain_loop_has_the_same_gradients(title: str) -> None:
    """Of every argument and start, the states among what is differentiated."""
    case = compiled(spec(**CASES[title]))
    x = {n: y.requires_grad_() for n, y in inputs(case, 9, sizes=Sizes(1, 9, 2, 4, 3)).items()}
    first = {n: p.requires_grad_() for n, p in beginning(case, x["k"], x["v"]).items()}
    hands = [by_hand(case, x, {n: p[h] for n, p in first.items()}, h) for h in range(2)]
    ends = {n: torch.stack([s[n] for _, s in hands])[None] for n in hands[0][1]}
    expected = torch.stack([out for out, _ in hands], 1)[None]

    def loss(out: Tensor, states: Tensors) -> Tensor:
        return weighed(out) + sum(weighed(states[n]) for n in ends)

    sources = {**x, **first}
    known = gradients(loss(expected, ends), sources)
    for form in case.forms:
        given = {"params": first} if first else {}
        out, states = case.operator(**x, form=form, output_final_state=True, **given)
        assert error(out, expected) <= 1e-10
        close(gradients(loss(out, states), sources), known)


def test_the_state_is_the_memory_and_one_sum() -> None:
    assert [s.name for s in compiled(spec()).signature.states] == ["W", "squares"]


@pytest.mark.parametrize("told", [{"optimizer": {**ADAGRAD, **ANCHOR}},
                                  {**MLP, "optimizer": {**ADAGRAD, **ANCHOR}}])  # fmt: skip
def test_states_are_carried(told: dict[str, Any]) -> None:
    """One run, or two with the state between them, in either form; and the interpreter's."""
    case = compiled(spec(**told))
    x = inputs(case, 12)
    whole = run(case, x, "recurrent")
    for pieces in ((("chunk", 8), ("recurrent", 4)), (("recurrent", 3), ("chunk", 9))):
        agree(run(case, x, pieces), whole)
    first = {n: y.detach() for n, y in whole.states.items()}
    expected, other = interpreted(case, x, initial_state=as_interpreted(first))
    for form in case.forms:
        out, states = case.operator(**x, form=form, initial_state=first, output_final_state=True)
        assert error(out, expected) <= 1e-10
        close(found := as_interpreted(states), {n: other[n] for n in found}, 1e-10)


@pytest.mark.parametrize("told", [{}, {"optimizer": {**ADAGRAD, **ANCHOR}}, {**MLP}])
@pytest.mark.parametrize("zero", ["k", "v"])
def test_gradients_of_zero_are_finite(told: dict[str, Any], zero: str) -> None:
    """Zero keys, or values that the empty memory predicts: s = 0, where √s has no slope."""
    case = compiled(spec(**told))
    x = inputs(case, 6, dtype=torch.float32)
    for end in (3, 6):
        part = x[zero].clone()
        part[:, :end] = 0
        for form in case.forms:
            found = run(case, {**x, zero: part}, form)
            assert all(y.isfinite().all() for _, y in found.parts())


def test_documents_and_masked_tokens_have_sums_of_their_own() -> None:
    case = compiled(spec(**MLP, optimizer={**ADAGRAD, **ANCHOR}))
    x = inputs(case, 9, sizes=Sizes(1, 9, 2, 4, 4))
    ends = torch.tensor([0, 4, 9])
    mask = torch.tensor([[True, False, True, True, False, True, True, True, False]])
    for form in case.forms:
        out, states = case.operator(**x, form=form, cu_seqlens=ends, output_final_state=True)
        alone = [case.operator(**{n: y[:, a:b] for n, y in x.items()}, form=form,
                               output_final_state=True) for a, b in ((0, 4), (4, 9))]  # fmt: skip
        assert error(out, torch.cat([y for y, _ in alone], 1)) <= 1e-12
        close(states, {n: torch.cat([s[n] for _, s in alone]) for n in states}, 1e-12)
        out, states = case.operator(**x, form=form, mask=mask, output_final_state=True)
        live = {n: y[:, mask[0]] for n, y in x.items()}
        expected, other = case.operator(**live, form=form, output_final_state=True)
        assert error(out[:, mask[0]], expected) <= 1e-12
        close(states, other, 1e-12)
