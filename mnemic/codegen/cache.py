"""Compiled folders by spec: the same spec, version and generator give the same folder."""

import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from mnemic.codegen import package
from mnemic.codegen.generator import generator
from mnemic.errors import EnvironmentFailed

Made = Callable[[], Mapping[str, str]]
"""What makes the files of a folder."""

VARIABLE = "MNEMIC_CACHE"
"""Where the cache lies, if not in the user's cache folder."""


def root() -> Path:
    """Return the cache's folder, which the variable ``VARIABLE`` may name."""
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen)
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("mnemic"))


def files(key: str, make: Made) -> Mapping[str, str]:
    """Read the compiled folder of a key from the cache; if there is none, or its files were changed
    by hand, make its files, which are not stored."""
    return package.read(_place(key)) or make()


def published(key: str, make: Made, *, tools: bool = True) -> Mapping[str, str]:
    """Return what is published of the compiled folder of a key.

    To find out what a spec needs of the support package takes seconds, so it is kept in the cache
    too, where that can be written.
    """
    from mnemic.codegen import flat

    place = _place(f"{key}.published" if tools else f"{key}.published.without-tools")
    found = package.read(place)
    if found:
        return found
    made = flat.published(files(key, make), tools=tools)
    with suppress(OSError, EnvironmentFailed):
        _write_once(place, lambda: made)
    return made


def folder(key: str, make: Made) -> Path:
    """Return the compiled folder of a key, making it if it does not exist.

    A folder that was changed is made again; the changed one is kept beside it.

    Raises:
        EnvironmentFailed: the cache cannot be written.
    """
    place = _place(key)
    if package.read(place):
        return place
    try:
        return _write_once(place, make)
    except OSError as error:
        refusal = f"{error.filename or root()}: {error.strerror}"
    except EnvironmentFailed as error:
        refusal = str(error)
    raise EnvironmentFailed(
        f"the cache: {refusal}; set {VARIABLE} to a folder that can be written"
    ) from None


def _write_once(place: Path, make: Made) -> Path:
    """Make and write a folder of the cache, unless another process has done it meanwhile."""
    from filelock import FileLock

    place.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{place}.lock"):
        if package.read(place):
            return place
        made = make()
        if os.path.lexists(place):
            aside = place.with_name(f"{place.name}.changed")
            shutil.rmtree(aside, ignore_errors=True)
            os.replace(place, aside)
        return package.write(made, place)


def _place(key: str) -> Path:
    return root() / generator() / key
