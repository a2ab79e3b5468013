"""The models that are compared: of a spec, and transformers' Llama with as many parameters."""

from __future__ import annotations

from typing import Final

import torch
from torch import nn

from mnemic.bench.store import versions as plain_versions
from mnemic.codegen.support.seeded import seeded
from mnemic.dsl.hashing import spec_hash
from mnemic.hf.build import make_config, make_model
from mnemic.hf.pattern import sources
from mnemic.hf.shape import Shape
from mnemic.pipeline import read

TRANSFORMER: Final = "transformer"
"""What stands among names of specs for transformers' Llama, with PyTorch's attention."""

EACH: Final = (
    "gated-deltanet", "gla", "mesa", "ttt-linear", "huber-coordinate", "deltaformer", "swa",
)  # fmt: skip
"""A spec of each class that has a chunk form."""

SHAPE: Final = Shape(4, 192, 3, vocabulary=256, length=2**17)
"""The sizes of the models: two million parameters."""

NAMED_AFTER: Final = "gated-deltanet"
"""The model that the transformer has as many parameters as."""


def make(name: str, shape: Shape, seed: int = 0) -> nn.Module:
    """Return a model of a spec's layers or of a pattern of several, or the transformer.

    Raises:
        InvalidSpec: there is no such spec, or it is not compiled.
    """
    if name == TRANSFORMER:
        return _transformer(shape, seed)
    return make_model(make_config(sources(name), shape), seed)


def parameters(model: nn.Module) -> int:
    """Return how many parameters a model has, tied ones once."""
    return sum(p.numel() for p in model.parameters())


def key(name: str) -> str:
    """Return what a kept result of a model depends on beside versions and sizes."""
    if name == TRANSFORMER:
        return name
    return " ".join(spec_hash(read(source)) for source in dict.fromkeys(sources(name)))


def versions() -> dict[str, str]:
    """Return what results of whole models depend on."""
    from importlib.metadata import version

    return {**plain_versions(), "transformers": version("transformers")}


def _transformer(shape: Shape, seed: int) -> nn.Module:
    """Return the Llama whose feed-forward is as wide as makes both models equally large.

    Its maps are drawn from N(0, 1/dim), as those of our models are: with its own 0.02 it learns
    more slowly in the first hundreds of steps.
    """
    from transformers import LlamaForCausalLM

    with torch.device("meta"):
        whole = parameters(make(NAMED_AFTER, shape))
        one, two = (parameters(LlamaForCausalLM(_llama(shape, hidden))) for hidden in (1, 2))
    with seeded(seed):
        hidden = max(1, round((whole - one) / (two - one) + 1))
        found: nn.Module = LlamaForCausalLM(_llama(shape, hidden))
        return found


def _llama(shape: Shape, hidden: int) -> object:
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.dim,
        intermediate_size=hidden,
        num_hidden_layers=shape.blocks,
        num_attention_heads=shape.heads or max(1, shape.dim // 64),
        max_position_embeddings=shape.length,
        tie_word_embeddings=shape.tied,
        initializer_range=shape.dim**-0.5,
        attn_implementation="sdpa",
    )
