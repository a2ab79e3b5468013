"""Tasks of the memory alone: the processes as written, and operators on them, untrained."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import mnemic
from mnemic.errors import UsageError
from mnemic.search import tasks
from mnemic.search.tasks.memory_task import errors

NAMES = tasks.memory_names()
RUNGS = [(name, rung) for name in NAMES for rung in tasks.find(name).ladder]


def at(name: str, rung: str | None = None, **values: object) -> tasks.MemoryTask[Any]:
    found = tasks.find(name).configure(values, rung)
    assert isinstance(found, tasks.MemoryTask)
    return found


def drawn(task: tasks.MemoryTask[Any], size: int = 3, seed: int = 1, split: Any = "test") -> Any:
    return task.pairs(task.generator(seed, split), size, split)


@pytest.mark.parametrize(("name", "rung"), RUNGS)
def test_every_rung_gives_pairs(name: str, rung: str) -> None:
    task = at(name, rung)
    pairs = drawn(task, 1)
    assert pairs.keys.shape == pairs.values.shape == (1, task.length + 1, task.dim)
    assert pairs.keys.dtype == pairs.values.dtype == torch.float64
    assert pairs.keys.isfinite().all()
    assert pairs.values.square().sum(-1).min() > 0


@pytest.mark.parametrize("name", NAMES)
def test_streams_follow_from_seed_and_split(name: str) -> None:
    task = at(name, "tiny")
    first = drawn(task)
    assert first.keys.equal(drawn(task).keys)
    assert first.values.equal(drawn(task).values)
    assert not first.keys.equal(drawn(task, seed=2).keys)
    assert not first.keys.equal(drawn(task, split="train").keys)
    assert not first.values[0].equal(first.values[1])


@pytest.mark.parametrize("name", NAMES)
def test_chance_is_the_answer_zero(name: str) -> None:
    task = at(name, "tiny")
    values = drawn(task).values
    torch.testing.assert_close(
        errors(torch.zeros_like(values), values), torch.full(values.shape[:2], task.chance).double()
    )
    assert errors(values, values).max() == task.ceiling == 0


def test_the_switching_process_is_the_printed_one() -> None:
    pairs = drawn(at("switching"), 200)
    keys = pairs.keys
    assert keys.shape == (200, 257, 64)
    torch.testing.assert_close(
        pairs.values[:, :-1], keys[:, 1:] / keys[:, 1:].norm(dim=-1, keepdim=True)
    )
    t = torch.arange(1, 257)[:, None]  # key t is keys[:, t - 1]
    noise = (keys[:, 1:] - torch.where(t < 64, 0.9, 0.999) * keys[:, :-1]) / 0.02
    assert noise.mean().item() == pytest.approx(0, abs=0.02)
    flat = noise.reshape(-1, 64)
    covariance = flat.T @ flat / len(flat)
    expected = 0.5 + 0.5 * torch.eye(64, dtype=torch.float64)
    torch.testing.assert_close(covariance, expected, atol=0.05, rtol=0)
    early = keys[:, 0].var().item()
    assert early == pytest.approx(0.02**2 / (1 - 0.9**2), rel=0.3)


def attended(x: Tensor, window: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention in a loop over positions."""
    outs = []
    for j in range(len(x)):
        seen = x[max(0, j - window + 1) : j + 1]
        weights = ((seen @ k) @ (x[j] @ q) / x.shape[1] ** 0.5).softmax(0)
        outs.append(weights @ (seen @ v))
    return torch.stack(outs)


def perceptron(x: Tensor, first: Tensor, second: Tensor) -> Tensor:
    hidden = x @ first
    return (hidden * 0.5 * (1 + torch.erf(hidden / math.sqrt(2)))) @ second


@pytest.mark.parametrize(
    ("name", "window"), [("attention-mlp", 99), ("attended-inputs", 99), ("window-mlp", 16)]
)
def test_attention_tasks_are_loops_over_positions(name: str, window: int) -> None:
    task = at(name, "tiny")
    pairs = drawn(task, 1)
    generator = task.generator(1, "test")
    told = [torch.randn(1, 65, 8, generator=generator, dtype=torch.float64)[0]]
    told += [
        torch.randn(1, 8, 8, generator=generator, dtype=torch.float64)[0] / 8**0.5 for _ in range(5)
    ]
    x, q, k, v, first, second = told
    seen = attended(x, window, q, k, v)
    torch.testing.assert_close(pairs.keys[0], seen if name == "attended-inputs" else x)
    torch.testing.assert_close(pairs.values[0], perceptron(seen, first, second))


def test_a_low_rank_matrix_is_found_by_least_squares_on_the_pairs() -> None:
    pairs = drawn(at("low-rank", "tiny"), 1)
    keys, values = pairs.keys[0], pairs.values[0]
    found = torch.linalg.lstsq(keys[:16], values[:16]).solution
    torch.testing.assert_close(keys[16:] @ found, values[16:])
    assert torch.linalg.matrix_rank(found, rtol=1e-9) == 2


