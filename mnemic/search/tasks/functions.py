"""Five families of functions to be learned from examples, as they come."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from mnemic.errors import Issue
from mnemic.search.tasks.exercise import O, Split
from mnemic.search.tasks.memory_task import MemoryTask, Pairs
from mnemic.search.tasks.options import Options, number, refuse

SOURCE = "Behrouz et al. 2025, Atlas, section 6.4, figure 6"
_TINY: Mapping[str, object] = {"dim": 8, "length": 64}
_SMALL: Mapping[str, object] = {"dim": 32, "length": 256}


@dataclass(frozen=True)
class FunctionOptions(Options):
    """The options of most function tasks; the paper tells neither number."""

    dim: int = number(64, 2, 1024, "of inputs and outputs (d)")
    length: int = number(1024, 4, 2**14, "predictions in a sequence (T)")


@dataclass(frozen=True)
class LowRankOptions(FunctionOptions):
    """The options of `LowRank`; the paper does not tell the rank either."""

    rank: int = number(8, 1, 1024, "of the matrix")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rank > self.dim:
            refuse([Issue(f"no more than dim, which is {self.dim}", "rank", str(self.rank))])


@dataclass(frozen=True)
class WindowOptions(FunctionOptions):
    """The options of `WindowMlp`; the window is the published one."""

    window: int = number(512, 1, 2**14, "positions that the attention sees, its own included")


class FunctionTask(MemoryTask[O]):
    """i_1, i_2, … and o_j = f(i_1 … i_j), with a new f for each sequence.

    i is standard normal. Every matrix of f has independent normal entries of variance one over
    its inputs, so that outputs are of the inputs' size; the paper leaves that open, as it does
    d and T. The loss is printed as |i_j - o_j|²/|o_j|²; its i_j stands for the memory's answer
    to i_j. There an MLP is trained by gradient steps on each pair as it comes; here that is the
    memory's own rule.
    """

    source = SOURCE
    options: FunctionOptions  # type: ignore[assignment]

    @property
    def dim(self) -> int:
        """The size d of inputs and of outputs."""
        return self.options.dim

    @property
    def length(self) -> int:
        """The length T: the predictions of a sequence."""
        return self.options.length

    @abstractmethod
    def sequence(self, generator: torch.Generator, inputs: Tensor) -> Pairs:
        """Map the inputs [B, T + 1, d] by a new function for each sequence."""

    def pairs(self, generator: torch.Generator, size: int, split: Split) -> Pairs:
        """Draw ``size`` sequences; the split matters through the generator alone."""
        return self.sequence(generator, _normal(generator, size, self.length + 1, self.dim))


class LowRank(FunctionTask[LowRankOptions]):
    """o = Wᵀ i with W = X Y, X [d, rank] and Y [rank, d]."""

    name = "low-rank"
    title = "functions: a low-rank matrix"
    options_type = LowRankOptions
    ladder: ClassVar = {"tiny": {**_TINY, "rank": 2}, "small": _SMALL, "published": {}}
    options: LowRankOptions

    def sequence(self, generator: torch.Generator, inputs: Tensor) -> Pairs:
        """Map inputs i to i X Y, by a new matrix of low rank for each sequence."""
        d, rank, size = self.dim, self.options.rank, len(inputs)
        x = _normal(generator, size, d, rank) / math.sqrt(d)
        y = _normal(generator, size, rank, d) / math.sqrt(rank)
        return Pairs(inputs, inputs @ (x @ y))


class Mlp(FunctionTask[FunctionOptions]):
    """o = W_2ᵀ g(W_1ᵀ i), with g the GELU and d hidden units."""

    name = "mlp"
    title = "functions: a perceptron"
    options_type = FunctionOptions
    ladder: ClassVar = {"tiny": _TINY, "small": _SMALL, "published": {}}

    def sequence(self, generator: torch.Generator, inputs: Tensor) -> Pairs:
        """Map the inputs by a new MLP for each sequence."""
        return Pairs(inputs, _mlp(generator, inputs))


class AttentionMlp(FunctionTask[FunctionOptions]):
    """o_j = MLP(o'_j), o' causal softmax attention over i_1 … i_j; the key is i_j.

    q, k, v are W_Qᵀ i, W_Kᵀ i and W_Vᵀ i, the attention one head scaled by 1/√d. Printed are
    W_K for the values too, and o_j = MLP(o_j); three matrices are drawn there, so both are taken
    for slips.
    """

    name = "attention-mlp"
    title = "functions: attention, then a perceptron"
    options_type = FunctionOptions
    ladder: ClassVar = {"tiny": _TINY, "small": _SMALL, "published": {}}

    def sequence(self, generator: torch.Generator, inputs: Tensor) -> Pairs:
        """Map the inputs by a new causal attention, then a new MLP, for each sequence."""
        seen = _attended(generator, inputs, inputs.shape[1])
        return Pairs(inputs, _mlp(generator, seen))


class AttendedInputs(FunctionTask[FunctionOptions]):
    """o_j = MLP(o'_j) as in `AttentionMlp`, but the key is o'_j: correlated inputs of an MLP."""

    name = "attended-inputs"
    title = "functions: a perceptron of attended inputs"
    options_type = FunctionOptions
    ladder: ClassVar = {"tiny": _TINY, "small": _SMALL, "published": {}}

    def sequence(self, generator: torch.Generator, inputs: Tensor) -> Pairs:
        """Attend to the inputs causally, and map these keys by a new MLP for each sequence."""
        seen = _attended(generator, inputs, inputs.shape[1])
        return Pairs(seen, _mlp(generator, seen))


class WindowMlp(FunctionTask[WindowOptions]):
    """o_j = MLP(o'_j) as in `AttentionMlp`, the attention over a sliding window (512)."""

    name = "window-mlp"
    title = "functions: windowed attention, then a perceptron"
    options_type = WindowOptions
    ladder: ClassVar = {
        "tiny": {**_TINY, "window": 16},
        "small": {**_SMALL, "window": 64},
        "published": {},
    }
    options: WindowOptions

    def sequence(self, generator: torch.Generator, inputs: Tensor) -> Pairs:
        """Map the inputs by a new attention over a window, then a new MLP, for each sequence."""
        seen = _attended(generator, inputs, self.options.window)
        return Pairs(inputs, _mlp(generator, seen))


def _normal(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _matrix(generator: torch.Generator, inputs: Tensor) -> Tensor:
    """Draw one random matrix a sequence, [B, d, d]."""
    size, _, d = inputs.shape
    return _normal(generator, size, d, d) / math.sqrt(d)


def _mlp(generator: torch.Generator, x: Tensor) -> Tensor:
    hidden = F.gelu(x @ _matrix(generator, x))
    out: Tensor = hidden @ _matrix(generator, x)
    return out


def _attended(generator: torch.Generator, x: Tensor, window: int) -> Tensor:
    """Compute causal softmax attention over the last ``window`` positions, its maps drawn anew."""
    q, k, v = (x @ _matrix(generator, x) for _ in range(3))
    age = torch.arange(x.shape[1])[:, None] - torch.arange(x.shape[1])
    seen = (age >= 0) & (age < window)
    out: Tensor = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
    return out
