"""The tasks by name: those that a model is trained on, and those of the memory alone."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, TypeVar

from mnemic.errors import Issue, UsageError, format_issue, nearest
from mnemic.search.tasks import files
from mnemic.search.tasks.base import Batch, Task
from mnemic.search.tasks.exercise import Exercise
from mnemic.search.tasks.memory_task import MemoryTask, Pairs
from mnemic.search.tasks.options import Options, choice, number
from mnemic.search.tasks.untrained import Outcome, evaluate, tuned

__all__ = [
    "Batch",
    "Exercise",
    "MemoryTask",
    "Options",
    "Outcome",
    "Pairs",
    "Task",
    "choice",
    "evaluate",
    "find",
    "get",
    "memory_names",
    "names",
    "number",
    "register",
    "tuned",
]

E = TypeVar("E", bound=Exercise[Any])


def _packaged() -> Iterator[type[Exercise[Any]]]:
    """Yield the tasks of this folder, so that a task is known as soon as its file is there."""
    for found in iter_modules(__path__):
        module = import_module(f"{__name__}.{found.name}")
        for value in vars(module).values():
            own = isinstance(value, type) and value.__module__ == module.__name__
            if own and issubclass(value, Exercise) and "name" in vars(value):
                yield value


_TASKS: dict[str, type[Exercise[Any]]] = {task.name: task for task in _packaged()}


def names() -> tuple[str, ...]:
    """Return the names of the tasks that a model is trained on, sorted.

    >>> names()[:3]
    ('bytes', 'compression', 'fuzzy-recall')
    """
    return tuple(sorted(name for name, task in _TASKS.items() if issubclass(task, Task)))


def memory_names() -> tuple[str, ...]:
    """Return the names of the tasks of the memory alone, sorted.

    >>> memory_names()[-1]
    'window-mlp'
    """
    return tuple(sorted(name for name, task in _TASKS.items() if issubclass(task, MemoryTask)))


def find(name: str) -> type[Exercise[Any]]:
    """Find the class of any task, by its name or by the path of a Python file that registers it.

    Raises:
        UsageError: there is no such task (says the nearest), or the file registers none, or
            several.
    """
    if name.endswith(".py"):
        return _of_file(name)
    return _among(name, tuple(sorted(_TASKS)))


def get(name: str) -> type[Task[Any]]:
    """Find the class of a task that a model is trained on, by name or by a file's path.

    Raises:
        UsageError: as `find`; or the task is one of the memory alone.
    """
    if name in memory_names():
        raise UsageError(f"{name}: a task of the memory alone, which no model is trained on")
    found = find(name) if name.endswith(".py") else _among(name, names())
    if not issubclass(found, Task):
        raise UsageError(f"{name}: a task of the memory alone, which no model is trained on")
    return found


def register(task: type[E]) -> type[E]:
    """Add a task; usable as a decorator on the class.

    Raises:
        UsageError: another class has that name.
    """
    if _TASKS.setdefault(task.name, task) is not task:
        raise UsageError(f"a task named {task.name!r} exists already")
    task.digest = files.digest(task.__module__)
    return task


def _among(name: str, allowed: tuple[str, ...]) -> type[Exercise[Any]]:
    if name not in allowed:
        issue = Issue("no such task", "", name, allowed, nearest(name, allowed))
        raise UsageError(format_issue(issue))
    return _TASKS[name]


def _of_file(path: str) -> type[Exercise[Any]]:
    """Import a file and return the one task that it registers."""
    module = files.imported(Path(path))
    own = [task for task in _TASKS.values() if task.__module__ == module]
    if len(own) != 1:
        raise UsageError(f"{path}: registers {len(own)} tasks, must register one")
    return own[0]
