"""Decoding of a model beside the transformer: tokens a second and what is kept, by context."""

from __future__ import annotations

import copy
import json
import sys
import time
from typing import Any, Final

import torch

from mnemic.bench.models.subjects import SHAPE, TRANSFORMER, make, parameters
from mnemic.bench.models.turns import in_turns
from mnemic.bench.processes import python

CONTEXTS: Final = (1024, 4096, 16_384, 65_536)
OVERTAKES: Final = 4096
"""Tokens of context from which gated DeltaNet is to be as fast as the transformer."""
TOKENS: Final = 16
"""Tokens decoded in a round, one a call."""
PIECE: Final = 1024
"""Tokens of a prompt that are read at once."""
PATIENCE: Final = 120.0
"""Seconds of processor time for the prompt; longer contexts are left out."""
STATIC: Final = f"{TRANSFORMER}, static cache"


def run(name: str, longest: int = CONTEXTS[-1]) -> dict[str, Any]:
    """Measure a model's decoding in a process of its own; see `measure`."""
    return json.loads(python("-m", __name__, name, str(longest)).splitlines()[-1])  # type: ignore[no-any-return]


def measure(name: str, longest: int = CONTEXTS[-1]) -> dict[str, Any]:
    """Return seconds a token and bytes of the cache, by context, of the model and the transformer.

    A model reads the context in pieces. The transformer's keys and values are drawn, since what
    they are changes nothing of the time that they take; they lie in the cache that ``generate()``
    takes, which is copied to grow by a token, and in one of their final size.
    """
    model, other = make(name, SHAPE).eval(), make(TRANSFORMER, SHAPE).eval()
    found: dict[str, Any] = {"parameters": parameters(model), "seconds": {}, "bytes": {}}
    cache: Any = None
    seen, began = 0, time.process_time()
    for context in (at for at in CONTEXTS if at <= longest):
        while seen < context and time.process_time() - began < PATIENCE:
            cache, seen = _read(model, cache, seen), seen + PIECE
        if seen < context:
            break
        caches = _filled(other, context)
        runs = {
            "model": lambda kept=cache: _decode(model, copy.deepcopy(kept)),
            **{kind: lambda kept=c: _decode(other, kept).crop(-TOKENS)
               for kind, c in caches.items()},
        }  # fmt: skip
        spent = in_turns(runs)
        found["seconds"][str(context)] = {kind: x / TOKENS for kind, x in spent.items()}
        kept = sum(x.nbytes for layer in caches[TRANSFORMER].layers for x in _pair(layer))
        found["bytes"][str(context)] = {"model": cache.nbytes, TRANSFORMER: kept}
    return found


@torch.no_grad()
def _read(model: Any, cache: Any, seen: int) -> Any:
    rng = torch.Generator().manual_seed(seen)
    tokens = torch.randint(SHAPE.vocabulary, (1, PIECE), generator=rng)
    return model(input_ids=tokens, cache=cache, use_cache=True, logits_to_keep=1).cache


def _filled(model: Any, context: int) -> dict[str, Any]:
    """Fill caches with drawn keys and values of ``context`` tokens."""
    from transformers import DynamicCache, StaticCache

    config = model.config
    grows = DynamicCache(config=config)
    fixed = StaticCache(config=config, max_cache_len=context + TOKENS)
    size = config.hidden_size // config.num_attention_heads
    for layer in range(config.num_hidden_layers):
        drawn = torch.randn(2, 1, config.num_key_value_heads, context, size)
        for cache in (grows, fixed):
            cache.update(drawn[0], drawn[1], layer)
    return {TRANSFORMER: grows, STATIC: fixed}


def _pair(layer: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return layer.keys, layer.values


@torch.no_grad()
def _decode(model: Any, cache: Any) -> Any:
    """Decode ``TOKENS`` tokens, one a call, each the likeliest; the cache moves on by them."""
    token = torch.zeros(1, 1, dtype=torch.long)
    for _ in range(TOKENS):
        found = model(input_ids=token, cache=cache, use_cache=True)
        token = found.logits[:, -1:].argmax(-1)
    return cache


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
