"""Decoding token by token from states that hold contexts of several lengths."""

import time
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from mnemic.bench.started import Tensors, arguments
from mnemic.bench.text import embedded, text
from mnemic.pipeline import Compiled

CONTEXTS = (64, 1024, 16_384)
"""Tokens in the state when decoding begins; multiples of every chunk."""
DIM, HEADS = 64, 4
STEPS, ROUNDS = 32, 5
"""Tokens timed in a round, each by itself, and rounds; the least time of a token counts."""
FLAT = 1.25
"""Times a token that differ by less count as flat, on a machine that does other things too."""


@dataclass(frozen=True)
class Decoding:
    """Decoding with one spec: by context, the state's bytes and the seconds a token takes.

    ``fixed``: the state's bytes do not depend on the context.
    """

    name: str
    bytes: dict[int, int]
    seconds: dict[int, float]

    @property
    def fixed(self) -> bool:
        """Whether the state keeps its size over all contexts."""
        return len(set(self.bytes.values())) == 1

    @property
    def ratio(self) -> float:
        """The time of a token after the longest context over that after the shortest."""
        return self.seconds[max(self.seconds)] / self.seconds[min(self.seconds)]

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain data."""
        return {**asdict(self), "fixed": self.fixed, "ratio": self.ratio}


def run(compiled: Compiled, contexts: tuple[int, ...] = CONTEXTS) -> Decoding:
    """Measure decoding with a spec after each context, in float32, one token a call.

    Raises:
        EnvironmentFailed: this Python came without its sources.
    """
    given, params, states = started(compiled, contexts)
    best = dict.fromkeys(contexts, float("inf"))
    for index in range(ROUNDS + 1):
        for context in contexts:  # in turns, so that a noisy machine is unfair to none
            tokens = _slice(given, context, context + STEPS)
            spent = _decoded(compiled, tokens, params, states[context])
            if index:
                best[context] = min(best[context], spent)
    sizes = {context: size_of(states[context]) for context in contexts}
    return Decoding(compiled.spec.name, sizes, best)


def started(
    compiled: Compiled, contexts: tuple[int, ...] = CONTEXTS, dim: int = DIM, heads: int = HEADS
) -> tuple[Tensors, Tensors, dict[int, Tensors]]:
    """Return the arguments, the parameters, and the state after each context."""
    x = embedded(text(max(contexts) + STEPS), dim)
    given, params = ({n: t.float() for n, t in part.items()}
                     for part in arguments(compiled, x, heads=heads))  # fmt: skip
    states: dict[int, Tensors] = {}
    state: Tensors | None = None
    done = 0
    with torch.no_grad():
        for context in contexts:
            state = _call(compiled, _slice(given, done, context), params, state)
            states[context], done = state, context
    return given, params, states


def size_of(state: Tensors) -> int:
    """Count the bytes of a state."""
    return sum(x.numel() * x.element_size() for x in state.values())


def _slice(given: Tensors, low: int, high: int) -> Tensors:
    return {name: x[:, low:high] for name, x in given.items()}


def _call(compiled: Compiled, given: Tensors, params: Tensors, state: Tensors | None) -> Tensors:
    options: dict[str, Any] = {"params": params} if params else {}
    found: tuple[Tensor, Tensors] = compiled(
        **given, **options, initial_state=state, output_final_state=True
    )
    return found[1]


def _decoded(compiled: Compiled, given: Tensors, params: Tensors, state: Tensors) -> float:
    """Return the least seconds of a token, of several decoded one after another."""
    tokens = [_slice(given, i, i + 1) for i in range(STEPS)]
    least = float("inf")
    with torch.no_grad():
        for token in tokens:
            began = time.perf_counter()
            state = _call(compiled, token, params, state)
            least = min(least, time.perf_counter() - began)
    return least
