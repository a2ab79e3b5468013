"""Compiled folders by spec: the same spec, version and generator give the same folder."""

import os
from collections.abc import Callable, Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path

from mnemic.codegen import package

VARIABLE = "MNEMIC_CACHE"
"""Where the cache lies, if not in the user's cache folder."""


def root() -> Path:
    """The cache's folder."""
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen)
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("mnemic"))


@cache
def generator() -> str:
    """A digest of the compiler's own sources, so that no stale code is ever run."""
    digest = sha256()
    for folder in ("compiler", "codegen", "dsl"):
        for path in sorted((Path(__file__).parents[1] / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def files(key: str, make: Callable[[], Mapping[str, str]]) -> Mapping[str, str]:
    """What the compiled folder of a key holds; made where there is none, or where it was changed
    by another hand, and not kept."""
    return package.read(_place(key)) or make()


def folder(key: str, files: Callable[[], Mapping[str, str]]) -> Path:
    """The compiled folder of a key, made by ``files`` if it is not there yet."""
    place = _place(key)
    if (place / package.MARKER).is_file():
        return place
    from filelock import FileLock

    place.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{place}.lock"):
        if (place / package.MARKER).is_file():
            return place
        return package.write(files(), place)


def _place(key: str) -> Path:
    return root() / generator() / key
