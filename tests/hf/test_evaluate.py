"""What a model knows of a text, by position and by distance; layers in other people's models."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path

import pytest
import torch
from small_models import VOCABULARY, small, tokens

from mnemic.errors import UsageError
from mnemic.hf.evaluate import COPIED, by_distance, by_position
from mnemic.hf.modeling_mnemic import MnemicForCausalLM


def test_positions_are_spans_that_double() -> None:
    model, rows = small("gated-deltanet"), tokens(3, 12)
    found = by_position(model, [rows[0], rows[1:].flatten(), rows[0, :5]], 12, batch=2)
    assert [(span.first, span.last) for span in found] == [(1, 1), (2, 3), (4, 7), (8, 11)]
    logits = model(rows).logits[:, :-1].detach()
    nats = -logits.log_softmax(-1).gather(-1, rows[:, 1:, None])[..., 0]
    for span in found:
        expected = nats[:, span.first - 1 : span.last].mean().item() / math.log(2)
        assert span.bits == pytest.approx(expected, rel=1e-5)
    with pytest.raises(UsageError, match=r"^--length 13: the longest document has 12 tokens$"):
        by_position(model, [rows[0]], 13)


class Copier(torch.nn.Module):
    """A model that knows what stood a fixed number of tokens before, and nothing else."""

    def __init__(self, back: int) -> None:
        super().__init__()
        self.back = back

    def forward(self, rows: torch.Tensor, use_cache: bool) -> object:
        told = torch.zeros(*rows.shape, VOCABULARY)
        known = rows[:, : rows.shape[1] - self.back + 1, None]
        told[:, self.back - 1 :].scatter_(2, known, 30.0)
        return type("Output", (), {"logits": told})


def test_a_model_that_copies_finds_the_passage_at_its_distance_alone() -> None:
    text = torch.randint(VOCABULARY, (400,), generator=torch.Generator().manual_seed(3))
    model: MnemicForCausalLM = Copier(COPIED + 32)  # type: ignore[assignment]
    there, other = by_distance(model, text, [32, 40])
    assert (there.bits, there.exact) == (pytest.approx(0.0, abs=1e-3), 1.0)
    assert other.exact < 0.3
    assert other.bits > math.log2(VOCABULARY)
    assert there.first == pytest.approx(math.log2(VOCABULARY))
    with pytest.raises(UsageError, match=r"^--distance 999: the text has 400 tokens$"):
        by_distance(model, text, [999])


def test_memories_in_the_place_of_a_llamas_attention() -> None:
    path = Path(__file__).parents[2] / "examples" / "llama_memory.py"
    place = importlib.util.spec_from_file_location("llama_memory", path)
    assert place is not None
    assert place.loader is not None
    example = importlib.util.module_from_spec(place)
    place.loader.exec_module(example)
    found = example.run("gated-deltanet", steps=12, dim=16, blocks=2)
    assert found["memory, trained on"] < found["memory, as it was put in"] < 8.5
    assert found["memory, trained on"] < found["attention"]
