"""Titans' chunk form beside its recurrence, and beside titans-pytorch, on one core of the CPU.

    python -m venv titans && titans/bin/pip install torch==2.13.0 mnemic titans-pytorch
    titans/bin/python benchmarks/titans.py -o benchmarks/results/titans.json

All layers have the same shapes: inputs [B, T, dim], one head, a memory of two matrices four times
as wide inside, momentum, gradients at the end of the last 16 tokens. titans-pytorch updates its
memory at chunk ends alone, mnemic's rule after every token. Times are of one core's processor, the
median of ``--repeats`` runs that take turns.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor, nn

import mnemic

CHUNK = 16


def layers(dim: int) -> dict[str, Callable[[Tensor], Tensor]]:
    """Layers by name, without convolution, norms and gates of ours that theirs has not."""
    torch.manual_seed(0)
    block = {"heads": 1, "convolution": 0, "gate": "none", "qk_norm": "none", "output_norm": "none"}
    spec = mnemic.load({"mnemic": 1, "name": "titans-alone", "extends": "titans", "block": block})
    ours = mnemic.compile(spec).layer(dim)
    found: dict[str, Callable[[Tensor], Tensor]] = {
        "chunk": lambda x: ours(x, form="chunk"),
        "recurrent": lambda x: ours(x, form="recurrent"),
    }
    theirs = _theirs(dim)
    if theirs is not None:
        found["titans-pytorch"] = lambda x: theirs(x)[0]
    return found


def _theirs(dim: int) -> nn.Module | None:
    try:
        theirs = import_module("titans_pytorch")
    except ImportError:
        return None
    found: nn.Module = theirs.NeuralMemory(dim=dim, chunk_size=CHUNK, batch_size=CHUNK, heads=1)
    return found


def timed(layer: Callable[[Tensor], Tensor], x: Tensor, *, backward: bool) -> float:
    """Seconds of processor time."""
    began = time.process_time()
    with torch.set_grad_enabled(backward):
        y = layer(x)
    if backward:
        torch.autograd.backward(y.square().mean())
    return time.process_time() - began


def main(
    batch: int = 2,
    length: int = 1024,
    dim: int = 64,
    repeats: int = 5,
    out: Annotated[Path | None, typer.Option("-o", "--out")] = None,
) -> None:
    """Measure, and print how many times faster the chunk form is."""
    torch.set_num_threads(1)
    x = torch.randn(batch, length, dim, generator=torch.Generator().manual_seed(0))
    made = layers(dim)
    found: dict[str, Any] = {"made_by": "benchmarks/titans.py", "batch": batch, "length": length,
                             "dim": dim, "repeats": repeats}  # fmt: skip
    for way in ("forward", "forward+backward"):
        times: dict[str, list[float]] = {name: [] for name in made}
        for turn in range(repeats + 1):
            for name, layer in made.items():
                given = x.clone().requires_grad_()
                seconds = timed(layer, given, backward=way != "forward")
                times[name] += [seconds] if turn else []
        found[way] = {name: 1e3 * statistics.median(each) for name, each in times.items()}
        for name, ms in found[way].items():
            share = ms / found[way]["chunk"]
            print(f"{way}: {name} {ms:.0f} ms, {share:.2f} times the chunk form's", flush=True)
    if out is not None:
        out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
