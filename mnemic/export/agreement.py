"""Graphs in ONNX Runtime against PyTorch: outputs and states, whole, in pieces and in steps."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy
import onnxruntime
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call

from mnemic.errors import EnvironmentFailed
from mnemic.export.graph_files import PREFILL, START, STEP
from mnemic.export.traced_model import (
    LOGITS,
    PAST,
    PRESENT,
    TOKENS,
    TracedModel,
    input_names,
    states_before,
)
from mnemic.hf.checks import Check
from mnemic.hf.modeling_mnemic import MnemicForCausalLM

Arrays = dict[str, NDArray[Any]]

LEAST: Final = 1e-5
"""The difference that is rounding whatever the model is, relative to the largest number."""

TIMES: Final = 8
"""So many times PyTorch's own float32 may differ from float64 is rounding, too."""

NUDGED: Final = 4
"""How often PyTorch's float32 is run once more, with its parameters moved by a rounding each.

Where a norm divides by what nearly cancels, one run's rounding may be small by luck alone.
"""

LENGTH: Final = 21
"""Of the sequences that are compared; other numbers than the one that was traced."""


class Runtime:
    """A folder's graphs in ONNX Runtime, on the processor.

    Raises:
        EnvironmentFailed: the installed runtime cannot run them.
    """

    def __init__(self, folder: Path) -> None:
        try:
            self.start, self.prefill, self.step = (
                onnxruntime.InferenceSession(folder / name, providers=["CPUExecutionProvider"])
                for name in (START, PREFILL, STEP)
            )
        except Exception as error:  # its errors have no class of their own to be caught by
            version = onnxruntime.__version__
            reason = str(error).splitlines()[0]
            raise EnvironmentFailed(f"ONNX Runtime {version} does not run it: {reason}") from None

    def begun(self) -> Arrays:
        """Return the states before the first token, by the names of inputs."""
        names = [x.name for x in self.start.get_outputs()]
        return dict(zip(names, self.start.run(None, {}), strict=True))

    def run(self, tokens: NDArray[Any], states: Arrays) -> tuple[NDArray[Any], Arrays]:
        """Return the logits of tokens [B, T] and the states after; one token is a step's."""
        session = self.step if tokens.shape[1] == 1 else self.prefill
        names = [x.name.replace(PRESENT, PAST, 1) for x in session.get_outputs()[1:]]
        logits, *after = session.run(None, {TOKENS: tokens, **states})
        return logits, dict(zip(names, after, strict=True))


def compare(model: MnemicForCausalLM, folder: Path) -> tuple[Check, ...]:
    """Run a folder's graphs beside the model that they were made of, which is of float32.

    What PyTorch computes in float64 is the measure: a graph may be as far from it as ``TIMES``
    times PyTorch's float32, the farthest of ``NUDGED`` and one, or ``LEAST``; relative to the
    largest number of each tensor.
    """
    runtime = Runtime(folder)
    return tuple(_checks(model.eval(), runtime))


def _checks(model: MnemicForCausalLM, runtime: Runtime) -> Iterator[Check]:
    several, alone = _tokens(model, 2, LENGTH), _tokens(model, 1, 2 * LENGTH)
    third = LENGTH // 3
    cuts: dict[str, tuple[Tensor, Sequence[int]]] = {
        f"two rows of {LENGTH} tokens": (several, [LENGTH]),
        f"a row of {2 * LENGTH} tokens": (alone, [2 * LENGTH]),
        f"two rows of {LENGTH} tokens in two pieces": (several, [third, LENGTH - third]),
        f"two rows of {third} tokens and {LENGTH - third} steps": (
            several,
            [third, *[1] * (LENGTH - third)],
        ),
    }
    exact = {x: _torch(model, x, torch.float64) for x in (several, alone)}
    rounding = {
        x: max(_difference(_torch(model, x, torch.float32, n), wanted) for n in range(NUDGED + 1))
        for x, wanted in exact.items()
    }
    for name, (tokens, pieces) in cuts.items():
        bound = max(LEAST, TIMES * rounding[tokens])
        yield Check(name, _difference(_in_pieces(runtime, tokens, pieces), exact[tokens]), bound)


def _tokens(model: MnemicForCausalLM, rows: int, length: int) -> Tensor:
    generator = torch.Generator().manual_seed(rows)
    return torch.randint(model.config.vocab_size, (rows, length), generator=generator)


@torch.no_grad()
def _torch(model: MnemicForCausalLM, tokens: Tensor, dtype: torch.dtype, nudged: int = 0) -> Arrays:
    """Compute PyTorch's logits and states in some precision; the model's parameters stay the same.

    ``nudged`` is 0, or the seed of what they are moved by in this run.
    """
    try:
        model.to(dtype)
        start = states_before(model, tokens.shape[0])
        traced = TracedModel(model, tuple(tuple(own) for own in start))
        moved = _moved(traced, nudged) if nudged else {}
        states = [x for own in start for x in own.values()]
        logits, *after = functional_call(traced, moved, (tokens, states))
    finally:
        model.float()
    names = [LOGITS, *input_names(traced.names)]
    arrays = [x.numpy(force=True) for x in (logits, *after)]
    return dict(zip(names, arrays, strict=True))


def _moved(traced: TracedModel, seed: int) -> dict[str, Tensor]:
    """Return the parameters, each times 1 + εu, with u from −1 to 1 and ε that of float32."""
    generator = torch.Generator().manual_seed(seed)

    def moved(x: Tensor) -> Tensor:
        u = torch.empty_like(x).uniform_(-1, 1, generator=generator)
        return x * (1 + torch.finfo(torch.float32).eps * u)

    return {name: moved(x) for name, x in traced.named_parameters()}


def _in_pieces(runtime: Runtime, tokens: Tensor, pieces: Sequence[int]) -> Arrays:
    states, outputs = runtime.begun(), []
    for piece in torch.split(tokens, list(pieces), 1):
        logits, states = runtime.run(piece.numpy(), states)
        outputs.append(logits)
    return {LOGITS: numpy.concatenate(outputs, 1), **states}


def _difference(found: Mapping[str, NDArray[Any]], exact: Mapping[str, NDArray[Any]]) -> float:
    """Return the largest difference in any tensor over its largest number; NaN where one is."""
    errors = [0.0]
    for name, wanted in exact.items():
        gap = numpy.abs(found[name].astype(float) - wanted).max(initial=0.0)
        size = numpy.abs(wanted).max(initial=0.0)
        errors.append(float(gap / size) if size else float(gap))
    return float(numpy.max(errors))
