"""Lets the tests of this folder import ``conformance`` beside them; one thread for small sizes."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
torch.set_num_threads(1)


def pytest_configure(config: pytest.Config) -> None:
    """Which tests there are depends on what packaged specs compile to: of several processes each
    begins with a share of them, so that none waits for what another is compiling."""
    worker = getattr(config, "workerinput", None)
    if worker is None:
        return
    from conformance import compiled
    from packaged import available

    first, several = int(worker["workerid"].removeprefix("gw")), int(worker["workercount"])
    for share in range(several):
        for name in available()[(first + share) % several :: several]:
            compiled(name)
