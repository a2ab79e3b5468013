"""A task of one's own, from a Python file."""

from __future__ import annotations

import sys
from hashlib import sha256
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from mnemic.errors import UsageError

DIGEST = "__mnemic_digest__"
"""The name under which a module keeps the SHA-256 of the text that it was made from."""


def imported(path: Path) -> str:
    """Import a file, once, and give its module's name: its classes register themselves.

    Raises:
        UsageError: there is no such file.
    """
    if not path.is_file():
        raise UsageError(f"{path}: no such file")
    resolved = path.resolve()
    name = f"mnemic_own_task_{resolved.stem}_{sha256(bytes(resolved)).hexdigest()[:12]}"
    if name in sys.modules:
        return name
    spec = spec_from_file_location(name, resolved)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path}: not a Python file")
    module = module_from_spec(spec)
    setattr(module, DIGEST, sha256(resolved.read_bytes()).hexdigest())
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return name


def digest(module: str) -> str | None:
    """Return the SHA-256 of the file that a module of `imported` was made from; else None."""
    return getattr(sys.modules.get(module), DIGEST, None)
