"""The tasks by name."""

from __future__ import annotations

from typing import Any

from mnemic.errors import Issue, UsageError, format_issue, nearest
from mnemic.search.tasks.base import Batch, Task
from mnemic.search.tasks.bytes import Bytes
from mnemic.search.tasks.mqar import Mqar
from mnemic.search.tasks.options import Options, choice, number

__all__ = ["Batch", "Options", "Task", "choice", "get", "names", "number", "register"]

_TASKS: dict[str, type[Task[Any]]] = {task.name: task for task in (Mqar, Bytes)}


def names() -> tuple[str, ...]:
    """The tasks' names, sorted.

    >>> names()
    ('bytes', 'mqar')
    """
    return tuple(sorted(_TASKS))


def get(name: str) -> type[Task[Any]]:
    """The class of a task.

    Raises:
        UsageError: there is no such task; says the nearest.
    """
    if name not in _TASKS:
        issue = Issue("no such task", "", name, names(), nearest(name, names()))
        raise UsageError(format_issue(issue))
    return _TASKS[name]


def register(task: type[Task[Any]]) -> type[Task[Any]]:
    """Add a task; usable as a decorator on the class.

    Raises:
        UsageError: another class has that name.
    """
    if _TASKS.setdefault(task.name, task) is not task:
        raise UsageError(f"a task named {task.name!r} exists already")
    return task
