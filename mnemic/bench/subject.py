"""What is timed: a compiled rule with arguments, forwards and backwards."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from mnemic.bench.report import Figure
from mnemic.bench.started import arguments
from mnemic.bench.text import embedded, text
from mnemic.bench.timing import side_by_side
from mnemic.compiler.oracle.samples import Sizes, draw
from mnemic.errors import CheckFailed
from mnemic.pipeline import Compiled, compile

SIZES = Sizes(batch=1, length=2048, heads=4, key=64, value=64)
AGREEMENT = 1e-3
"""Largest difference between two float32 outputs that count as the same computation."""

Run = Callable[..., Tensor]


@dataclass(frozen=True)
class Subject:
    """A compiled rule and float32 arguments: random, or (``started``) those of a layer's start."""

    compiled: Compiled
    sizes: Sizes = SIZES
    started: bool = False

    @classmethod
    def named(cls, name: str, sizes: Sizes = SIZES) -> "Subject":
        """Compile a spec by name and return it as a subject."""
        return cls(compile(name), sizes)

    @cached_property
    def arguments(self) -> dict[str, Tensor]:
        """q, k, v, the coefficients, and the parameters of a deep memory."""
        if self.started:
            x = embedded(text(self.sizes.length), self.sizes.heads * self.sizes.value)
            given, params = arguments(self.compiled, x, heads=self.sizes.heads)
            return {name: t.float().contiguous() for name, t in {**given, **params}.items()}
        sample = draw(self.compiled.rule, self.sizes)
        found = {"q": sample.q, "k": sample.k, "v": sample.v, **sample.coefficients}
        return {name: x.float().contiguous() for name, x in found.items()}

    @cached_property
    def leaves(self) -> dict[str, Tensor]:
        """The arguments as leaves that ask for gradients."""
        return {name: x.clone().requires_grad_() for name, x in self.arguments.items()}

    def form(self, form: str) -> Run:
        """Return the operator in one form, as a function of the arguments."""

        names = [p.name for p in self.compiled.operator.signature.params]

        def run(**arguments: Tensor) -> Tensor:
            params = {name: arguments.pop(name) for name in names if name in arguments}
            options: dict[str, Any] = {"params": params} if params else {}
            out: Tensor = self.compiled(**arguments, **options, form=form)[0]
            return out

        return run

    def forward(self, runs: dict[str, Run]) -> dict[str, float]:
        """Time each run forward, without gradients, once their outputs agree."""
        with torch.no_grad():
            demand_agreement({name: run(**self.arguments) for name, run in runs.items()})
            return side_by_side({n: _bound(run, self.arguments) for n, run in runs.items()})

    def both(self, runs: dict[str, Run]) -> dict[str, float]:
        """Time each run forward and backward."""
        return side_by_side({name: self.there_and_back(run) for name, run in runs.items()})

    def there_and_back(self, run: Run) -> Callable[[], object]:
        """Return a function that runs and takes gradients, from a dense gradient of the output."""
        leaves = list(self.leaves.values())

        def both() -> object:
            out = run(**self.leaves)
            return torch.autograd.grad(out, leaves, torch.ones_like(out), allow_unused=True)

        return both


def _bound(run: Run, arguments: dict[str, Tensor]) -> Callable[[], object]:
    return lambda: run(**arguments)


def demand_agreement(outs: dict[str, Tensor]) -> None:
    """Refuse to time runs whose outputs differ.

    Raises:
        CheckFailed: two outputs differ.
    """
    (first, one), *others = outs.items()
    for name, other in others:
        apart = (one - other).abs().max().item() / (1 + one.abs().max().item())
        if not apart <= AGREEMENT:
            raise CheckFailed(f"bench: {first} and {name} differ by {apart:.1e}")


def ratio(what: str, seconds: dict[str, float], least: float | None = None) -> Figure:
    """Return how much faster the first is than the second."""
    (ours, mine), (theirs, other) = seconds.items()
    detail = f"{ours} {mine * 1e3:.1f} ms, {theirs} {other * 1e3:.1f} ms"
    return Figure(what, other / mine, "x", detail, least=least)
