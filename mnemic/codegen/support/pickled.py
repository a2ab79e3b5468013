"""How layers and what they are made of are pickled: by the spec that they were compiled from.

A compiled folder may be imported under any name, so a pickle that names the module of a class can
be read in no other process. What mnemic loaded knows where it came from, ``ORIGIN`` of its package;
pickles tell that, and the place of the class in the folder.
"""

import copyreg
import importlib
import importlib.machinery
import pickle
import sys
from pathlib import Path
from typing import Any, NoReturn, Protocol

from .folder import PACKAGE

BLANK: Any = copyreg.__newobj__  # type: ignore[attr-defined]
"""What Python makes instances of classes by."""


class Origin(Protocol):
    """The source of a compiled folder, as pickles name it; it can be pickled itself."""

    def blank(self, place: str, name: str) -> Any:
        """Return an uninitialised instance of a class of the folder."""

    def named(self, place: str, name: str) -> Any:
        """Return what the folder has under a name."""

    def made(self, place: str, name: str, *args: Any) -> Any:
        """Return what a class of the folder gives for these arguments."""


class Pickled:
    """Pickles and copies as an object of its compiled folder, wherever that is imported."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        told: Any = super().__reduce_ex__(max(2, protocol))
        function, args, *rest = told
        cls = type(self)
        place = _place(cls)
        if place is None:
            return (function, args, *rest)
        if function is BLANK and args == (cls,):
            return (_origin().blank, (place, cls.__qualname__), *rest)
        if function is cls:
            return (_origin().made, (place, cls.__qualname__, *args), *rest)
        return (function, args, *rest)


def by_name(x: object, name: str) -> Any:
    """Return how to pickle what the folder calls ``name``; ``None`` where x is not that."""
    if getattr(home(), name, None) is not x:
        return None
    if _importable():
        return (of_home, (name,))
    return (_origin().named, ("", name))


def of_home(name: str) -> Any:
    """Return what the compiled folder has under a name."""
    return getattr(home(), name)


def home() -> Any:
    """Return the package of the compiled folder."""
    return sys.modules[PACKAGE]


def _place(cls: type) -> str | None:
    """Return the module of a class within its folder; ``None`` where its name can be imported as it
    is, or where it is a subclass written elsewhere."""
    if not cls.__module__.startswith(f"{PACKAGE}.") or _importable():
        return None
    return cls.__module__.removeprefix(PACKAGE)


def _importable() -> bool:
    """Return whether another process that looks in the same folders can import this one by name."""
    top, _, rest = PACKAGE.partition(".")
    if rest:
        return True  # part of another package, whose name it has
    found = importlib.machinery.PathFinder.find_spec(top)
    return found is not None and found.origin == home().__file__


def _origin() -> Origin:
    found: Origin | None = getattr(home(), "ORIGIN", None)
    return Nowhere() if found is None else found


class Nowhere:
    """The origin of a folder imported by its path: its objects can be copied, not pickled."""

    def blank(self, place: str, name: str) -> Any:
        """Return an uninitialised instance of a class of the folder."""
        cls = found(home(), place, name)
        return cls.__new__(cls)

    def named(self, place: str, name: str) -> Any:
        """Return what the folder has under a name."""
        return found(home(), place, name)

    def made(self, place: str, name: str, *args: Any) -> Any:
        """Return what a class of the folder gives for these arguments."""
        return found(home(), place, name)(*args)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Nowhere":
        return self

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        folder = Path(home().__file__).parent
        raise pickle.PicklingError(
            f"the code of this object was imported from {folder} as '{PACKAGE}', a name that no "
            "other process can import: import the folder by its own name, with its parent on "
            "sys.path, on both sides; or make the layer with mnemic.compile(spec).layer(dim), with "
            "mnemic installed on both sides; or save layer.state_dict()"
        )


def found(package: Any, place: str, name: str) -> Any:
    """Return what a module of a compiled folder has under a name."""
    return getattr(importlib.import_module(f"{package.__name__}{place}"), name)
