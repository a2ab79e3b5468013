"""What can go wrong, as one family of errors with one formatter.

Each class has the exit code that the command ends with. An error pickles, and
turns into a plain dictionary for ``--json``.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, ParamSpec, TypeVar

_LONGEST_READ = 60
_SIMILAR_ENOUGH = 60.0
_POSITION_AND_PATH = re.compile(r"(.*:\d+:\d+) (.+)", re.DOTALL)


@dataclass(frozen=True)
class Issue:
    """One thing that is wrong: where, what was read, what is allowed, the nearest match.

    ``where`` is a position, a path into the spec, or both with a space between:
    ``specs/x.yaml:3:10 bias.kind``. ``message`` may be empty where ``read`` says it all.
    """

    message: str
    where: str = ""
    read: str | None = None
    allowed: tuple[str, ...] = ()
    nearest: str | None = None
    hint: str | None = None


def format_issue(issue: Issue) -> str:
    """Write an issue as one line.

    >>> print(format_issue(Issue("", "x.yaml:3:10 bias.kind", "l3", ("l1", "l2"), "l2")))
    x.yaml:3:10: bias.kind: read 'l3', allowed: l1, l2; did you mean 'l2'?
    """
    facts = [] if issue.read is None else [f"read {_quoted(issue.read)}"]
    facts += [f"allowed: {', '.join(issue.allowed)}"] if issue.allowed else []
    where = _POSITION_AND_PATH.sub(r"\1: \2", issue.where)
    line = ": ".join(part for part in (where, issue.message, ", ".join(facts)) if part)
    line += f"; did you mean '{issue.nearest}'?" if issue.nearest else ""
    return line + (f" ({issue.hint})" if issue.hint else "")


def nearest(word: str, allowed: Collection[str], least: float = _SIMILAR_ENOUGH) -> str | None:
    """Return the allowed word most like ``word``, or None where none is like it.

    ``least`` of 100 is how like it has to be: 100 for the same letters.

    >>> nearest("hubber", ["dot", "l2", "huber"])
    'huber'
    """
    from rapidfuzz import fuzz, process

    found = process.extractOne(
        word[:_LONGEST_READ],
        sorted(allowed),
        scorer=fuzz.ratio,
        processor=str.lower,
        score_cutoff=least,
    )
    return None if found is None else found[0]


class MnemicError(Exception):
    """The base of the family; what is raised is always one of its children."""

    exit_code: ClassVar[int] = 1

    def to_json(self) -> dict[str, Any]:
        """Return the error as plain data: ``error``, ``exit_code``, ``message``."""
        return {
            "error": type(self).__name__,
            "exit_code": self.exit_code,
            "message": str(self),
        }


class UsageError(MnemicError):
    """The command or the call was given something that it cannot work with."""

    exit_code = 2


class InvalidSpec(MnemicError):
    """A spec that cannot be read or makes no sense; holds everything that is wrong with it."""

    exit_code = 3

    def __init__(self, issues: Iterable[Issue]) -> None:
        self.issues = tuple(issues)
        super().__init__(self.issues)

    def __str__(self) -> str:
        return "\n".join(map(format_issue, self.issues))

    def to_json(self) -> dict[str, Any]:
        """Return ``error``, ``exit_code``, ``message`` and ``issues``, one dictionary each."""
        issues = [{**asdict(issue), "allowed": list(issue.allowed)} for issue in self.issues]
        return {**super().to_json(), "issues": issues}


class CheckFailed(MnemicError):
    """A numerical check found two computations apart that must agree."""

    exit_code = 4


class EnvironmentFailed(MnemicError):
    """Something outside mnemic is missing or broken: a package, a device, a folder."""

    exit_code = 5


P = ParamSpec("P")
R = TypeVar("R")


def named_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function refuse an argument of another name, with the names that it has.

    Raises UsageError in the call.
    """
    parameters = inspect.signature(function).parameters
    allowed = tuple(name for name in parameters if name != "self")

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name not in allowed:
                issue = Issue("", f"{function.__name__}()", name, allowed, nearest(name, allowed))
                raise UsageError(f"no such argument: {format_issue(issue)}")
        return function(*args, **kwargs)

    return call


def _quoted(text: str) -> str:
    """Put a text in quotes, on one line and not too long."""
    return repr(text if len(text) <= _LONGEST_READ else text[: _LONGEST_READ - 3] + "...")
