"""Where the objects of a compiled folder come from, as their pickles tell it."""

import importlib
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol


class HasModule(Protocol):
    """A compiled spec; it pickles itself."""

    @property
    def module(self) -> ModuleType:
        """The generated package."""


@dataclass(frozen=True)
class Origin:
    """What a pickle calls to find classes of a compiled folder, which every process imports under
    a name of its own; ``place`` is a module's name after the package's, dot first."""

    compiled: HasModule

    def named(self, place: str, name: str) -> Any:
        """Return what a module of the folder has under a name."""
        return getattr(importlib.import_module(f"{self.compiled.module.__name__}{place}"), name)

    def blank(self, place: str, name: str) -> Any:
        """Return an instance of a class of the folder, before its state."""
        cls = self.named(place, name)
        return cls.__new__(cls)

    def made(self, place: str, name: str, *args: Any) -> Any:
        """Call a class of the folder with these arguments, and return what it gives."""
        return self.named(place, name)(*args)
