"""A task's options: fields with a default and a documented range, checked when made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from mnemic.errors import Issue, UsageError, format_issue, nearest


@dataclass(frozen=True)
class Options:
    """The base of every task's options: each field is made by `number` or `choice`.

    Raises:
        UsageError: values outside the documented ranges; all of them are named.
    """

    def __post_init__(self) -> None:
        issues = [_issue(f.name, f.metadata, getattr(self, f.name)) for f in fields(self)]
        refuse([issue for issue in issues if issue is not None])


def number(default: float, low: float, high: float, about: str) -> Any:
    """Make a field for a number in [low, high]; for an integer where ``default`` is one."""
    kind = int if isinstance(default, int) else float
    return field(default=default, metadata={"range": (low, high), "kind": kind, "about": about})


def choice(default: str, allowed: tuple[str, ...], about: str) -> Any:
    """Make a field for one of the words in ``allowed``."""
    return field(default=default, metadata={"allowed": allowed, "about": about})


def described(options: type[Options]) -> list[dict[str, Any]]:
    """Return each option as plain data: name, default, what is allowed, what it is about."""
    return [
        {
            "name": f.name,
            "default": f.default,
            "allowed": list(f.metadata.get("allowed", f.metadata.get("range", ()))),
            "kind": "choice" if "allowed" in f.metadata else f.metadata["kind"].__name__,
            "about": f.metadata["about"],
        }
        for f in fields(options)
    ]


def refuse(issues: list[Issue]) -> None:
    """Raise a UsageError that names every issue; nothing happens where there is none."""
    if issues:
        raise UsageError("\n".join(map(format_issue, issues)))


def _issue(name: str, facts: Mapping[str, Any], value: object) -> Issue | None:
    """Return what is wrong with one field's value, or None."""
    if "allowed" in facts:
        return _issue_of_choice(name, facts["allowed"], value)
    low, high = facts["range"]
    integral = facts["kind"] is int
    right_kind = isinstance(value, int if integral else int | float)
    if right_kind and not isinstance(value, bool) and low <= value <= high:
        return None
    kind = "an integer" if integral else "a number"
    return Issue(f"{kind} in [{low}, {high}]: {facts['about']}", name, read=str(value))


def _issue_of_choice(name: str, allowed: tuple[str, ...], value: object) -> Issue | None:
    if value in allowed:
        return None
    read = str(value)
    return Issue("", name, read=read, allowed=allowed, nearest=nearest(read, allowed))
