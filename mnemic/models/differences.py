"""The differences between a run and an earlier one that it is to resume."""

from collections.abc import Iterator, Mapping
from typing import Any


def find_differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> Iterator[str]:
    """Yield each entry of ``ours`` that differs in ``theirs``, with both values.

    >>> theirs = {"lr": 0.1, "model": {"a": 2, "b": 3}}
    >>> list(find_differences(theirs, {"lr": 0.2, "model": {"a": 4}}))
    ['lr (0.1 there, 0.2 here)', 'model.a (2 there, 4 here)']
    """
    for name, value in ours.items():
        if theirs.get(name) != value:
            yield _tell(name, theirs.get(name), value)


def _tell(name: str, theirs: Any, ours: Any) -> str:
    """Say in what two values differ; of mappings, in the first entry that does."""
    if isinstance(theirs, Mapping) and isinstance(ours, Mapping):
        keys = dict.fromkeys([*theirs, *ours])
        first = next(key for key in keys if theirs.get(key) != ours.get(key))
        return _tell(f"{name}.{first}", theirs.get(first), ours.get(first))
    return f"{name} ({theirs} there, {ours} here)"
