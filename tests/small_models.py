"""Small language models of any specs, and a spec of every class to make them of."""

from __future__ import annotations

import torch
from packaged import FACTS, available
from torch import Tensor

from mnemic.hf.build import make_config, make_model
from mnemic.hf.modeling_mnemic import MnemicForCausalLM
from mnemic.hf.shape import Shape

VOCABULARY = 29


def one_of_each() -> list[str]:
    """The last spec by name of each class, with and without attention beside it."""
    found: dict[tuple[str, ...], str] = {}
    for name in available():
        told = [t for t in FACTS[name]["traits"] if t.startswith(("class ", "hybrid "))]
        found[tuple(told)] = name
    return sorted(found.values())


def small(*specs: str, blocks: int = 2, **told: int) -> MnemicForCausalLM:
    """A model in float64 whose answers differ: a large embedding, and a head of its own."""
    shape = Shape(blocks, **{"dim": 16, "vocabulary": VOCABULARY, "tied": False, **told})
    model = make_model(make_config(specs, shape)).double().eval()
    generator = torch.Generator().manual_seed(1)
    torch.nn.init.normal_(model.get_input_embeddings().weight, generator=generator)
    return model


def drawn(*specs: str) -> MnemicForCausalLM:
    """A model in float32 as it starts, with a block of each spec."""
    shape = Shape(len(specs), dim=16, vocabulary=VOCABULARY)
    return make_model(make_config(specs, shape)).eval()


def tokens(rows: int = 2, length: int = 9, seed: int = 0) -> Tensor:
    """Rows of tokens."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(VOCABULARY, (rows, length), generator=generator)
