"""Numerical checks that a model must pass before it is trained or served."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mnemic.codegen.support.seeded import seeded
from mnemic.hf.cache_mnemic import MnemicCache
from mnemic.hf.configuration_mnemic import MnemicConfig
from mnemic.hf.modeling_mnemic import MnemicForCausalLM

BOUND = 1e-8
"""The largest difference that is rounding: in float64, relative to the largest number compared."""

TOKENS = 24
"""Tokens of a check's sequences."""


@dataclass(frozen=True)
class Check:
    """A comparison of two computations, and their difference."""

    name: str
    error: float
    bound: float = BOUND

    @property
    def passed(self) -> bool:
        """Whether the two are equal up to rounding; NaN is not."""
        return self.error <= self.bound


@torch.no_grad()
def run_checks(config: MnemicConfig) -> tuple[Check, ...]:
    """Compare computations that must agree, in float64, on a model with each memory once, at full
    width.

    The vocabulary is cut to 64 tokens, and the memories stand in the order of the configuration.
    """
    settings = config.to_dict() | {"layers": list(config.memories or {}), "vocab_size": 64}
    small = MnemicConfig(**{k: x for k, x in settings.items() if not k.endswith("token_id")})
    with seeded(0):
        model = MnemicForCausalLM(small).double().eval()
        nn.init.normal_(model.get_input_embeddings().weight)
        tokens = torch.randint(64, (2, TOKENS))
        found = [_cached(model, tokens), _padded(model, tokens), _packed(model, tokens)]
        return (*found, *_forms(model))


def _cached(model: MnemicForCausalLM, tokens: Tensor) -> Check:
    """Compare a prompt in two pieces and tokens one by one with the whole."""
    whole = model(tokens, use_cache=False).logits
    cache, parts = MnemicCache(model.config.num_hidden_layers), []
    third = TOKENS // 3
    for piece in (
        tokens[:, :third],
        tokens[:, third : 2 * third],
        *tokens[:, 2 * third :].split(1, 1),
    ):
        parts.append(model(piece, cache=cache).logits)
    return Check("with a cache, in pieces and token by token, as without", _error(parts, whole))


def _padded(model: MnemicForCausalLM, tokens: Tensor) -> Check:
    """Compare a row padded on its left beside a whole one with the two alone."""
    begin = TOKENS // 3
    mask = torch.ones_like(tokens)
    mask[0, :begin] = 0
    both = model(tokens, attention_mask=mask, use_cache=False).logits
    alone = [model(tokens[:1, begin:]).logits, model(tokens[1:]).logits]
    error = max(_error([both[:1, begin:]], alone[0]), _error([both[1:]], alone[1]))
    return Check("a batch with padding on the left as its rows alone", error)


def _packed(model: MnemicForCausalLM, tokens: Tensor) -> Check:
    """Compare two documents in a row with each in a row of its own."""
    cut = TOKENS // 3
    position = torch.cat([torch.arange(cut), torch.arange(TOKENS - cut)])[None]
    packed = model(tokens[:1], position_ids=position, use_cache=False).logits
    alone = [model(part).logits for part in (tokens[:1, :cut], tokens[:1, cut:])]
    return Check("documents packed into a row as documents alone", _error(alone, packed))


def _forms(model: MnemicForCausalLM) -> Iterator[Check]:
    """Compare each memory's chunk form, where it has one, with its recurrence; yield the checks."""
    for name, block in zip(model.config.layers, model.model.layers, strict=True):
        memory: Any = block.memory
        if "chunk" not in memory.rule.forms:
            continue
        x = torch.randn(1, TOKENS, model.config.hidden_size, dtype=torch.float64)
        chunk, token = (memory(x, form=form) for form in ("chunk", "recurrent"))
        yield Check(f"{name}: chunk by chunk as token by token", _error([chunk], token))


def _error(parts: list[Tensor], whole: Tensor) -> float:
    """Return the largest difference of pieces in time and the whole, over its largest number."""
    found = torch.cat(parts, 1)
    return float((found - whole).abs().max() / whole.abs().max())
