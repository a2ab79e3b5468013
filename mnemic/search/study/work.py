"""The work of a trial's processes: examine a point without training, or train it on a rung."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from mnemic import pipeline
from mnemic.dsl.spec import Spec
from mnemic.models.device import Place
from mnemic.models.language_model import LanguageModel, ModelOptions, build
from mnemic.search.space.checks import trained, untrained
from mnemic.search.space.identity import identity
from mnemic.search.space.settings import Rung, Settings
from mnemic.search.study.isolated import Failure
from mnemic.search.study.training import Budget, Job, Run, TooLong, run

SEQUENCES = 16
"""Sequences of the untrained task that an error is the mean of."""


@dataclass(frozen=True)
class Look:
    """What is known of a point before any training.

    Args:
        identity: of the rule and its coefficients; see `mnemic.search.space.identity`.
        kind: the structural class.
        parameters: of the blocks, embedding left out.
        state_bytes: kept for one sequence after the longest task's tokens, all layers.
        flops: of products, a token of the forward pass, all blocks.
        error: of the untrained rung; None without one, infinite where the memory diverged.
        training_flops: of products, a token of the forward and the backward pass, all blocks; None
            where neither a bound nor an objective asks for it.
    """

    identity: str
    kind: str
    parameters: int
    state_bytes: int
    flops: float
    error: float | None
    training_flops: float | None = None

    @property
    def costs(self) -> dict[str, float]:
        """The costs by name: parameters, bytes of state, FLOPs."""
        known = {"parameters": self.parameters, "state_bytes": self.state_bytes,
                 "flops": self.flops}  # fmt: skip
        trained = self.training_flops
        return known if trained is None else {**known, "training_flops": trained}


def look(spec: Spec, settings: Settings, rung: Rung | None) -> Look:
    """Derive, compile, build, and run the untrained rung.

    Raises:
        InvalidSpec: the spec is none, is not compiled, or has no layer of these sizes.
    """
    torch.set_num_threads(1)
    compiled = pipeline.compile(spec)
    length = max(_lengths(settings))
    model = settings.model
    options = ModelOptions(2, **dict(model), feed_forward=spec.block.feed_forward)
    built = build(options, lambda dim, _: compiled.layer(dim), 0)
    tokens = torch.zeros(1, length, dtype=torch.long)
    with torch.no_grad():
        x = built.embedding(tokens)
        state: list[Any] = []
        with Products() as counted:
            for block in built.blocks:
                x, after = block(x, output_state=True)
                state.append(after)
    rule = compiled.rule
    return Look(
        identity=identity(rule),
        kind=rule.structure.kind,
        parameters=sum(p.numel() for block in built.blocks for p in block.parameters()),
        state_bytes=sum(t.numel() * t.element_size() for t in _tensors(state)),
        flops=counted.flops / length,
        error=None if rung is None else _error(compiled, rung),
        training_flops=_training_flops(built, tokens) if _asks_training(settings) else None,
    )


def _asks_training(settings: Settings) -> bool:
    told = settings.constraints.training_flops
    return told is not None or "training_flops" in settings.objectives


def _training_flops(model: LanguageModel, tokens: Tensor) -> float:
    """Count the FLOPs a token of products in a forward and a backward pass of the blocks."""
    x = model.embedding(tokens).detach().requires_grad_()
    with Products() as counted:
        y = x
        for block in model.blocks:
            y, _ = block(y)
        y.square().sum().backward()
    return float(counted.flops / tokens.shape[1])


def train_rung(spec: Spec, settings: Settings, rung: Rung, folder: Path) -> list[Run]:
    """Train every task with every seed of a rung.

    Raises:
        CheckFailed: a loss is not finite.
    """
    torch.set_num_threads(1)
    return [run(job, folder) for job in jobs(spec, settings, rung, range(rung.seeds))]


def run_one(job: Job, folder: Path, seconds: float) -> Run | Failure:
    """Do one run; return a failure if it would train for more than ``seconds``."""
    torch.set_num_threads(1)
    try:
        return run(job, folder, seconds)
    except TooLong as error:
        return Failure("time", str(error))


def jobs(spec: Spec, settings: Settings, rung: Rung, seeds: Any) -> Iterator[Job]:
    """Yield the runs of a rung as jobs."""
    assert rung.steps is not None
    budget = Budget(settings.model, settings.training, rung.steps)
    place = Place(settings.device, settings.limits.memory, settings.compile)
    for seed in seeds:
        for name, entry in settings.tasks.items():
            yield Job(spec, name, entry, rung.sizes.get(name), budget, seed, place)


ATTENTION: Final = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
ATTENTION_BACKWARD: Final = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
"""PyTorch's attention on a CPU, which its own counter of FLOPs leaves out."""


class Products(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the FLOPs of matrix products, convolutions and attention that run under it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation; count it where it is one of those."""
        found = func(*args, **(kwargs or {}))
        count = flop_registry.get(func.overloadpacket)
        if func.overloadpacket is torch.ops.aten.convolution_backward:
            self.flops += _convolution_backward(args[0], args[2], args[10])
        elif func.overloadpacket is ATTENTION:
            self.flops += _attention(args[0], args[1], args[2])
        elif func.overloadpacket is ATTENTION_BACKWARD:
            self.flops += _attention(args[1], args[2], args[3], backward=True)
        elif count is not None:
            self.flops += count(*args, **(kwargs or {}), out_val=found)
        return found


def _convolution_backward(gradient: Tensor, weight: Tensor, asked: list[bool]) -> int:
    """Count the FLOPs of a convolution's gradients: as many as forward for input and for weight.

    PyTorch's own counter would count a grouped convolution as a dense one here.
    """
    return sum(asked[:2]) * 2 * gradient.numel() * weight[0].numel()


def _attention(query: Tensor, key: Tensor, value: Tensor, backward: bool = False) -> int:
    """Count the FLOPs of attention between all pairs, masked ones too, as PyTorch's counter does.

    Forward are Q Kᵀ and P V. Backward are Q Kᵀ once more and the gradients of P, V, Q and K.
    """
    pairs = query.shape[:-1].numel() * key.shape[-2]
    of_keys, of_values = query.shape[-1], value.shape[-1]
    return 2 * pairs * (3 * of_keys + 2 * of_values if backward else of_keys + of_values)


def _lengths(settings: Settings) -> Iterator[int]:
    """Yield the length of every task at each size that a rung trains it at."""
    rungs = [rung for rung in settings.rungs if rung.steps is not None]
    for name, entry in settings.tasks.items():
        for size in {rung.sizes.get(name) for rung in rungs}:
            task = trained(name, entry, size)
            yield int(task.batch(task.generator(0, "test"), 1, "test").inputs.shape[1])


def _error(compiled: Any, rung: Rung) -> float:
    """Return the regression error with the best constants tried, keys and answers scaled."""
    from mnemic.search.tasks import tuned

    found = tuned(compiled, untrained(rung), draws=rung.draws, sequences=SEQUENCES,
                  unit=True, unit_keys=True, dtype=torch.float32)  # fmt: skip
    return found.score if not math.isnan(found.score) else math.inf


def _tensors(state: Any) -> Iterator[Tensor]:
    """Yield every tensor in nested containers."""
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, dict):
        for item in state.values():
            yield from _tensors(item)
    elif isinstance(state, list | tuple):
        for item in state:
            yield from _tensors(item)
