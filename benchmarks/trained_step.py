"""A training step of one layer, timed: what `steps.py` runs in a process for each spec."""

from __future__ import annotations

import resource
import statistics
import time
from typing import Any

import torch

from mnemic import pipeline
from mnemic.dsl.spec import Spec
from mnemic.models.language_model import ModelOptions, build

VOCABULARY = 64


def step(spec: Spec, sizes: tuple[int, int, int], steps: int, most: float) -> dict[str, Any]:
    """Train a layer for a few steps on random tokens: the median step, and what it takes.

    Milliseconds are of one core's processor time, which other work on the machine changes little.

    Args:
        spec: with the block that it is to have.
        sizes: sequences, tokens and channels.
        steps: measured after one that is not; fewer where they would take more than ``most`` s.
        most: seconds.
    """
    batch, length, dim = sizes
    torch.set_num_threads(1)
    compiled = pipeline.compile(spec)
    kernel = spec.block.feed_forward
    model = build(ModelOptions(VOCABULARY, dim=dim, layers=1, feed_forward=kernel),
                  lambda dim, _: compiled.layer(dim), 0)  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(0))
    before = _resident()
    taken: list[float] = []
    deadline = time.process_time() + most
    for index in range(steps + 1):
        began = time.process_time()
        logits = model(tokens)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
        torch.autograd.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        now = time.process_time()
        taken += [now - began] if index or now > deadline else []
        if now > deadline:
            break
    return {
        "ms": 1e3 * statistics.median(taken),
        "gib": (_resident() - before) / 2**20,
        "form": compiled.rule.structure.kind,
    }


def _resident() -> int:
    """The most memory that the process has had, in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
