"""Capacity, influence and eigenvalues against formulas that are known from elsewhere."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

import mnemic
from mnemic.capacity import Held, held, influence, spectrum
from mnemic.capacity.drawing import of_influence, of_pairs
from mnemic.capacity.formula import least, mean_square
from mnemic.capacity.inputs import of_layer
from mnemic.capacity.pairs import scored
from mnemic.errors import UsageError


def noise(tokens: int, dim: int) -> torch.Tensor:
    rng = torch.Generator().manual_seed(3)
    return torch.randn(1, tokens, dim, generator=rng, dtype=torch.float64)


def test_the_dot_loss_errs_as_its_kernel_says() -> None:
    found = held(mnemic.compile("linear-attention"), dim=24, most=96, draws=12)
    assert found.predicted is not None
    for count, seen, told in zip(found.pairs, found.errors, found.predicted, strict=True):
        if count >= 16:
            assert seen == pytest.approx(told, rel=0.1)


def test_no_linear_memory_errs_less_than_its_features_allow() -> None:
    found = held(mnemic.compile("rls"), dim=16, most=96, draws=4)
    assert found.features == 16
    assert found.bound is not None
    late = [(e, b) for n, e, b in zip(found.pairs, found.errors, found.bound, strict=True)
            if n > 16]  # fmt: skip
    assert all(e > b - 0.05 for e, b in late)
    assert held(mnemic.compile("linear-attention"), dim=16, most=96, draws=4).held < found.held


def test_deep_memories_hold_pairs_too() -> None:
    found = held(mnemic.compile("ttt-mlp"), dim=8, most=32, draws=1)
    assert found.pairs == (16, 32)
    assert found.features is None
    assert found.recalled[0] > 3 / 16


def test_scores_of_known_memories() -> None:
    values = torch.eye(4, dtype=torch.float64)
    assert scored(3 * values, values) == (1.0, pytest.approx(0.0, abs=1e-12))
    assert scored(torch.zeros(4, 4, dtype=torch.float64), values)[1] == 1.0
    assert scored(values.roll(1, 0), values) == (0.0, 1.0)
    assert scored(math.nan * values, values) == (0.0, 1.0)


def test_the_mean_square_of_a_kernel_is_that_of_random_unit_vectors() -> None:
    assert mean_square(lambda s: s**2, 10) == pytest.approx(3 / (10 * 12))  # E s⁴
    rng = torch.Generator().manual_seed(0)
    x = torch.nn.functional.normalize(torch.randn(2, 200000, 6, generator=rng), dim=-1)
    sampled = (2 * (x[0] * x[1]).sum(-1)).exp().mean()
    assert mean_square(math.exp, 6) == pytest.approx(float(sampled), rel=0.01)
    assert least(4, (2, 8)) == (0.0, 0.5)


def test_influence_is_the_jacobian_and_decay_the_product() -> None:
    """Mamba-2's y_t = Σ_i Π α η_i (k_i·q_t) v_i, so that |∂y_t/∂v_i| is that factor's size."""
    compiled = mnemic.compile("mamba2")
    x = noise(10, 8)
    found = influence(compiled, x)
    given, _ = of_layer(compiled, x, 0)
    logs = (-given["eta"][0, :, 0] * given["a"][0, :, 0]).cumsum(0)
    assert found.decay is not None
    for t in range(10):
        for i in range(t + 1):
            alpha = float((logs[t] - logs[i]).exp())
            assert found.decay[t][i] == pytest.approx(alpha)
            own = float(given["eta"][0, i, 0]) * float(given["k"][0, i, 0] @ given["q"][0, t, 0])
            ratio = found.measured[t][i] / abs(alpha * own)
            assert ratio == pytest.approx(found.measured[0][0] / abs(
                float(given["eta"][0, 0, 0]) * float(given["k"][0, 0, 0] @ given["q"][0, 0, 0])
            ))  # fmt: skip
        assert not any(found.measured[t][t + 1 :])


def test_eigenvalues_of_the_delta_rule() -> None:
    """α(I − η k kᵀ) has α, and α(1 − η ‖k‖²) once for each row of the memory."""
    compiled = mnemic.compile("gated-deltanet")
    x = noise(6, 4)
    found = spectrum(compiled, x, count=2)
    given, _ = of_layer(compiled, x, 0)
    for t, own in zip(found.tokens, found.values, strict=True):
        alpha = float(given["log_alpha"][0, t, 0].exp())
        erased = alpha * (1 - float(given["eta"][0, t, 0] * given["k"][0, t, 0].square().sum()))
        expected = sorted([alpha] * 12 + [erased] * 4)
        assert sorted(z[0] for z in own) == pytest.approx(expected, abs=1e-9)
        assert all(abs(z[1]) < 1e-6 for z in own)
    assert found.least == pytest.approx(min(z[0] for own in found.values for z in own))


def test_what_has_no_transition_is_refused() -> None:
    with pytest.raises(UsageError, match="grows with the tokens"):
        spectrum(mnemic.compile("softmax-attention"), noise(4, 4), count=1)
    with pytest.raises(UsageError, match="at most 1600"):
        spectrum(mnemic.compile("titans"), noise(4, 32), count=1)


def test_pictures_have_what_is_told() -> None:
    compiled = mnemic.compile("gated-deltanet")
    x = noise(6, 4)
    assert "linear bound" in of_pairs(held(compiled, dim=4, most=8, draws=1))
    assert "derived" in of_influence(influence(compiled, x), spectrum(compiled, x, count=1))


def test_what_is_held_in_words() -> None:
    least = Held("mine", 16, (16, 32), (0.5, 0.2), (0.5, 0.8), None, None, None, 1)
    assert least.held_in_words == "fewer than 16"
    assert replace(least, recalled=(1.0, 0.5)).held_in_words == "16"
    assert replace(least, recalled=(1.0, 1.0)).held_in_words == "32 or more"
