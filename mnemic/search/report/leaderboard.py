"""Specs made by hand on the same tasks with the same budget, the papers' claims beside them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import rfc8785

from mnemic.dsl.hashing import spec_hash
from mnemic.dsl.spec import Spec
from mnemic.errors import InvalidSpec
from mnemic.models.files import claim, write_json
from mnemic.search.report.claims import CLAIMS, claimed
from mnemic.search.space.space import Space
from mnemic.search.study import work
from mnemic.search.study.budget import bounds
from mnemic.search.study.confirm import by_hand
from mnemic.search.study.isolated import Bounds, Failure, isolated
from mnemic.search.study.scores import Interval, by_seed, by_task, interval
from mnemic.search.study.training import Run
from mnemic.search.study.work import Look

RESULTS = "leaderboard.json"


@dataclass(frozen=True)
class Entry:
    """A spec on all tasks, or why not.

    Args:
        name: of the spec.
        look: what is known without training.
        runs: every task with every seed.
        over: costs above their bounds, in words: the comparison is not at equal budget.
        why: there are no runs.
    """

    name: str
    look: Look | None
    runs: tuple[Run, ...]
    over: tuple[str, ...] = ()
    why: str = ""

    @property
    def skill(self) -> Interval | None:
        """The mean skill over tasks, an interval over seeds."""
        return interval(by_seed(self.runs)) if self.runs else None

    @property
    def tasks(self) -> dict[str, Interval]:
        """The skill on each task."""
        return {task: interval(skills) for task, skills in by_task(self.runs).items()}


def leaderboard(
    space: Space, names: Sequence[str], folder: Path, told: Callable[[str], None],
    again: bool = False,
) -> list[Entry]:  # fmt: skip
    """Measure each spec; what an earlier call measured or saw fail is read.

    Every spec has its own block, or the space's where that is fixed, and the model, batches,
    steps and seeds of the last rung. ``again`` tries once more what failed.
    """
    claim(folder, "leaderboard")
    (folder / "logs").mkdir(exist_ok=True)
    limits = bounds(space.settings, folder / "logs" / "reference.log")
    kept = _kept(folder)
    found = []
    for index, name in enumerate(names, 1):
        key = _key(space, by_hand(space, name))
        old = kept.get(name, {})
        if old.get("key") == key and not (again and old["why"]):
            entry = _read(name, old)
        else:
            entry = _measured(space, name, limits, folder)
            kept[name] = {"key": key, **_plain(entry)}
            write_json(folder / RESULTS, kept)
        found.append(entry)
        told(f"{index} of {len(names)}: {name} {entry.skill or entry.why}")
    return found


def _measured(space: Space, name: str, limits: dict[str, float], folder: Path) -> Entry:
    try:
        spec = by_hand(space, name)
    except InvalidSpec as error:
        return Entry(name, None, (), why=str(error).splitlines()[0])
    settings = space.settings
    allowed = Bounds(settings.limits.seconds, settings.limits.memory)
    log = folder / "logs" / f"{name.replace('/', '_')}.log"
    first = settings.rungs[0] if settings.rungs[0].untrained is not None else None
    seen = isolated(work.look, spec, settings, first, bounds=allowed, log=log)
    if isinstance(seen, Failure):
        return Entry(name, None, (), why=f"{seen.kind}: {seen.why}")
    look, runs = seen.value, list[Run]()
    over = [f"{cost} {look.costs[cost] / bound:.1f}x" for cost, bound in limits.items()
            if look.costs[cost] > bound]  # fmt: skip
    for job in work.jobs(spec, settings, settings.rungs[-1], range(settings.rungs[-1].seeds)):
        done = isolated(work.run_one, job, folder / "runs", bounds=allowed, log=log)
        if isinstance(done, Failure):
            why = f"{job.task}, seed {job.seed}: {done.kind}: {done.why}"
            return Entry(name, look, (), tuple(over), why)
        runs.append(done.value)
    return Entry(name, look, tuple(runs), tuple(over))


def table(space: Space, entries: Sequence[Entry]) -> str:
    """The leaderboard as Markdown: within the budget first, then over it, then what failed."""
    tasks = list(space.settings.tasks)
    within = sorted((e for e in entries if e.runs and not e.over), key=_by_skill)
    beyond = sorted((e for e in entries if e.runs and e.over), key=_by_skill)
    failed = [e for e in entries if not e.runs]
    head = ["", "spec", "mean skill", *tasks, "parameters", "state, bytes", "ms a step"]
    if space.settings.rungs[0].untrained is not None:
        head.append(f"{space.settings.rungs[0].untrained}, untrained error")
    lines = [_line(head), _line(["---"] * len(head))]
    lines += [_line(_row(str(i), e, tasks, space)) for i, e in enumerate(within, 1)]
    parts = ["\n".join(lines)]
    if beyond:
        rows = [_line([*head, "over"]), _line(["---"] * (len(head) + 1))]
        rows += [_line([*_row("", e, tasks, space), ", ".join(e.over)]) for e in beyond]
        parts.append("## Over the budget\n\n" + "\n".join(rows))
    if failed:
        parts.append("## Not run\n\n" + "\n".join(f"- {e.name}: {e.why}" for e in failed))
    parts.append(_claims(space))
    return f"{_title(space)}\n\n" + "\n\n".join(part for part in parts if part) + "\n"


def _title(space: Space) -> str:
    rung, settings = space.settings.rungs[-1], space.settings
    sizes = ", ".join(
        f"{name} ({rung.sizes.get(name) or entry.rung or 'published'})"
        for name, entry in settings.tasks.items()
    )
    return (
        f"# Leaderboard: {space.name}\n\n"
        f"Each spec on each task: {settings.model.layers} layers of {settings.model.dim}, "
        f"{rung.steps} steps of {settings.training.batch} sequences, {rung.seeds} seeds; {sizes}. "
        "Skill is the score on the way from chance (0) to the best possible (1); ± is half of the "
        "95 % confidence interval over seeds. In brackets the accuracy in percent that a paper "
        "gives the system on the published setting, with larger models trained longer."
    )


def _row(place: str, entry: Entry, tasks: Sequence[str], space: Space) -> list[str]:
    assert entry.look is not None
    skills = [_cell(entry, task) for task in tasks]
    step = sum(run.step_seconds for run in entry.runs) / len(entry.runs)
    row = [place, entry.name, str(entry.skill), *skills, f"{entry.look.parameters:,}",
           f"{entry.look.state_bytes:,}", f"{1e3 * step:.1f}"]  # fmt: skip
    error = entry.look.error
    return row if error is None else [*row, f"{error:.3f}"]


def _cell(entry: Entry, task: str) -> str:
    paper = claimed(entry.name, task)
    return str(entry.tasks[task]) + (f" [{paper:g}]" if paper is not None else "")


def _claims(space: Space) -> str:
    untrained = {rung.untrained for rung in space.settings.rungs}
    about = [c for c in CLAIMS if c.task in space.settings.tasks or c.task in untrained]
    if not about:
        return ""
    lines = [f"- {c.task}: {c.text} ({c.source})." for c in about]
    return "## What the papers claim\n\n" + "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _by_skill(entry: Entry) -> float:
    assert entry.skill is not None
    return -entry.skill.mean


def _key(space: Space, spec: Spec) -> str:
    identity = {"spec": spec_hash(spec), "search": space.identity["search"]}
    return sha256(rfc8785.dumps(identity)).hexdigest()


def _kept(folder: Path) -> dict[str, dict[str, Any]]:
    path = folder / RESULTS
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _plain(entry: Entry) -> dict[str, Any]:
    look = None if entry.look is None else asdict(entry.look)
    if look is not None and look["error"] == float("inf"):
        look["error"] = 1e300
    return {"look": look, "runs": [asdict(run) for run in entry.runs], "over": list(entry.over),
            "why": entry.why}  # fmt: skip


def _read(name: str, kept: dict[str, Any]) -> Entry:
    from mnemic.search.study.records import run_of

    look = None if kept["look"] is None else Look(**kept["look"])
    runs = tuple(map(run_of, kept["runs"]))
    return Entry(name, look, runs, tuple(kept["over"]), kept["why"])
