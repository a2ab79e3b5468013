"""What a trial of the load does in place of looking and training: next to nothing."""

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from mnemic.dsl.hashing import spec_hash
from mnemic.dsl.spec import Spec
from mnemic.search.space.settings import Rung, Settings
from mnemic.search.study.isolated import Answer
from mnemic.search.study.training import Run
from mnemic.search.study.work import Look

PAUSE = "MNEMIC_LOAD_PAUSE"
"""The variable of the seconds that a training sleeps; ``none``: it has no process of its own."""


def digest(spec: Spec) -> str:
    """Return a name of a spec's content, without its own name."""
    return spec_hash(spec.model_copy(update={"name": "load"}))


def skill(spec: Spec) -> float:
    """Return a number between zero and one that the spec alone decides."""
    return int(hashlib.sha256(digest(spec).encode()).hexdigest()[:12], 16) / 16**12


def look(spec: Spec, settings: Settings, rung: Rung | None) -> Look:
    """Know of a point what decides its identity, and nothing else."""
    torch.set_num_threads(1)
    return Look(digest(spec), "additive", 1, 1, 1.0, None)


def train_rung(spec: Spec, settings: Settings, rung: Rung, folder: Path) -> list[Run]:
    """Sleep as long as the load's variable says, then give the skill that the spec decides."""
    pause = os.environ.get(PAUSE, "none")
    time.sleep(0.0 if pause == "none" else float(pause))
    value = skill(spec)
    return [Run("memorisation", seed, value, value, 0.0, 0.0, ((rung.steps or 0, value),))
            for seed in range(rung.seeds)]  # fmt: skip


def called(function: Callable[..., Any], *arguments: Any, **_: object) -> Answer[Any]:
    """Call a function in this process, in place of `isolated`."""
    return Answer(function(*arguments))
