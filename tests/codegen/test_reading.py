"""Reading without writing: what every rule's memory says as it stands."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from conformance import (
    Case,
    Sizes,
    Tensors,
    available,
    beginning,
    close,
    compiled,
    having,
    inputs,
    interpreted,
    start,
)
from torch import Tensor
from torch.nn import functional as F

Memory = Callable[[Tensor, Tensors], Tensor]

TOKENS = 7
FLAT = tuple(n for n in available() if n not in having("layered"))
"""Memories of one matrix, which the interpreter runs."""


def told(case: Case, arguments: Tensors) -> Tensors:
    """The coefficients that a read takes."""
    return {n: arguments[n] for n in case.operator.reading}


def held(case: Case, before: Tensors, query: Tensors) -> Tensor:
    """What the interpreter's memory says to one token that it is told to leave out."""
    tokens = before["q"].shape[1]
    joined = {n: torch.cat([before[n], query[n]], 1) for n in before}
    joined["v"] = torch.cat([before["v"], torch.zeros_like(query["v"])], 1)  # no bonus of its own
    live = torch.arange(tokens + 1).expand(joined["q"].shape[0], -1) < tokens
    out, _ = interpreted(case, joined, mask=live)
    return out[:, -1:]


@pytest.mark.parametrize("name", FLAT)
def test_a_read_says_what_the_memory_held(name: str) -> None:
    case = compiled(name)
    before, query = inputs(case, TOKENS), inputs(case, 1, seed=3)
    _, state = case.operator(**before, output_final_state=True)
    found = case.operator.read(query["q"], state, **told(case, query))
    close({"y": found}, {"y": held(case, before, query)})


@pytest.mark.parametrize("name", available())
def test_queries_at_once_or_one_by_one(name: str) -> None:
    case = compiled(name)
    queries = inputs(case, 5, seed=3, sizes=Sizes(tokens=5, groups=2))
    state = {n: x.requires_grad_(x.is_floating_point()) for n, x in _state(case, queries).items()}
    coefficients = told(case, queries)
    whole = case.operator.read(queries["q"].requires_grad_(), state, **coefficients)
    for i in range(5):
        own = {n: x[:, i : i + 1] for n, x in coefficients.items()}
        later = _later(case, state, i)
        close(
            {"y": case.operator.read(queries["q"][:, i : i + 1], later, **own)},
            {"y": whole[:, i : i + 1]},
        )
    looked_at = [state[n] for n in case.operator.read_states if state[n].is_floating_point()]
    grads = torch.autograd.grad(whole.square().sum(), [queries["q"], *looked_at])
    assert all(g.isfinite().all() for g in grads)


def _later(case: Case, state: Tensors, tokens: int) -> Tensors:
    """The state at a later position; kept pairs tell their own."""
    if "position" not in state or any(s.kept for s in case.signature.states):
        return state
    return {**state, "position": state["position"] + tokens}


def _state(case: Case, like: Tensors) -> Tensors:
    return {n: x.clone() for n, x in start(case, like).items()}


def mlp(x: Tensor, w: Tensors) -> Tensor:
    return over(w["W1"], F.gelu(over(w["W2"], x)))


def with_norm(x: Tensor, w: Tensors) -> Tensor:
    return x + F.layer_norm(mlp(x, w), x.shape[-1:])


def simplices(x: Tensor, w: Tensors) -> Tensor:
    made = {f"W{i}": 3.0 * torch.softmax(w[f"A{i}"].flatten(-2), -1).view_as(w[f"A{i}"])
            for i in (1, 2)}  # fmt: skip
    return with_norm(x, made)


def gated(x: Tensor, w: Tensors) -> Tensor:
    inner = F.silu(over(w["held2"], x)) * over(w["held3"], x)
    return over(w["held1"], inner)


def monomials(x: Tensor) -> Tensor:
    """1, x_i, x_i x_j (i ≤ j) with φ(x)·φ(y) = 1 + x·y + (x·y)²/2."""
    d = x.shape[-1]
    pairs = [(i, j) for i in range(d) for j in range(i, d)]
    second = [x[..., i] * x[..., j] / (2**0.5 if i == j else 1) for i, j in pairs]
    return torch.cat([torch.ones_like(x[..., :1]), x, torch.stack(second, -1)], -1)


