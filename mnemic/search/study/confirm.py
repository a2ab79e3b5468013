"""The best points again, with seeds that the search never used, beside specs made by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from mnemic.dsl.hashing import spec_hash
from mnemic.dsl.load import load
from mnemic.dsl.spec import Spec
from mnemic.models.files import write_json
from mnemic.search.space.known import chosen
from mnemic.search.space.one_block import in_block
from mnemic.search.space.space import Space
from mnemic.search.study import work
from mnemic.search.study.isolated import Bounds, Failure, isolated
from mnemic.search.study.records import run_of
from mnemic.search.study.training import Run

FRESH: Final = 1000
"""The first seed of a confirmation; those of a search are below."""
NAME: Final = "confirmed.json"


@dataclass(frozen=True)
class Confirmed:
    """A spec with fresh seeds: its runs, or why there are none."""

    name: str
    runs: tuple[Run, ...]
    why: str = ""


def by_hand(space: Space, name: str) -> Spec:
    """Load a spec by name or path, in the space's block; see `fitted`."""
    return fitted(space, load(name))


def fitted(space: Space, spec: Spec) -> Spec:
    """Return the spec in the space's block, where there is one and nothing is chosen in it.

    Raises:
        InvalidSpec: the spec and the block contradict each other.
    """
    items = {str(key): node for key, node in space.root.items}
    if "block" not in items or chosen(items["block"]):
        return spec
    block = load({"name": "block", "block": space.document.data["block"]}).block
    return in_block(spec, block)


def confirm(
    space: Space, specs: Sequence[tuple[str, Spec]], folder: Path, told: Callable[[str], None]
) -> list[Confirmed]:
    """Train each spec with fresh seeds at the last rung's budget; runs that are stored are read."""
    found = []
    for name, spec in specs:
        found.append(_confirmed(space, name, spec, folder))
        told(f"confirmed {name}{': ' + found[-1].why if found[-1].why else ''}")
    kept = [{**asdict(one), "spec": spec_hash(spec)}
            for one, (_, spec) in zip(found, specs, strict=True)]  # fmt: skip
    write_json(folder / NAME, {"space": space.hash, "confirmed": kept})
    return found


def _confirmed(space: Space, name: str, spec: Spec, folder: Path) -> Confirmed:
    """Train a spec with each fresh seed, in a process of its own."""
    settings = space.settings
    runs: list[Run] = []
    for seed in range(FRESH, FRESH + settings.confirm.seeds):
        told: tuple[Any, ...] = (spec, settings, settings.rungs[-1], (seed,), folder / "runs")
        bounds = Bounds(settings.limits.seconds, settings.limits.memory)
        log = folder / "logs" / f"confirm-{name}.log"
        answer = isolated(work.train_seeds, *told, bounds=bounds, log=log)
        if isinstance(answer, Failure):
            return Confirmed(name, (), f"{answer.kind}: {answer.why}")
        runs += answer.value
    return Confirmed(name, tuple(runs))


def confirmed(space: Space, folder: Path) -> list[Confirmed]:
    """Load what an earlier confirmation of this space left."""
    path = folder / NAME
    if not path.is_file():
        return []
    kept = json.loads(path.read_text(encoding="utf-8"))
    if kept["space"] != space.hash:
        return []
    return [
        Confirmed(one["name"], tuple(map(run_of, one["runs"])), one["why"])
        for one in kept["confirmed"]
    ]
