"""Write files atomically, by renaming a temporary file, in folders that mnemic owns."""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from mnemic.errors import UsageError

MARKER = "mnemic-run.json"
"""The file that says that mnemic wrote a folder."""

EARLIER: Final = (
    "holds an earlier run: --resume goes on with it, --replace removes it (existing='resume' or "
    "'replace' in Python); or go elsewhere"
)
"""Why a run does not begin in a folder that has one."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces ``path`` if and only if the block succeeds.

    A symbolic link stays: the file that it points to is replaced.

    Raises:
        OSError: the system refuses; the error names ``path``.
        UsageError: ``path`` is a folder, a device or a pipe.
    """
    if path.is_symlink():
        path = path.resolve()
    if path.exists() and not path.is_file():
        raise UsageError(f"{path}: not a plain file")
    beside = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_native_id()}.part")
    try:
        yield beside
        _flush(beside)
        os.replace(beside, path)
    except OSError as error:
        if error.filename is None or os.fspath(error.filename) == os.fspath(beside):
            error.filename, error.filename2 = os.fspath(path), None
        raise
    finally:
        beside.unlink(missing_ok=True)


def write_json(path: Path, content: Any) -> None:
    """Write plain data, indented, with a final newline."""
    with replacing(path) as beside:
        beside.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def finite(value: Any) -> Any:
    """Return the same data with null for infinities and NaN, which JSON lacks."""
    match value:
        case Mapping():
            return {str(key): finite(item) for key, item in value.items()}
        case list() | tuple():
            return [finite(item) for item in value]
        case float() if not math.isfinite(value):
            return None
    return value


def claim(folder: Path, kind: str = "training run") -> bool:
    """Mark a new or empty folder as mnemic's; return whether it already was.

    Raises:
        UsageError: it is a file, or it holds files that mnemic did not write, or wrote for
            another ``kind`` of folder.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder}: not a folder")
    folder.mkdir(parents=True, exist_ok=True)
    # Looked at before the marker: another process that claims the folder now writes that first.
    foreign = [path for path in folder.iterdir() if MARKER not in path.name]
    if (folder / MARKER).is_file():
        found = json.loads((folder / MARKER).read_text(encoding="utf-8")).get("kind")
        if found != kind:
            raise UsageError(f"{folder}: holds a {found}, not a {kind}; choose another folder")
        return True
    if foreign:
        raise UsageError(f"{folder}: holds files that mnemic did not write; choose another folder")
    write_json(folder / MARKER, {"written_by": "mnemic", "kind": kind})
    return False


def _flush(path: Path) -> None:
    """Force the content to the disk, so that it is written before the rename."""
    with path.open("r+b") as stream:
        os.fsync(stream.fileno())
