"""Which generator wrote a folder: a digest of all that it derives and prints with."""

import sys
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path


@cache
def generator() -> str:
    """Digest the compiler's own sources and what it derives and prints with, so that no stale code
    is ever run."""
    made_with = [version(name) for name in ("mnemic", "sympy", "mpmath")]
    digest = sha256(" ".join([*made_with, *map(str, sys.version_info[:2])]).encode())
    for folder in ("compiler", "codegen", "dsl"):
        for path in sorted((Path(__file__).parents[1] / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
