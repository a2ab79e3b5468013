"""Measurements that need a process of their own."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping

from mnemic.errors import EnvironmentFailed

NO_MEMORY = "can't allocate memory"
"""What PyTorch says where the system kills no process but refuses the memory."""


class OutOfMemory(EnvironmentFailed):
    """A measuring process that found no memory, or was killed, most often for want of it."""


def python(*arguments: str, environment: Mapping[str, str] | None = None) -> str:
    """Run this Python on one thread, and return its standard output.

    Raises:
        OutOfMemory: there was no memory for it, or it was killed.
        EnvironmentFailed: it failed; with what it said last.
    """
    given = {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}
    done = subprocess.run(
        [sys.executable, *arguments], env=given, capture_output=True, text=True, check=False
    )
    if done.returncode == -signal.SIGKILL or NO_MEMORY in done.stderr:
        raise OutOfMemory("bench: a measuring process ran out of memory, or was killed")
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["nothing said"])[-1]
        raise EnvironmentFailed(f"bench: a measuring process ended with {done.returncode}: {last}")
    return done.stdout
