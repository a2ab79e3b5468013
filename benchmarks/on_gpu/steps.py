"""Calls that are timed: with and without gradients, as CUDA graphs, on the host of a dry run."""

import time
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

Step = Callable[[], object]


def on_host(steps: Mapping[str, Step], rounds: int) -> dict[str, float]:
    """Seconds of the least of ``rounds`` calls of each: where there is no device to be measured."""
    return {name: min(_seconds(step) for _ in range(rounds)) for name, step in steps.items()}


def _seconds(step: Step) -> float:
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def captured(step: Step) -> Step:
    """The step as a CUDA graph: no time of the host in it.

    Raises ``RuntimeError`` where it cannot be captured.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = step()

    def replay(_: object = kept) -> None:
        graph.replay()

    return replay


def forward(run: Callable[[dict[str, Tensor]], Tensor], given: dict[str, Tensor]) -> Step:
    """A run without gradients."""

    def step() -> Tensor:
        with torch.no_grad():
            return run(given)

    return step


def both(run: Callable[[dict[str, Tensor]], Tensor], given: dict[str, Tensor]) -> Step:
    """A run and the gradients of its floating arguments, from a dense gradient of the output."""
    leaves = {n: x.detach().clone().requires_grad_() for n, x in given.items()}
    with torch.no_grad():
        slope = torch.ones_like(run(given))

    def step() -> object:
        out = run(leaves)
        return torch.autograd.grad(out, list(leaves.values()), slope, allow_unused=True)

    return step


def kernels(step: Step) -> list[str]:
    """The names of the device's kernels that a call starts, each once, in their order."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        step()
        torch.cuda.synchronize()
    names = (e.name for e in seen.events() if e.device_type == torch.autograd.DeviceType.CUDA)
    return list(dict.fromkeys(names))
