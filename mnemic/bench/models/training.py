"""Training's speed of a model beside the transformer of its size, and beside its own parts."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mnemic.bench.models.subjects import SHAPE, TRANSFORMER, make, parameters
from mnemic.bench.models.turns import Run, in_turns
from mnemic.bench.processes import OutOfMemory, python
from mnemic.hf.modeling_mnemic import MnemicForCausalLM

LENGTHS: Final = (512, 2048, 8192, 16_384)
OVERTAKES: Final = 2048
"""Tokens from which gated DeltaNet is to be as fast as the transformer."""
PARTS_AT: Final = 2048
"""Tokens at which a model is compared with its parts."""


def run(name: str, longest: int = LENGTHS[-1]) -> dict[str, Any]:
    """Measure a model's training in a process of its own; see `measure`.

    Lengths for which there is not memory enough are left out.

    Raises:
        OutOfMemory: there is not enough for the shortest.
    """
    lengths = [at for at in LENGTHS if at <= longest]
    while True:
        try:
            told = python("-m", __name__, name, str(lengths[-1]))
        except OutOfMemory:
            if len(lengths) == 1:
                raise
            lengths.pop()
            continue
        return json.loads(told.splitlines()[-1])  # type: ignore[no-any-return]


def measure(name: str, longest: int = LENGTHS[-1]) -> dict[str, Any]:
    """Return seconds of a forward and backward pass by length, of the model and the transformer.

    One sequence, in turns; the least of some rounds. ``parts`` has the time of the whole model and
    of its memory layers, feed-forwards and head alone, one after another.
    """
    model, other = make(name, SHAPE).train(), make(TRANSFORMER, SHAPE).train()
    found: dict[str, Any] = {"parameters": parameters(model), "seconds": {}}
    for length in (at for at in LENGTHS if at <= longest):
        tokens = _tokens(length)
        runs = {"model": _passes(model, tokens), TRANSFORMER: _passes(other, tokens)}
        found["seconds"][str(length)] = in_turns(runs)
    if isinstance(model, MnemicForCausalLM):
        tokens = _tokens(min(PARTS_AT, longest))
        runs = {"model": _passes(model, tokens), "parts": _alone(model, tokens)}
        found["parts"] = in_turns(runs)
    return found


def _tokens(length: int) -> Tensor:
    rng = torch.Generator().manual_seed(0)
    return torch.randint(SHAPE.vocabulary, (1, length), generator=rng)


def _passes(model: nn.Module, tokens: Tensor) -> Run:
    """Return a function that runs the model forward and backward."""

    def run() -> None:
        model.zero_grad()
        model(input_ids=tokens, labels=tokens, use_cache=False).loss.backward()

    return run


def _alone(model: MnemicForCausalLM, tokens: Tensor) -> Run:
    """Return a function that runs each layer and product by itself, forward and backward."""
    rng = torch.Generator().manual_seed(1)
    x = torch.randn(1, tokens.shape[1], SHAPE.dim, generator=rng)
    parts: list[Callable[[Tensor], Tensor]] = list(_layers(model))

    def run() -> None:
        model.zero_grad()
        for part in parts:
            out = part(x.clone().requires_grad_())
            out.backward(torch.ones_like(out))  # type: ignore[no-untyped-call]
        logits = model.lm_head(x.clone().requires_grad_())
        F.cross_entropy(logits[0, :-1], tokens[0, 1:]).backward()  # type: ignore[no-untyped-call]

    return run


def _layers(model: MnemicForCausalLM) -> Iterator[nn.Module]:
    block: Any
    for block in model.model.layers:
        yield block.memory
        if block.feed_forward is not None:
            yield block.feed_forward


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
