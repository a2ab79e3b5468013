"""Digests of the files that a space names: editing one of them makes it a different space."""

from __future__ import annotations

import os
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

from mnemic.dsl import catalogue
from mnemic.dsl.extends import is_path
from mnemic.dsl.reading import Document
from mnemic.search.space.settings import Settings


def of_bases(space: Document, bases: Iterable[Document]) -> dict[str, str | None]:
    """Return the SHA-256 of each base that is a file, by its path relative to the space's."""
    here, packaged = Path(space.source).resolve().parent, catalogue.folder().resolve()
    paths = {Path(base.source).resolve() for base in bases}
    return {
        Path(os.path.relpath(path, here)).as_posix(): _digest(path)
        for path in sorted(paths) if packaged not in path.parents
    }  # fmt: skip


def with_digests(settings: Settings) -> dict[str, Any]:
    """Return the settings that results depend on, with the SHA-256 of each file that they name.

    Such files are the user's own tasks, trained and untrained, and the reference.
    """
    told = settings.identity
    for name, entry in told["tasks"].items():
        entry.update(_of_task(name))
    for rung in told["rungs"]:
        if rung["untrained"]:
            rung.update(_of_task(rung["untrained"]))
    if is_path(settings.reference):
        told["reference"] = {"path": settings.reference, "digest": _digest(settings.reference)}
    return told


def _of_task(name: str) -> dict[str, str]:
    from mnemic.search.tasks import find

    digest = find(name).digest
    return {} if digest is None else {"digest": digest}


def _digest(path: str | Path) -> str | None:
    """Return the SHA-256 of a file's text; None where it cannot be read."""
    try:
        return sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return None
