"""Measurements that need a process of their own."""

import os
import subprocess
import sys
from collections.abc import Mapping

from mnemic.errors import EnvironmentFailed


def python(*arguments: str, environment: Mapping[str, str] | None = None) -> str:
    """Run this Python on one thread; its standard output.

    Raises:
        EnvironmentFailed: it failed; with what it said last.
    """
    given = {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}
    done = subprocess.run(
        [sys.executable, *arguments], env=given, capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["nothing said"])[-1]
        raise EnvironmentFailed(f"bench: a measuring process ended with {done.returncode}: {last}")
    return done.stdout
