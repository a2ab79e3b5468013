"""Imported once by the server of `mnemic.search.study.isolated`, by way of `ready`, so that its
processes find all that a trial needs imported, and the caches of SymPy and torch filled. Nothing
here may start a thread: no backward pass, one thread of torch."""

from __future__ import annotations

import filelock
import torch

from mnemic import pipeline
from mnemic.codegen import files
from mnemic.compiler import uncompiled
from mnemic.models import train
from mnemic.search import tasks
from mnemic.search.space.settings import Rung, Settings
from mnemic.search.study.work import look

MODULES = (filelock, files, uncompiled, train, tasks)

torch.set_num_threads(1)
WARM = look(
    pipeline.read("gated-deltanet"),
    Settings(tasks={"mqar": {"rung": "tiny"}}),  # type: ignore[dict-item]
    Rung(untrained="switching", rung="tiny", draws=2),
)
torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])
