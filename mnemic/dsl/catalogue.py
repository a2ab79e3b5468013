"""The specs that come with the package, by name."""

from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final

from mnemic.dsl.spec import LANGUAGE
from mnemic.errors import UsageError, nearest

VERSION: Final = LANGUAGE
"""The version of the language that the packaged specs are written in."""

_PACKAGE: Final = Path(__file__).resolve().parent.parent


def names() -> tuple[str, ...]:
    """Return the names of the packaged specs, sorted."""
    return tuple(sorted(_files()))


def find(name: str) -> Path:
    """Return the file of the packaged spec called ``name``.

    Raises UsageError, with the nearest name, where there is none.
    """
    path = _files().get(name)
    if path is None:
        near = nearest(name, names())
        guess = f"did you mean '{near}'?" if near else "a path ends in .yaml or has a separator"
        raise UsageError(f"no packaged spec is called '{name[:80]}'; {guess}")
    return path


def folder() -> Path:
    """Return the folder of the packaged specs: in the package, or beside it in a checkout."""
    inside = _PACKAGE / "specs"
    return inside if inside.is_dir() else _PACKAGE.parent / "specs"


@cache
def _files() -> MappingProxyType[str, Path]:
    """Return the file of each packaged spec by its stem, which is the spec's name."""
    return MappingProxyType({path.stem: path for path in sorted(folder().rglob("*.yaml"))})
