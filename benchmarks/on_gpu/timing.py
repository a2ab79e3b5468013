"""Times of several runs of the same arguments, in turns, with a cold cache."""

import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

Step = Callable[[], object]

COLD = 256 * 1024 * 1024
"""Bytes written between two calls: more than any cache of a device holds."""


def eager(steps: dict[str, Step], rounds: int, device: str) -> dict[str, float]:
    """Median seconds of each, one call of each a round, after three calls to warm up."""
    for step in steps.values():
        for _ in range(3 if device == "cuda" else 1):
            step()
    clock = _on_device if device == "cuda" else _on_host
    cold = torch.empty(COLD if device == "cuda" else 1, dtype=torch.int8, device=device)
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            cold.zero_()
            times[name].append(clock(step))
    return {name: statistics.median(found) for name, found in times.items()}


def _on_device(step: Step) -> float:
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    step()
    last.record()
    torch.cuda.synchronize()
    return float(first.elapsed_time(last)) / 1e3


def _on_host(step: Step) -> float:
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