def test_rls_learns_a_matrix_and_linear_attention_does_not() -> None:
    task = at("low-rank", "tiny")
    rls = tasks.evaluate(mnemic.compile("rls"), task)
    assert rls.errors.shape == (64,)
    assert rls.score == pytest.approx(rls.errors.mean().item())
    assert rls.errors[40:].max() < 0.01
    assert rls.between(0, 0.1) > 10 * rls.between(0.9, 1)
    linear = tasks.evaluate(mnemic.compile("linear-attention"), task)
    assert linear.errors[-1] > 1


def test_an_operators_errors_are_those_of_a_loop() -> None:
    """Delta rule, token by token, asked for the next key before it sees the next value."""
    task = at("switching", "tiny")
    outcome = tasks.evaluate(
        mnemic.compile("deltanet"), task, {"eta": 0.7}, sequences=2, unit_keys=True
    )
    pairs = drawn(task, 2, seed=0)
    total = torch.zeros(64, dtype=torch.float64)
    for keys, values in zip(pairs.keys, pairs.values, strict=True):
        unit = keys / keys.norm(dim=-1, keepdim=True)
        memory = torch.zeros(8, 8, dtype=torch.float64)
        for t in range(64):
            memory = memory + 0.7 * torch.outer(values[t] - memory @ unit[t], unit[t])
            total[t] += (memory @ unit[t + 1] - values[t + 1]).square().sum() / 2
    torch.testing.assert_close(outcome.errors, total)
    assert outcome.coefficients == {"eta": 0.7}


def test_the_order_of_figure_2() -> None:
    """Linear attention does worst, least squares better, local linear regression best."""
    task = at("switching", "small")
    scores = {}
    for name in ("linear-attention", "rls", "local-linear-attention"):
        constants = {"ridge": 0.05} if name.startswith("local") else {}
        scores[name] = tasks.evaluate(
            mnemic.compile(name), task, constants, sequences=4, unit=True
        ).score
    assert sorted(scores, key=scores.__getitem__) == [
        "local-linear-attention", "rls", "linear-attention",
    ]  # fmt: skip


def test_constants_are_chosen_on_the_train_stream() -> None:
    task = at("switching", "tiny")
    compiled = mnemic.compile("gated-deltanet")
    best = tasks.tuned(compiled, task, draws=12, sequences=8, unit_keys=True)
    plain = tasks.evaluate(compiled, task, sequences=8, unit_keys=True)
    assert best.score < plain.score
    assert best.worst >= best.score
    assert best.coefficients.keys() == {"eta", "log_alpha"}
    again = tasks.evaluate(compiled, task, best.coefficients, sequences=8, unit_keys=True)
    assert again.score == best.score
    train = tasks.evaluate(
        compiled, task, best.coefficients, sequences=8, unit_keys=True, split="train"
    )
    plain = tasks.evaluate(compiled, task, sequences=8, unit_keys=True, split="train")
    assert train.worst < plain.worst


def test_what_diverges_has_infinite_error() -> None:
    task = at("low-rank", "tiny")
    outcome = tasks.evaluate(mnemic.compile("deltanet"), task, {"eta": 1e12}, sequences=2)
    assert outcome.score == math.inf


def test_what_is_said_to_diverge_has_infinite_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under ``MNEMIC_DEBUG`` the rule raises ``Diverged`` in place of numbers."""
    monkeypatch.setenv("MNEMIC_DEBUG", "1")
    rule, task = mnemic.compile("deltanet"), at("low-rank", "tiny")
    assert tasks.evaluate(rule, task, {"eta": 1e12}, sequences=2).score == math.inf


def test_what_forgets_its_ridge_has_infinite_error() -> None:
    """A rule that raises ``Forgotten`` at these weights, and has numbers at others."""
    rule, task = mnemic.compile("rls-geometric"), at("low-rank", "tiny")
    assert tasks.evaluate(rule, task, {"log_gamma": -3.0}, sequences=2).score == math.inf
    assert math.isfinite(tasks.evaluate(rule, task, {"log_gamma": -1e-3}, sequences=2).score)


def test_other_errors_of_a_call_are_no_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MNEMIC_DEBUG", "1")  # coefficients are compared with their ranges
    rule, task = mnemic.compile("deltanet"), at("low-rank", "tiny")
    with pytest.raises(ValueError, match="eta"):
        tasks.evaluate(rule, task, {"eta": -1.0}, sequences=2)


@pytest.mark.parametrize("name", ["deltaproduct", "titans", "rwkv7", "gla"])
def test_steps_deep_memories_and_channels_run(name: str) -> None:
    outcome = tasks.evaluate(mnemic.compile(name), at("switching", "tiny"), sequences=2)
    assert outcome.errors.shape == (64,)
    assert outcome.errors[:8].isfinite().all()


def test_a_coefficient_that_the_operator_lacks() -> None:
    with pytest.raises(UsageError) as caught:
        tasks.evaluate(mnemic.compile("deltanet"), at("mlp", "tiny"), {"etta": 1.0})
    assert str(caught.value) == (
        "no coefficient of deltanet: read 'etta', allowed: eta; did you mean 'eta'?"
    )
