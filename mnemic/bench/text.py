"""A long text as a layer's input: source code, with lines that come again, embedded."""

import torch
from torch import Tensor

SOURCE_LINES = 20
"""A line that comes again is one of so many before it."""
AGAIN = 0.3
"""The share of lines that are followed by one that comes again."""
MEMORY = 0.6
"""How much of a token's embedding is the one before: neighbours in text correlate."""


def text(length: int, seed: int = 0) -> Tensor:
    """Return [length] bytes of Python's standard library; some lines come again soon after.

    Raises:
        EnvironmentFailed: this Python came without its sources.
    """
    from mnemic.search.tasks.bytes import corpus

    rng = torch.Generator().manual_seed(seed)
    lines = bytes(corpus("train")[: 2 * length].numpy()).split(b"\n")
    found = bytearray()
    for i, line in enumerate(lines):
        found += line + b"\n"
        if float(torch.rand((), generator=rng)) < AGAIN:
            back = int(torch.randint(SOURCE_LINES, (), generator=rng))
            found += lines[max(i - back, 0)] + b"\n"
        if len(found) >= length:
            break
    return torch.frombuffer(found[:length], dtype=torch.uint8).long()


def embedded(symbols: Tensor, dim: int, seed: int = 0) -> Tensor:
    """Embed [T] → [1, T, dim], float64: a fixed Gaussian vector a byte, smoothed, mean square 1.

    x_t = ρ x_{t−1} + √(1 − ρ²) E[byte_t] with ρ = ``MEMORY``.
    """
    rng = torch.Generator().manual_seed(seed)
    table = torch.randn(256, dim, generator=rng, dtype=torch.float64)
    fresh = (1 - MEMORY**2) ** 0.5 * table[symbols]
    taps = 24  # ρ^24 is 5e-6
    weights = MEMORY ** torch.arange(taps, dtype=torch.float64).flip(0)
    padded = torch.nn.functional.pad(fresh.mT, (taps - 1, 0))
    x = torch.nn.functional.conv1d(padded[:, None], weights[None, None])[:, 0].mT
    x = x / x.square().mean(-1, keepdim=True).sqrt().clamp_min(1e-6)
    return x[None]
