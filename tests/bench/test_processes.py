"""Measurements in processes of their own: what a process that ends early leads to."""

import json

import pytest

from mnemic.bench.models import training
from mnemic.bench.processes import OutOfMemory, python
from mnemic.errors import EnvironmentFailed

KILLED = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
REFUSED = "import torch; torch.empty(1 << 55)"


@pytest.mark.parametrize("program", [KILLED, REFUSED])
def test_a_process_without_memory_is_told_apart(program):
    with pytest.raises(OutOfMemory, match="ran out of memory, or was killed"):
        python("-c", program)


def test_what_a_process_said_last_is_told():
    with pytest.raises(EnvironmentFailed, match=r"ended with 3: here") as told:
        python("-c", "import sys; print('first\\nhere', file=sys.stderr); sys.exit(3)")
    assert not isinstance(told.value, OutOfMemory)


def test_lengths_without_memory_are_left_out(monkeypatch):
    """A model that grows too large at the longest texts is measured at the others."""
    asked = []

    def measured(*arguments):
        asked.append(int(arguments[-1]))
        if asked[-1] > 2048:
            raise OutOfMemory("bench: a measuring process ran out of memory, or was killed")
        return "said before\n" + json.dumps({"seconds": {"512": {}, "2048": {}}})

    monkeypatch.setattr(training, "python", measured)
    assert list(training.run("deltaformer")["seconds"]) == ["512", "2048"]
    assert asked == [16_384, 8192, 2048]
    monkeypatch.setattr(training, "LENGTHS", (4096,))
    with pytest.raises(OutOfMemory):
        training.run("deltaformer")
