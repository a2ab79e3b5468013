"""The owner of a trial: machine and process, so that a dead owner is detected on its machine."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

PROC = Path("/proc")


@cache
def machine() -> str:
    """Return an identifier of this machine and boot, within which process ids are meaningful."""
    found = [socket.gethostname()]
    boot, space = PROC / "sys/kernel/random/boot_id", PROC / "self/ns/pid"
    if boot.is_file():
        found += [boot.read_text(encoding="ascii").strip(), os.readlink(space)]
    return " ".join(found)


def owner(number: int) -> dict[str, Any]:
    """Describe this process as the owner of a trial of the study."""
    pid = os.getpid()
    return {"machine": machine(), "pid": pid, "started": _started(pid), "trial": number}


def dead(told: Mapping[str, Any] | None, number: int) -> bool:
    """Return whether a trial's process, if of this machine, is certain to have ended.

    A requeued trial still has the owner of its predecessor, which says nothing about it.
    """
    if not told or told.get("trial") != number or told.get("machine") != machine():
        return False
    return bool(_started(told["pid"]) != told["started"])


def _started(pid: int) -> str | None:
    """Return when a process was started, in the system's count; None where it has ended."""
    stat = PROC / str(pid) / "stat"
    if not (PROC / "self" / "stat").is_file():
        return _there(pid)
    try:
        fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def _there(pid: int) -> str | None:
    """Return "unknown" if there is a process, where the system has no start times; else None."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return "unknown"