def of_monomials(x: Tensor, w: Tensors) -> Tensor:
    return x + mlp(monomials(x), w)


def over(matrix: Tensor, x: Tensor) -> Tensor:
    """Each head's matrix [B, H, r, c] on x [B, T, H, c]."""
    return torch.einsum("bhrc,bthc->bthr", matrix, x)


@pytest.mark.parametrize(
    ("name", "memory"),
    [
        ("titans", with_norm),
        ("yaad", with_norm),
        ("memora", simplices),
        ("atlas", of_monomials),
        ("lact", gated),
    ],
)
def test_deep_memories_are_read_as_written(name: str, memory: Memory) -> None:
    case = compiled(name)
    query = inputs(case, 4, seed=3)
    sums = {n: torch.full_like(x, 3.0) for n, x in query.items() if n.startswith("scale")}
    query |= sums  # of a simplex's entries, each matrix has its own
    series = {"a0": 1.0, "a1": 1.0, "a2": 0.5}  # the coefficients that ``monomials`` has
    query |= {n: torch.full_like(query[n], a) for n, a in series.items() if n in query}
    params = beginning(case, query["k"], query["v"])
    begun = case.operator.begin(**{n: x[:, :1] for n, x in query.items()}, params=params)
    for state in (begun, _after(case, 70)):
        found = case.operator.read(query["q"], state, **told(case, query))
        close({"y": found}, {"y": memory(query["q"], state)})
    found = case.operator.read(query["q"], {}, params=params, **told(case, query))
    close({"y": found}, {"y": memory(query["q"], begun)})


@pytest.mark.some(9)
@pytest.mark.parametrize("name", FLAT)
def test_an_empty_state_is_the_start_of_a_document(name: str) -> None:
    case = compiled(name)
    query = inputs(case, 2, seed=3)
    sizes = (query["k"].shape[-2], query["v"].shape[-1])
    params = beginning(case, query["k"], query["v"])
    found = case.operator.read(query["q"], {}, sizes=sizes, params=params, **told(case, query))
    nothing = {n: x[:, :0] for n, x in query.items()}
    first = {n: x[:, :1] for n, x in query.items()}
    close({"y": found[:, :1]}, {"y": held(case, nothing, first)})


def test_rows_at_different_positions() -> None:
    case = compiled("cosformer")
    query = inputs(case, 3)
    one, two = (_after(case, tokens) for tokens in (4, 9))
    state = {n: torch.cat([one[n][:1], two[n][1:]]) for n in one}
    found = case.operator.read(query["q"], state)
    for row, own in enumerate((one, two)):
        kept = {n: x[row : row + 1] for n, x in own.items()}
        close(
            {"y": case.operator.read(query["q"][row : row + 1], kept)},
            {"y": found[row : row + 1]},
        )


def _after(case: Case, tokens: int) -> Tensors:
    state: Tensors = case.operator(**inputs(case, tokens), output_final_state=True)[1]
    return state


def test_half_precision_and_no_queries() -> None:
    case = compiled("gated-deltanet")
    query = inputs(case, 3, dtype=torch.bfloat16)
    state = case.operator(**query, output_final_state=True)[1]
    assert case.operator.read(query["q"], state).dtype == torch.bfloat16
    assert case.operator.read(query["q"][:, :0], state).shape == (2, 0, 2, 3)


@pytest.mark.parametrize(
    ("name", "state", "options", "message"),
    [
        ("deltanet", {}, {}, "deltanet: state: an empty one tells no sizes; give sizes="),
        ("deltanet", {"w": torch.zeros(2, 2, 3, 4)}, {}, "initial_state: read 'w', allowed: W"),
        ("deltanet", {"W": torch.zeros(2, 2, 3, 5)}, {}, r"initial_state\['W'\]: read shape"),
        (
            "deltanet",
            {"W": torch.zeros(2, 2, 3, 4)},
            {"eta": torch.ones(2, 1, 2)},
            "deltanet: unknown argument: read 'eta', allowed: q, state, params, sizes",
        ),
    ],
)
def test_what_a_read_refuses(
    name: str, state: Tensors, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        compiled(name).operator.read(torch.zeros(2, 1, 2, 4), state, **options)
