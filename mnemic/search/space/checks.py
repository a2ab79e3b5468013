"""Check the names in the settings of a search: tasks, rungs, objectives, specs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from mnemic.dsl.catalogue import names as specs
from mnemic.dsl.documents import Layers
from mnemic.dsl.extends import is_path
from mnemic.dsl.reading import Place
from mnemic.errors import Issue, UsageError, nearest
from mnemic.search.space.settings import COSTS, Rung, TaskEntry

if TYPE_CHECKING:
    from mnemic.search.space.space import Space
    from mnemic.search.tasks import MemoryTask, Task


def trained(name: str, entry: TaskEntry, rung: str | None = None) -> Task[Any]:
    """Return the task of an entry, at its own rung or at ``rung``.

    Raises:
        UsageError: no such task, rung or option, or a task of the memory alone.
    """
    from mnemic.search.tasks import get

    return get(name).configure(entry.options, rung or entry.rung)


def untrained(rung: Rung) -> MemoryTask[Any]:
    """Return the task of an untrained rung.

    Raises:
        UsageError: no such task or rung, or a task that a model is trained on.
    """
    from mnemic.search.tasks import MemoryTask, find

    assert rung.untrained is not None
    found = find(rung.untrained)
    if not issubclass(found, MemoryTask):
        raise UsageError(f"{rung.untrained}: not a task of the memory alone: give it 'steps'")
    return found.configure({}, rung.rung)


def issues(space: Space) -> list[Issue]:
    """List every name in the settings that does not exist."""
    where = _Where(space)
    return [*_tasks(space, where), *_rungs(space, where), *_objectives(space, where),
            *_specs(space, where)]  # fmt: skip


class _Where:
    """The positions of settings, at which errors of calls are reported as issues."""

    def __init__(self, space: Space) -> None:
        self.layers = Layers((space.document,))

    def __call__(self, *place: str | int) -> str:
        whole: Place = ("search", *place)
        return self.layers.where(whole)

    def tried(self, call: Callable[[], object], *place: str | int) -> Iterator[Issue]:
        try:
            call()
        except UsageError as error:
            for line in str(error).splitlines():
                yield Issue(line, self(*place))


def _tasks(space: Space, where: _Where) -> Iterator[Issue]:
    for name, entry in space.settings.tasks.items():
        yield from where.tried(lambda n=name, e=entry: trained(n, e), "tasks", name)  # type: ignore[misc]


def _rungs(space: Space, where: _Where) -> Iterator[Issue]:
    tasks = space.settings.tasks
    for i, rung in enumerate(space.settings.rungs):
        if rung.untrained is not None:
            yield from where.tried(lambda r=rung: untrained(r), "rungs", i, "untrained")  # type: ignore[misc]
        for name, size in rung.sizes.items():
            place = ("rungs", i, "sizes", name)
            if name not in tasks:
                near = nearest(name, tasks)
                yield Issue("not among 'tasks'", where(*place), name, tuple(tasks), near)
                continue
            yield from where.tried(lambda n=name, s=size: trained(n, tasks[n], s), *place)  # type: ignore[misc]


def _objectives(space: Space, where: _Where) -> Iterator[Issue]:
    allowed = ("mean", *space.settings.tasks, *COSTS)
    given = space.settings.objectives
    for i, name in enumerate(given):
        if name not in allowed:
            yield Issue("", where("objectives", i), name, allowed, nearest(name, allowed))
        elif name in given[:i]:
            yield Issue("given twice", where("objectives", i), name)


def _specs(space: Space, where: _Where) -> Iterator[Issue]:
    settings = space.settings
    named = [("start", i, name) for i, name in enumerate(settings.start)]
    named += [("confirm", i, name) for i, name in enumerate(settings.confirm.against)]
    for key, i, name in named:
        if name == "all":
            continue
        place = (key, i) if key == "start" else (key, "against", i)
        if not is_path(name) and name not in specs():
            yield Issue("no packaged spec is called so", where(*place), name, (),
                        nearest(name, specs()))  # fmt: skip
    if not is_path(settings.reference) and settings.reference not in specs():
        near = nearest(settings.reference, specs())
        message = "no packaged spec is called so"
        yield Issue(message, where("reference"), settings.reference, (), near)
