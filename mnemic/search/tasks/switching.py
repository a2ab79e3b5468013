"""The switching autoregressive process: predict the next step while the dynamics change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from mnemic.search.tasks.exercise import Split
from mnemic.search.tasks.memory_task import MemoryTask, Pairs
from mnemic.search.tasks.options import Options, number

FAST, SLOW, NOISE = 0.9, 0.999, 0.02


@dataclass(frozen=True)
class SwitchingOptions(Options):
    """The options of `Switching`; the defaults are the published ones."""

    dim: int = number(64, 2, 1024, "of keys and values (d)")
    length: int = number(256, 8, 2**16, "predictions in a sequence (T)")
    correlation: float = number(0.5, 0.0, 0.99, "between any two coordinates of the noise")


class Switching(MemoryTask[SwitchingOptions]):
    """k_{t+1} = a_t k_t + 0.02 ε_t, with a_t = 0.9 for t < T/4 and 0.999 from there on.

    ε_t ~ N(0, Σ), Σ with ones on the diagonal; v_t = k_{t+1}/|k_{t+1}|; asked with q_t = k_{t+1}.
    Values are unit vectors, so the relative error is the squared error of the figure. T = 256 and
    d = 64 as published. Left open there and chosen here: Σ is 0.5 off the diagonal, and k_1 comes
    from the first process's stationary law. The published linear attention had its output
    normalised: `evaluate(..., unit=True)`.

    No memory reaches zero, as the noise is unknown. The paper's own yardstick is to answer with
    the value before, which is k_{t+1}/|k_{t+1}|, the query's direction.
    """

    name = "switching"
    title = "switching autoregressive process"
    source = "Wang, Shi and Fox 2025, Test-time regression, section 5, (55), figure 2"
    options_type = SwitchingOptions
    ladder: ClassVar = {
        "tiny": {"dim": 8, "length": 64},
        "small": {"dim": 16, "length": 128},
        "published": {},
        "long": {"length": 1024},
    }

    @property
    def dim(self) -> int:
        """The size d of a step of the process."""
        return self.options.dim

    @property
    def length(self) -> int:
        """The length T: the predictions of a sequence."""
        return self.options.length

    def pairs(self, generator: torch.Generator, size: int, split: Split) -> Pairs:
        """Draw ``size`` sequences; the split matters through the generator alone."""
        o = self.options
        shape = (o.length + 2, size, o.dim)
        own = torch.randn(shape, generator=generator, dtype=torch.float64)
        common = torch.randn((*shape[:2], 1), generator=generator, dtype=torch.float64)
        noise = NOISE * ((1 - o.correlation) ** 0.5 * own + o.correlation**0.5 * common)
        keys = [noise[0] / (1 - FAST**2) ** 0.5]
        for t in range(1, o.length + 2):
            keys.append((FAST if t < o.length / 4 else SLOW) * keys[-1] + noise[t])
        whole = torch.stack(keys, 1)
        following = whole[:, 1:]
        return Pairs(whole[:, :-1], following / following.norm(dim=-1, keepdim=True))
