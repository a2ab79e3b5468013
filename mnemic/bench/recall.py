"""Recall of each chunk's pairs at its end, chunk by chunk, as an untrained layer starts.

Keys are random unit vectors and values N(0, 1); coefficients and initial memories are those of an
untrained layer. This detects a memory that learns in its first chunk only, since its first step is
so long that no later one changes it, which the loss of a short training does not show.
"""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, normalize

from mnemic.bench.started import Tensors, arguments
from mnemic.pipeline import Compiled

CHUNKS: Final = 16
DIM: Final = 32
LEAST: Final = 16
"""Tokens a chunk, or the first multiple of the rule's own intervals from there on."""
SEEDS: Final = 3
LATE: Final = 4
"""Chunks from here on, counted from 0, are late ones."""
KEPT: Final = 0.25
"""The least share of the first chunk's recall that late ones are to keep."""


@dataclass(frozen=True)
class Recalled:
    """The mean cosine between read-out and value of a chunk's pairs at its end, by chunk."""

    tokens: int
    cosines: tuple[float, ...]

    @property
    def late(self) -> float:
        """The mean cosine over late chunks."""
        late = self.cosines[LATE:]
        return sum(late) / len(late) if late else math.nan

    @property
    def share(self) -> float:
        """The recall of late chunks over that of the first."""
        return self.late / self.cosines[0]

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain data."""
        return {**asdict(self), "late": self.late, "share": self.share}


def run(compiled: Compiled, chunks: int = CHUNKS, dim: int = DIM, seeds: int = SEEDS) -> Recalled:
    """Measure a spec's recall by chunk: a head of ``dim`` channels, float64, mean of draws."""
    own = compiled.operator.signature.anchor
    tokens = own * -(-LEAST // own)
    chunks = compiled.operator.signature.at_most(chunks * tokens) // tokens
    rows = [torch.stack([*_drawn(compiled, chunks, tokens, dim, s)]) for s in range(seeds)]
    return Recalled(tokens, tuple(torch.stack(rows).mean(0).tolist()))


def _drawn(
    compiled: Compiled, chunks: int, tokens: int, dim: int, seed: int
) -> Iterator[Tensor]:  # fmt: skip
    """Yield the mean cosine of what is recalled of each chunk of one draw."""
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(1, chunks * tokens, dim, generator=rng, dtype=torch.float64)
    given, params = arguments(compiled, x, heads=1, seed=seed)
    given |= _pairs(given, rng)
    options: dict[str, Any] = {"params": params} if params else {}
    state: Tensors | None = None
    for i in range(chunks):
        own = {name: t[:, i * tokens : (i + 1) * tokens] for name, t in given.items()}
        with torch.no_grad():
            _, state = compiled(**own, **options, initial_state=state, output_final_state=True)
            found = _read_out(compiled, own, options, state)
            yield cosine_similarity(found, _flat(own["v"]), -1).mean()


def _pairs(given: Tensors, rng: torch.Generator) -> Tensors:
    """Draw unit keys and Gaussian values; what is predicted and erased is what was written."""
    k, v = (
        torch.randn(given[name].shape, generator=rng, dtype=torch.float64) for name in ("k", "v")
    )
    k = normalize(k, dim=-1)
    return {"k": k, "v": v} | {name: k for name in ("predict", "erase") if name in given}


def _read_out(compiled: Compiled, own: Tensors, options: dict[str, Any], state: Tensors) -> Tensor:
    """Read the memory's answers to the keys of a chunk."""
    rule, keys = compiled.operator, _flat(own["k"])
    needed = {name: own[name][:, -1:].expand_as(own[name]) for name in rule.reading}
    sizes = (1, own["v"].shape[-1])
    return torch.as_tensor(rule.read(keys, state, sizes=sizes, **options, **needed))


def _flat(x: Tensor) -> Tensor:
    """Flatten several steps a token to so many tokens: [B, T, n, H, d] → [B, T n, H, d]."""
    return x.flatten(1, 2) if x.ndim == 5 else x
