"""The parallel form, the steps and any split of the two agree; the shapes are the options'."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mnemic.errors import UsageError
from mnemic.models.contract import MakeLayer
from mnemic.models.feed_forward import KERNELS
from mnemic.models.language_model import LanguageModel, ModelOptions, build

OPTIONS = ModelOptions(vocabulary=11, dim=16, layers=2)


@pytest.fixture(params=["gated_delta", "causal_mean"])
def model(request: pytest.FixtureRequest) -> LanguageModel:
    """A model in float64, with an embedding large enough for its answers to differ."""
    made = build(OPTIONS, request.getfixturevalue(request.param), seed=1).double()
    torch.nn.init.normal_(made.embedding.weight, generator=torch.Generator().manual_seed(2))
    return made


def tokens(length: int) -> Tensor:
    return torch.randint(11, (3, length), generator=torch.Generator().manual_seed(0))


def test_steps_equal_the_parallel_form(model: LanguageModel) -> None:
    whole = model(tokens(9))
    state, stepped = None, []
    for token in tokens(9).T:
        logits, state = model.step(token, state)
        stepped.append(logits)
    torch.testing.assert_close(torch.stack(stepped, 1), whole)


@pytest.mark.parametrize("cut", [1, 2, 5, 8])
def test_a_split_with_carried_state_equals_the_whole(model: LanguageModel, cut: int) -> None:
    whole, state = model(tokens(9), output_state=True)
    first, carried = model(tokens(9)[:, :cut], output_state=True)
    second, after = model(tokens(9)[:, cut:], carried, output_state=True)
    torch.testing.assert_close(torch.cat([first, second], 1), whole)
    torch.testing.assert_close(after, state)


def test_cached_generation_equals_uncached(model: LanguageModel) -> None:
    grown = tokens(4)
    for _ in range(12):
        grown = torch.cat([grown, model(grown)[:, -1].argmax(-1, keepdim=True)], 1)
    assert len(set(grown[:, 4:].flatten().tolist())) > 2
    assert model.generate(tokens(4), 12).equal(grown)
    assert model.generate(tokens(4), 0).equal(tokens(4))


def test_samples_follow_the_generator(model: LanguageModel) -> None:
    def sample(seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        return model.generate(tokens(2), 10, temperature=20.0, generator=generator)

    assert sample(1).equal(sample(1))
    assert not sample(1).equal(sample(2))


def test_the_future_does_not_leak(model: LanguageModel) -> None:
    changed = tokens(9)
    changed[:, 6:] = 0
    torch.testing.assert_close(model(changed)[:, :6], model(tokens(9))[:, :6])


@pytest.mark.parametrize("feed_forward", ["swiglu", "none", *KERNELS])
def test_feed_forwards(feed_forward: str, causal_mean: MakeLayer) -> None:
    made = build(ModelOptions(11, dim=16, feed_forward=feed_forward), causal_mean)
    assert made(tokens(5)).shape == (3, 5, 11)
    made(tokens(5)).sum().backward()
    assert all(p.grad is not None for p in made.parameters())
    assert any("w_out" in name for name, _ in made.named_parameters()) == (feed_forward != "none")


def test_tied_or_not(causal_mean: MakeLayer) -> None:
    tied = build(OPTIONS, causal_mean)
    free = build(ModelOptions(11, dim=16, tied=False), causal_mean)
    assert tied.head.weight is tied.embedding.weight
    assert free.head.weight is not free.embedding.weight


def test_building_is_seeded_and_leaves_torchs_stream_alone(gated_delta: MakeLayer) -> None:
    torch.manual_seed(0)
    first = torch.rand(1)
    torch.manual_seed(0)
    one, same, other = (build(OPTIONS, gated_delta, seed) for seed in (4, 4, 5))
    assert torch.rand(1).equal(first)
    assert all(a.equal(b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
    assert not one.embedding.weight.equal(other.embedding.weight)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"layers": 0}, "layers: read 0, must be at least 1"),
        (
            {"feed_forward": "swigul"},
            "feed_forward: read 'swigul', allowed: swiglu, relu, silu, solu, exp, none;"
            " did you mean 'swiglu'?",
        ),
    ],
)
def test_wrong_options(wrong: dict[str, int | str], message: str, causal_mean: MakeLayer) -> None:
    with pytest.raises(UsageError) as caught:
        build(ModelOptions(11, **wrong), causal_mean)  # type: ignore[arg-type]
    assert str(caught.value) == message
