"""Phase, bonus, normaliser and slots as the language states them, against recurrences by hand.

The recurrences are written from the papers' formulas in plain torch; the rule's interpreter is held
against the same problem in further combinations.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from mnemic.compiler.derive import derive_spec
from mnemic.compiler.oracle.interpret import interpret
from mnemic.compiler.oracle.samples import Sizes, draw
from mnemic.compiler.oracle.stated import stated, unspoken
from mnemic.compiler.problem import state
from mnemic.dsl.load import load
from mnemic.dsl.spec import Spec

T, D, V = 6, 3, 2


def made(**entries: Any) -> Spec:
    return load({"mnemic": 1, "name": "made", "bias": "dot", **entries})


def normal(*shape: int, seed: int = 0) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(1, *shape, generator=rng, dtype=torch.float64)


def vectors(value: int = V) -> tuple[Tensor, Tensor, Tensor]:
    return normal(T, 1, D, seed=1), normal(T, 1, D, seed=2), normal(T, 1, value, seed=3)


def close(found: Tensor, expected: list[Tensor]) -> None:
    torch.testing.assert_close(found[0, :, 0], torch.stack(expected), atol=1e-12, rtol=1e-12)


def test_a_phase_is_a_complex_decay_of_which_the_real_part_is_read() -> None:
    """GateLoop: S_t = α e^{iω} S_{t−1} + k vᵀ, y = Re(q S)."""
    spec = made(retention={"decay": "channel", "phase": {"from": "input", "per": "key"}})
    q, k, v = vectors()
    alpha, omega = torch.sigmoid(normal(T, 1, D, seed=4)), normal(T, 1, D, seed=5)
    given = {"log_alpha": alpha.log(), "phase": omega}
    state_, rows = torch.zeros(D, V, dtype=torch.complex128), []
    for t in range(T):
        state_ = torch.polar(alpha[0, t, 0], omega[0, t, 0])[:, None] * state_
        state_ = state_ + k[0, t, 0][:, None] * v[0, t, 0]
        rows.append((q[0, t, 0].to(state_.dtype) @ state_).real)
    close(stated(state(spec), q, k, v, given), rows)


def test_a_vector_under_a_phase_is_complex() -> None:
    """LRU: x_t = |λ| e^{iω} ∘ x_{t−1} + √(1 − |λ|²) u_t, both parts read."""
    spec = made(
        memory="diagonal",
        retention={"decay": "channel", "phase": {"from": "input", "per": "key"}},
        optimizer={"rate": "sqrt(1 - alpha**2)"},
    )
    q, k, v = vectors(2 * D)
    q, k = torch.ones_like(q), torch.ones_like(k)
    alpha, omega = torch.sigmoid(normal(T, 1, D, seed=4)), normal(T, 1, D, seed=5)
    x, rows = torch.zeros(D, dtype=torch.complex128), []
    for t in range(T):
        u = torch.complex(*(part.contiguous() for part in v[0, t, 0].chunk(2)))
        x = torch.polar(alpha[0, t, 0], omega[0, t, 0]) * x + (1 - alpha[0, t, 0] ** 2).sqrt() * u
        rows.append(torch.cat([x.real, x.imag]))
    close(stated(state(spec), q, k, v, {"log_alpha": alpha.log(), "phase": omega}), rows)


def test_a_bonus_weighs_the_pair_that_is_not_in_the_memory_yet() -> None:
    """RWKV-6: y_t = q (S_{t−1} + u ∘ k vᵀ), S_t = w ∘ S_{t−1} + k vᵀ."""
    bonus = {"memory": "before", "bonus": {"from": "input", "per": "key"}}
    spec = made(retention={"decay": "channel"}, readout=bonus)
    q, k, v = vectors()
    alpha, u = torch.sigmoid(normal(T, 1, D, seed=4)), normal(T, 1, D, seed=5)
    given = {"log_alpha": alpha.log(), "bonus": u}
    memory, rows = torch.zeros(D, V).double(), []
    for t in range(T):
        pair = k[0, t, 0][:, None] * v[0, t, 0]
        rows.append(q[0, t, 0] @ (memory + u[0, t, 0][:, None] * pair))
        memory = alpha[0, t, 0][:, None] * memory + pair
    close(stated(state(spec), q, k, v, given), rows)


@pytest.mark.parametrize("kind", ["sum", "max1"])
def test_a_normaliser_is_the_sum_of_weights(kind: str) -> None:
    """The mLSTM: C_t = f C_{t−1} + i v kᵀ, n_t = f n_{t−1} + i k, y = C q / max(|n·q|, 1)."""
    spec = made(
        retention={"decay": "token"}, readout={"normalizer": kind}, optimizer={"rate": "token"}
    )
    q, k, v = vectors()
    gate, rate = torch.sigmoid(normal(T, 1, seed=4)), torch.sigmoid(normal(T, 1, seed=5))
    memory, n, rows = torch.zeros(V, D).double(), torch.zeros(D).double(), []
    for t in range(T):
        f, i = gate[0, t, 0], rate[0, t, 0]
        memory = f * memory + i * torch.outer(v[0, t, 0], k[0, t, 0])
        n = f * n + i * k[0, t, 0]
        size = n @ q[0, t, 0]
        rows.append(memory @ q[0, t, 0] / (size.abs().clamp_min(1) if kind == "max1" else size))
    close(stated(state(spec), q, k, v, {"log_alpha": gate.log(), "eta": rate}), rows)


def test_without_any_weight_the_read_out_is_zero() -> None:
    q, k, v = vectors()
    spec = made(readout={"normalizer": "sum"}, optimizer={"rate": "token"})
    found = stated(state(spec), q, k, v, {"eta": torch.zeros(1, T, 1).double()})
    assert bool((found == 0).all())


def test_slots_are_a_memory_of_keys_and_one_of_values() -> None:
    """GSA: K_t = α K_{t−1} + (1 − α) kᵀ, V_t likewise, y = softmax(K q) V."""
    m = 4
    spec = made(
        memory={"kind": "linear", "slots": m}, retention={"decay": "channel"},
        keys={"write": "1 - alpha"},
    )  # fmt: skip
    q, k, v = vectors()
    alpha = torch.sigmoid(normal(T, 1, m, seed=4))
    given = {"log_alpha": alpha.log()}
    keys, values, rows = torch.zeros(m, D).double(), torch.zeros(m, V).double(), []
    for t in range(T):
        a = alpha[0, t, 0][:, None]
        keys, values = a * keys + (1 - a) * k[0, t, 0], a * values + (1 - a) * v[0, t, 0]
        rows.append(torch.softmax(keys @ q[0, t, 0], 0) @ values)
    close(stated(state(spec), q, k, v, given), rows)


PHASE = {"from": "input", "per": "key"}
SOLVED = {
    "bias": "l2", "window": "all", "optimizer": {"method": "exact"},
    "retention": {"global": {"l2": 0.5}},
}  # fmt: skip
COMBINED: tuple[dict[str, Any], ...] = (
    {"bias": "l2", "retention": {"decay": "channel", "phase": PHASE}},
    {"bias": "huber", "retention": {"phase": PHASE}, "features": "elu"},
    {"bias": "l2", "retention": {"phase": PHASE}, "window": 2},
    {
        "bias": "l2",
        "retention": {"decay": "token", "phase": PHASE},
        "optimizer": {"method": "momentum", "momentum": "token", "rate": "token"},
    },
    {"bias": "l2", "memory": "diagonal", "retention": {"decay": "channel", "phase": PHASE}},
    {
        "bias": "l2",
        "memory": "diagonal",
        "retention": {"phase": PHASE, "order": "before", "decay": "token"},
        "optimizer": {"method": "momentum", "momentum": "token", "rate": "token"},
    },
    {"bias": "l2", "readout": {"bonus": "channel"}, "retention": {"decay": "token"}},
    {"bias": "l2", "optimizer": {"rate": {"from": "input", "normalized": True}}},
    {
        "bias": {"expr": "sqrt(1+n**2)"},
        "optimizer": {"rate": {"from": "input", "normalized": True}},
    },
    {
        "bias": "l2",
        "memory": "diagonal",
        "optimizer": {"rate": {"from": "input", "normalized": True}},
    },
    {"optimizer": {"rate": {"from": "input", "normalized": True}}},
    {"bias": "l2", "retention": {"phase": PHASE}, "optimizer": {"method": "muon", "rate": 0.1}},
    {"readout": {"normalizer": "sum"}, "features": {"kind": "polynomial", "degree": 2}},
    {**SOLVED, "readout": {"bonus": "channel", "memory": "before"}},
    {**SOLVED, "readout": {"normalizer": "sum"}},
    {"bias": "l2", "memory": "diagonal", "readout": {"bonus": "channel"}},
    {"bias": "l2", "readout": {"memory": "before", "normalizer": "sum"}},
    {
        "bias": "l2",
        "features": {"kernel": "(1+s)**2/4"},
        "optimizer": {"rate": {"from": "input", "normalized": True}},
    },
    {"readout": {"levels": "token", "bonus": "channel"}, "retention": {"decay": "token"}},
)  # fmt: skip


@pytest.mark.some(10)
@pytest.mark.parametrize("entries", COMBINED, ids=str)
def test_the_interpreter_is_what_is_stated(entries: dict[str, Any]) -> None:
    rule = derive_spec(made(**entries))
    assert unspoken(rule.problem.spec) is None
    sample = draw(rule, Sizes(1, 5, 2, 3, 3), seed=7)
    given = (sample.q, sample.k, sample.v, sample.coefficients)
    y, _ = interpret(rule, *given, params=sample.params)
    torch.testing.assert_close(stated(rule.problem, *given), y, atol=1e-9, rtol=1e-9)


def test_a_diagonal_memory_at_intervals_is_not_spoken() -> None:
    told = unspoken(made(bias="l2", memory="diagonal", optimizer={"every": 3}))
    assert told is not None
    assert "diagonal" in told


def test_slots_that_a_prediction_asks_by_the_key_itself_are_not_spoken() -> None:
    slots = {"memory": {"kind": "linear", "slots": 4}, "keys": {"write": "1 - alpha"}}
    told = unspoken(made(bias="l2", retention={"decay": "channel"}, **slots))
    assert told is not None
    assert "slots" in told
