"""Lion as the inner optimizer: against a plain loop, and what learns where the step is flat."""

from typing import Any

import pytest
import torch
from conformance import (
    Case,
    Sizes,
    Tensors,
    agree,
    beginning,
    close,
    compiled,
    error,
    gradients,
    inputs,
    run,
    weighed,
)
from torch import Tensor

LION = {"method": "lion", "rate": "token"}
BOTH = {**LION, "momentum": "token", "beta2": "token"}
DECAY = {"retention": {"decay": "token"}}
MLP = {"memory": {"kind": "mlp", "residual": False, "activation": "tanh"}}
ANCHOR = {"anchor": {"chunk": 4}}


def spec(**told: Any) -> dict[str, Any]:
    return {"mnemic": 1, "name": "by-lion", "bias": "l2", "optimizer": LION, **told}


CASES: dict[str, dict[str, Any]] = {
    "a matrix": {"optimizer": BOTH},
    "a matrix at an anchor": {**DECAY, "optimizer": {**BOTH, **ANCHOR}},
    "numbers": {**DECAY, "optimizer": {**LION, "momentum": 0.9, "beta2": 0.99, **ANCHOR}},
    "the sign of the gradient": {**DECAY, "optimizer": {**LION, **ANCHOR}},
    "the sign of the last gradient": {
        "optimizer": {**LION, "momentum": 1, "beta2": 0, **ANCHOR},
    },
    "a window": {"window": 3, "optimizer": {**BOTH, **ANCHOR}},
    "layers": {**MLP, **DECAY, "optimizer": {**BOTH, **ANCHOR}},
    "layers by token": {**MLP, "optimizer": BOTH},
}  # fmt: skip


def memory(w: Tensors, x: Tensor) -> Tensor:
    """M(W, x), by the matrices that there are."""
    return w["W1"] @ torch.tanh(w["W2"] @ x) if "W2" in w else w["W"] @ x


def number(case: Case, x: Tensors, name: str, at: tuple[int, ...]) -> Tensor:
    """A coefficient of a token: an argument, or the number in the spec."""
    argument = {"theta": "theta", "beta2": "beta2", "eta": "eta"}[name]
    if argument in x:
        return x[argument][at]
    optimizer = case.rule.problem.spec.optimizer
    entry = {"theta": optimizer.momentum, "beta2": optimizer.beta2, "eta": optimizer.rate}[name]
    return torch.tensor(0.0 if entry is None else entry.value, dtype=torch.float64)


def by_hand(case: Case, x: Tensors, first: Tensors, b: int, h: int) -> tuple[Tensor, Tensors]:
    """One head, by algorithm 2 of Chen et al. (2023): the gradient by autograd, m from zero."""
    chunk, width = case.rule.problem.spec.optimizer.anchor.chunk, case.rule.window
    w = first or {"W": torch.zeros(x["v"].shape[-1], x["k"].shape[-1], dtype=torch.float64)}
    m, anchor, outs = {n: torch.zeros_like(p) for n, p in w.items()}, w, []
    for t in range(x["k"].shape[1]):
        seen = {n: p + 0 for n, p in (anchor if chunk > 1 else w).items()}
        seen = {n: p if p.requires_grad else p.requires_grad_() for n, p in seen.items()}
        pairs = range(max(0, t - width + 1), t + 1)
        loss = sum(((memory(seen, x["k"][b, i, h]) - x["v"][b, i, h]) ** 2).sum() for i in pairs)
        found = torch.autograd.grad(loss / 2, list(seen.values()), create_graph=True)
        theta, beta, eta = (number(case, x, n, (b, t, h)) for n in ("theta", "beta2", "eta"))
        alpha = torch.exp(x["log_alpha"][b, t, h]) if "log_alpha" in x else 1.0
        new = {}
        for (name, p), g in zip(w.items(), found, strict=True):
            c = theta * m[name] + (1 - theta) * g
            new[name] = alpha * p - eta * torch.sign(c)
            m[name] = beta * m[name] + (1 - beta) * g
        w = new
        anchor = w if (t + 1) % chunk == 0 else anchor
        outs.append(memory(w, x["q"][b, t, h]))
    return torch.stack(outs), {**w, **{f"S{n[1:]}": -y for n, y in m.items()}}


@pytest.mark.some(5)
@pytest.mark.parametrize("title", CASES)
def test_a_plain_loop_takes_the_same_steps(title: str) -> None:
    """Outputs, states and every gradient, S among what is differentiated."""
    case = compiled(spec(**CASES[title]))
    x = {n: y.requires_grad_() for n, y in inputs(case, 9, sizes=Sizes(1, 9, 2, 4, 3)).items()}
    first = {n: p.requires_grad_() for n, p in beginning(case, x["k"], x["v"]).items()}
    hands = [by_hand(case, x, {n: p[h] for n, p in first.items()}, 0, h) for h in range(2)]
    names = set(case.operator(**x, form="recurrent", output_final_state=True)[1])
    ends = {n: torch.stack([s[n] for _, s in hands])[None] for n in hands[0][1] if n in names}
    expected = torch.stack([out for out, _ in hands], 1)[None]

    def loss(out: Tensor, states: Tensors) -> Tensor:
        return weighed(out) + sum(weighed(states[n]) for n in ends)

    sources = {**x, **first}
    known = gradients(loss(expected, ends), sources)
    assert {"recurrent", "chunk"} == set(case.forms) or "anchor" not in CASES[title]["optimizer"]
    given = {"params": first} if first else {}
    for form in case.forms:
        out, states = case.operator(**x, form=form, output_final_state=True, **given)
        assert error(out, expected) <= 1e-10
        close({n: states[n] for n in ends}, ends, 1e-10)
        close(gradients(loss(out, states), sources), known)


def test_the_state_is_one_average_and_none_without_momentum() -> None:
    by_token = {n: compiled(spec(optimizer=o)).signature.states
                for n, o in {"both": BOTH, "sign": LION}.items()}  # fmt: skip
    assert [s.name for s in by_token["both"]] == ["W", "S"]
    assert [s.name for s in by_token["sign"]] == ["W"]


@pytest.mark.parametrize("told", [{"optimizer": {**BOTH, **ANCHOR}},
                                  {**MLP, "optimizer": {**BOTH, **ANCHOR}}])  # fmt: skip
def test_states_are_carried(told: dict[str, Any]) -> None:
    """One run, or two with the state between them, in either form."""
    case = compiled(spec(**told))
    x = inputs(case, 12)
    whole = run(case, x, "recurrent")
    for pieces in ((("chunk", 8), ("recurrent", 4)), (("recurrent", 3), ("chunk", 9))):
        agree(run(case, x, pieces), whole)


def test_no_gradient_passes_the_sign() -> None:
    """Of the outputs k, v, θ and β₂ have a gradient of zero; q, η and α have one."""
    case = compiled("lion-mlp")
    x = {n: y.requires_grad_() for n, y in inputs(case, 20, sizes=Sizes(1, 20, 1, 4, 4)).items()}
    first = {n: p.requires_grad_() for n, p in beginning(case, x["k"], x["v"]).items()}
    for form in case.forms:
        out, _ = case.operator(**x, form=form, params=first)
        found = torch.autograd.grad(weighed(out), [*x.values(), *first.values()],
                                    allow_unused=True, materialize_grads=True)  # fmt: skip
        learns = {n for n, g in zip([*x, *first], found, strict=True) if g.abs().max() > 1e-6}
        assert learns == {"q", "eta", "log_alpha", "W1", "W2"}
