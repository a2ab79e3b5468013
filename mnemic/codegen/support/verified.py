"""The record of what passed its checks on which device, ``verified.json`` beside generated code.

``form="auto"`` takes the fused kernels only where the record says that they passed on this device
with these versions, and that it was written for this very code.
"""

import json
import os
import platform
import tempfile
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from . import versions
from .folder import FOLDER

RECORD = "verified.json"

Entry = dict[str, Any]


@cache
def digest(folder: Path = FOLDER) -> str:
    """Hash the generated code and its support: any change to it makes a record worthless."""
    found = sha256()
    for path in sorted(folder.rglob("*.py")):
        found.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def setting(device: torch.device) -> dict[str, Any]:
    """Return what a check holds for: device by name and compute capability, and the versions."""
    named = device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device) if named else platform.machine(),
        "capability": list(torch.cuda.get_device_capability(device)) if named else None,
        "torch": torch.__version__,
        "triton": versions.installed(),
        "cuda": torch.version.cuda,
    }


def entries(folder: Path = FOLDER) -> list[Entry]:
    """Read what was recorded for this code; nothing without a record, or where none can be read."""
    try:
        found = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        kept = found["entries"] if found["code"] == digest(folder) else []
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [entry for entry in kept if isinstance(entry, dict)]


def store(entry: Entry, folder: Path = FOLDER) -> Path:
    """Add an entry, in place of an earlier one of its kind for the same setting."""
    others = [old for old in entries(folder) if _kind(old) != _kind(entry)]
    text = json.dumps({"code": digest(folder), "entries": [*others, entry]}, indent=1)
    handle, beside = tempfile.mkstemp(prefix=".verified.", dir=folder)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text + "\n")
    os.replace(beside, folder / RECORD)
    passed.cache_clear()
    return folder / RECORD


def _kind(entry: Entry) -> tuple[Any, Any]:
    return entry.get("setting"), entry.get("interpreted")


@cache
def passed(form: str, dtype: torch.dtype, device: torch.device, folder: Path = FOLDER) -> bool:
    """Return whether a form passed its checks in this dtype on this device and these versions."""
    here = setting(device)
    for entry in entries(folder):
        if entry.get("setting") == here and not entry.get("interpreted", True):
            told = entry.get("forms", {}).get(form, {}).get(str(dtype).removeprefix("torch."), {})
            return told.get("passed") is True
    return False
