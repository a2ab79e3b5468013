"""A low-rank matrix and a diagonal one as a memory: against plain loops, and what is told of it."""

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
    start,
    weighed,
)
from torch import Tensor

from mnemic.compiler.explain.cost import cost
from mnemic.compiler.explain.equations import equations
from mnemic.compiler.oracle.verify import verify
from mnemic.dsl.load import load
from mnemic.errors import InvalidSpec
from mnemic.pipeline import derive, diff

RATE = {"rate": "token"}
THETA = {**RATE, "method": "momentum", "momentum": "token"}
ANCHOR = {"anchor": {"chunk": 4}}
DECAY = {"retention": {"decay": "token"}}


def spec(**told: Any) -> dict[str, Any]:
    memory = {"kind": "low-rank", "rank": 0.5}
    return {"mnemic": 1, "name": "low-rank", "bias": "l2", "memory": memory, **told}


CASES: dict[str, dict[str, Any]] = {
    "by token": {"optimizer": RATE},
    "at an anchor": {**DECAY, "optimizer": {**RATE, **ANCHOR}},
    "with momentum": {**DECAY, "optimizer": {**THETA, **ANCHOR}},
    "a window": {"window": 3, "optimizer": {**RATE, **ANCHOR}},
    "the dot loss": {"bias": "dot", "optimizer": {**RATE, **ANCHOR}},
}


def by_hand(case: Case, x: Tensors, first: Tensors, b: int, h: int) -> tuple[Tensor, Tensors]:
    """One head: M(x) = U Vᵀ x + d ∘ x, its gradients by autograd."""
    spec = case.rule.problem.spec
    chunk, dot = spec.optimizer.anchor.chunk, spec.bias.word() == "dot"
    w, anchor, outs = first, first, []
    s = {n: torch.zeros_like(p) for n, p in w.items()}

    def memory(w: Tensors, x: Tensor) -> Tensor:
        return w["W1"] @ (w["W2"] @ x) + w["W3"][:, 0] * x

    for t in range(x["k"].shape[1]):
        seen = {n: p + 0 for n, p in (anchor if chunk > 1 else w).items()}
        loss = 0.0
        for i in range(max(0, t - case.rule.window + 1), t + 1):
            y, v = memory(seen, x["k"][b, i, h]), x["v"][b, i, h]
            loss = loss + (-(y * v).sum() if dot else ((y - v) ** 2).sum() / 2)
        found = torch.autograd.grad(loss, list(seen.values()), create_graph=True)
        alpha = torch.exp(x["log_alpha"][b, t, h]) if "log_alpha" in x else 1.0
        theta = x["theta"][b, t, h] if "theta" in x else 0.0
        s = {n: theta * s[n] - x["eta"][b, t, h] * g for n, g in zip(w, found, strict=True)}
        w = {n: alpha * p + s[n] for n, p in w.items()}
        anchor = w if (t + 1) % chunk == 0 else anchor
        outs.append(memory(w, x["q"][b, t, h]))
    return torch.stack(outs), {**w, **{f"S{n[1:]}": y for n, y in s.items()}}


@pytest.mark.some(3)
@pytest.mark.parametrize("title", CASES)
def test_a_plain_loop_takes_the_same_steps(title: str) -> None:
    """Outputs, states and every gradient, of the matrices at the start too."""
    case = compiled(spec(**CASES[title]))
    sizes = Sizes(1, 9, 2, 4, 4)
    x = {n: y.requires_grad_() for n, y in inputs(case, 9, sizes=sizes).items()}
    first = {n: p.requires_grad_() for n, p in beginning(case, x["k"], x["v"]).items()}
    shapes = {n: tuple(p.shape) for n, p in first.items()}
    assert shapes == {"W1": (2, 4, 5), "W2": (2, 5, 4), "W3": (2, 4, 1)}
    hands = [by_hand(case, x, {n: p[h] for n, p in first.items()}, 0, h) for h in range(2)]
    expected = torch.stack([out for out, _ in hands], 1)[None]
    known = gradients(weighed(expected), {**x, **first})
    assert set(case.forms) == ({"recurrent"} if title == "by token" else {"recurrent", "chunk"})
    for form in case.forms:
        out, states = case.operator(**x, form=form, params=first, output_final_state=True)
        assert error(out, expected) <= 1e-10
        close(gradients(weighed(out), {**x, **first}), known)
        for name, end in hands[0][1].items():
            if name in states:
                assert error(states[name][0, 0], end) <= 1e-10


@pytest.mark.parametrize("optimizer", [RATE, THETA, {"method": "adam", **RATE}])
def test_states_are_carried(optimizer: dict[str, Any]) -> None:
    """One run, or two with the state between them, in either form."""
    case = compiled(spec(**DECAY, optimizer={**optimizer, **ANCHOR}))
    x = inputs(case, 12, sizes=Sizes(1, 12, 1, 4, 4))
    state = start(case, x, 4)
    whole = run(case, x, "recurrent", state=state)
    for pieces in ((("chunk", 8), ("recurrent", 4)), (("recurrent", 3), ("chunk", 9))):
        agree(run(case, x, pieces, state=state), whole)


MEMORIES = {
    "alone": {"kind": "low-rank", "rank": 0.5},
    "in a chain": {"chain": [{"kind": "low-rank"}, {"kind": "low-rank", "rank": 1}],
                   "every": [1, 1]},
}  # fmt: skip


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("features", ["identity", "elu"])
def test_the_problem_as_written_agrees(memory: str, features: str) -> None:
    """Autograd through the oracle's own function, against the derived rule."""
    told = {"memory": MEMORIES[memory], "features": features, **DECAY, "optimizer": THETA}
    checks = verify(derive(spec(**told)))
    assert checks
    assert all(check.passed for check in checks), [c for c in checks if not c.passed]


def test_equations_sizes_and_state() -> None:
    rule = derive(spec(optimizer={**RATE, **ANCHOR}))
    found = {e.name: e.text for e in equations(rule)}
    assert found["network"] == "M(W, x) = W1 W2 x + (W3 1) ∘ x"
    assert found["chain rule"] == "δ3ₜ = eₜ ∘ kₜ,  δ1ₜ = eₜ,  δ2ₜ = W1ᵣᵀ δ1ₜ"
    assert found["gradient"] == "G1ₜ = δ1ₜ z2ₜᵀ,  G2ₜ = δ2ₜ kₜᵀ,  G3ₜ = δ3ₜ 1ᵀ"
    names = {s.name: 8 if s.name in ("D", "d_v") else 4 for s in cost(rule).state.free_symbols}
    values = {s: names[s.name] for s in cost(rule).state.free_symbols}
    assert cost(rule).state.subs(values) == 2 * (8 * 4 + 4 * 8 + 8)  # and their anchors


def test_what_tells_memories_apart() -> None:
    told = {"optimizer": {**RATE, **ANCHOR}}
    one = spec(**told)
    assert diff(one, spec(**told)).verdict.kind == "equal"
    for other in ({"kind": "low-rank", "rank": 0.25}, "linear",
                  {"kind": "mlp", "expansion": 0.5, "activation": "identity"}):  # fmt: skip
        assert diff(one, {**one, "memory": other}).verdict.kind != "equal"


def test_keys_and_values_have_one_size() -> None:
    with pytest.raises(InvalidSpec, match="value_dim"):
        load(spec(optimizer=RATE, block={"key_dim": 4, "value_dim": 8}))
