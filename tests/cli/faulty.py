"""Processes that something befalls: a signal, a full disk, a cache of somebody else's."""

import ctypes
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

DROP_CAPABILITY, MODES, SEARCH = 24, 1, 2
"""prctl's PR_CAPBSET_DROP, and root's capabilities to pass over the modes of files."""


def bound_by_modes() -> None:
    """Let the modes of files bind this process and what it starts, though it be root's."""
    if os.geteuid() == 0:
        system = ctypes.CDLL(None)
        for capability in (MODES, SEARCH):
            assert system.prctl(DROP_CAPABILITY, capability, 0, 0, 0) == 0


def begun(*arguments: str | Path, **options: object) -> "subprocess.Popen[str]":
    """Start the command as a process."""
    told = {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}  # Python 3.11 keeps cut files
    environment = {**os.environ, **told, **options.pop("environment", {})}
    return subprocess.Popen(
        [sys.executable, "-m", "mnemic", *map(str, arguments)], text=True, env=environment,
        stdout=options.pop("stdout", subprocess.PIPE), stderr=subprocess.PIPE, **options,
    )  # fmt: skip


def ended(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    """Wait for a process, and kill one that hangs; return its exit code and its two outputs."""
    with process:
        try:
            out, err = process.communicate(timeout=120)
        except BaseException:
            process.kill()
            raise
    return process.returncode, out or "", err


def small_files(most: int) -> Callable[[], None]:
    """Let a process write no file beyond this many bytes, as on a disk that is full by then."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

    return limit
