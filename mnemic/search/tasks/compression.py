"""Compression: a whole sequence recovered from what the model holds at its last token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mnemic.search.tasks.base import Batch, Split, Task
from mnemic.search.tasks.draws import integers
from mnemic.search.tasks.options import Options, number
from mnemic.search.tasks.recall import SOURCE


@dataclass(frozen=True)
class CompressionOptions(Options):
    """The options of `Compression`: the published baseline setting."""

    vocabulary: int = number(16, 3, 2**16, "tokens: symbols and the mark at the end")
    length: int = number(32, 2, 2**14, "tokens in a sequence (T)")


class Compression(Task[CompressionOptions]):
    """Recover each token of a sequence from the model's stream at the last one.

    Uniform symbols, then the mark. The targets are the inputs, each at its own place, but a
    place sees of the sequence only the stream at the mark, to which its position is added: see
    `Decoder`, which stands between model and head. As published: vocabulary 16, 31 symbols and
    the mark, whose own place is scored too. The sweep goes to vocabulary 128 and length 256.
    """

    name = "compression"
    title = "a sequence from its last token's stream"
    source = SOURCE
    options_type = CompressionOptions
    ladder: ClassVar = {
        "tiny": {"vocabulary": 8, "length": 8},
        "small": {"length": 16},
        "published": {},
        "wide": {"vocabulary": 128},
        "long": {"length": 256},
    }

    @property
    def vocabulary(self) -> int:
        """The number of tokens: symbols, then the mark."""
        return self.options.vocabulary

    @property
    def chance(self) -> float:
        """The score of guessing any symbol in each place but the last, where the mark stands."""
        length = self.options.length
        return ((length - 1) / (self.vocabulary - 1) + 1) / length

    def batch(self, generator: torch.Generator, size: int, split: Split) -> Batch:
        """Draw ``size`` sequences, [size, T]; the split matters through the generator alone."""
        tokens = integers(generator, self.vocabulary - 1, size, self.options.length)
        tokens[:, -1] = self.vocabulary - 1
        return Batch(tokens, tokens.clone())

    def decoder(self, dim: int) -> nn.Module:
        """Make the perceptron that takes the last token's stream apart."""
        return Decoder(dim)

    def word(self, token: int) -> str:
        """Return a token's word: ``s3``, ``end``."""
        return "end" if token == self.vocabulary - 1 else f"s{token}"


class Decoder(nn.Module):
    """y_t = norm(g(W_2 norm(g(W_1 norm(x_T + p_t))))), with g the GELU and p_t sines and cosines.

    As published: no layer wider than the stream. Wavelengths of p_t run from 2π to 10⁴ 2π.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.inner, self.outer = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.norms = nn.ModuleList(nn.RMSNorm(dim, eps=1e-6) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        """Decode x, [B, T, dim] to [B, T, dim]; its last token is read alone."""
        before, between, after = self.norms
        y = x[:, -1:] + positions(x.shape[1], self.dim).to(x)
        y = F.gelu(self.inner(before(y)))
        y = F.gelu(self.outer(between(y)))
        out: Tensor = after(y)
        return out


def positions(length: int, dim: int) -> Tensor:
    """Return [length, dim]: sines, then cosines, of falling frequency."""
    half = (dim + 1) // 2
    rates = 10.0 ** (-4 * torch.arange(half) / max(1, half - 1))
    angles = torch.arange(length)[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], 1)[:, :dim]
