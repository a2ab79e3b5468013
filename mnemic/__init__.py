"""A compiler for memory: from a spec of an associative memory to a running sequence layer.

>>> import mnemic
>>> spec = mnemic.load("gated-deltanet")
>>> spec.bias.text
'e**2/2'
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mnemic import errors as errors
    from mnemic.dsl.load import load as load
    from mnemic.pipeline import Compiled as Compiled
    from mnemic.pipeline import compile as compile
    from mnemic.pipeline import derive as derive
    from mnemic.pipeline import diff as diff

    __version__: str

__all__ = ["Compiled", "compile", "derive", "diff", "load"]


def __getattr__(name: str) -> Any:
    """Load what is asked for, when it is: importing mnemic is light."""
    if name == "__version__":
        from importlib.metadata import version

        return version("mnemic")
    if name == "errors":
        return import_module("mnemic.errors")
    if name in __all__:
        return _loaded(name)
    raise AttributeError(f"module 'mnemic' has no attribute '{name}'")


def _loaded(name: str) -> Any:
    """Import with the garbage collector at rest: torch's many objects make it slow meanwhile."""
    from mnemic.garbage import uncollected

    with uncollected():
        if name == "load":
            from mnemic.dsl.load import load

            return load
        from mnemic import pipeline

        return getattr(pipeline, name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__", "errors"])
