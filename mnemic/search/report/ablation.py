"""The effect of each change of a spec: differences in skill on the same seeds, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import mean
from typing import Any, Final

from scipy import stats

from mnemic.search.report.entries import Entry
from mnemic.search.report.moderated import Spread, spreads
from mnemic.search.report.ties import find_significant
from mnemic.search.space.neighbours import Dropped, Neighbour
from mnemic.search.space.settings import TaskEntry
from mnemic.search.space.space import Space, load_space
from mnemic.search.study.scores import Interval, by_seed, interval
from mnemic.search.study.training import Run

TASKS: Final = ("mqar", "noisy-recall", "selective-copying", "compression", "swaps")
"""The tasks of an ablation that names no space: those that tell rules apart on a laptop."""
NONE: Final = "–"


def default_space() -> Space:
    """Return the default tasks and budget of an ablation."""
    return load_space({
        "mnemic": 1, "name": "ablation",
        "search": {
            "tasks": dict.fromkeys(TASKS, "tiny"), "model": {"dim": 64, "layers": 1},
            "constraints": "none", "rungs": [{"steps": 300, "seeds": 3}],
            "limits": {"seconds": 900, "memory": 4},
        },
    })  # fmt: skip


@dataclass(frozen=True)
class Effect:
    """The effect of a change of a spec on its skill.

    Args:
        axis: the axis that is changed.
        change: the change in words.
        name: the name of the changed spec.
        mean: the changed spec's mean skill minus the spec's, over seeds; None where a task is
            missing.
        tasks: the same, by task.
        sure: whether the mean differs with 95 % confidence, all changes together.
        why: the reason why it could not be measured.
    """

    axis: str
    change: str
    name: str
    mean: Interval | None
    tasks: Mapping[str, Interval]
    sure: bool = False
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the effect as plain data."""
        return asdict(self)


def effects(own: Entry, found: Sequence[tuple[Neighbour, Entry]]) -> list[Effect]:
    """Return the effect of each change, by axis in the order given, the largest gain first.

    Runs of one seed see the same batches, so seeds are compared in pairs: Student's interval of
    their differences, and a paired t test with Holm's correction for all changes. From twenty
    changes on the variances of differences are shrunk towards a common value, see `spreads`.
    """
    told = [_effect(own, neighbour, entry) for neighbour, entry in found]
    apart = {
        entry.name: differences(own.runs, entry.runs)
        for (_, entry), one in zip(found, told, strict=True) if one.mean is not None
    }  # fmt: skip
    spread = spreads(apart)
    sure = find_significant({name: _p_value(x, spread.get(name)) for name, x in apart.items()})
    order = list(dict.fromkeys(one.axis for one in told))
    marked = [Effect(**{**_fields(one), "sure": one.name in sure}) for one in told]
    return sorted(marked, key=lambda one: (order.index(one.axis), -_mean(one)))


def _effect(own: Entry, neighbour: Neighbour, entry: Entry) -> Effect:
    tasks = {
        task: interval(apart) for task in own.tasks
        if (apart := differences(_of(own.runs, task), _of(entry.runs, task)))
    }  # fmt: skip
    mean = interval(differences(own.runs, entry.runs)) if own.whole and entry.whole else None
    reasons = dict.fromkeys(entry.failed.values())
    why = entry.why or "; ".join(reasons)
    return Effect(neighbour.axis, neighbour.change, entry.name, mean, tasks, why=why)


def differences(own: Sequence[Run], other: Sequence[Run]) -> list[float]:
    """Return the difference of mean skills on each seed that both have."""
    mine, theirs = _seeds(own), _seeds(other)
    return [theirs[seed] - mine[seed] for seed in mine if seed in theirs]


def _seeds(runs: Sequence[Run]) -> dict[int, float]:
    return dict(zip(dict.fromkeys(run.seed for run in runs), by_seed(runs), strict=True))


def _of(runs: Sequence[Run], task: str) -> list[Run]:
    return [run for run in runs if run.task == task]


def _p_value(apart: Sequence[float], spread: Spread | None) -> float:
    """Return the p-value of the differences under no effect; 1 where seeds are too few."""
    if spread is None:
        return 1.0
    if not spread.variance:
        return 0.0 if mean(apart) else 1.0
    t = mean(apart) / (spread.variance / len(apart)) ** 0.5
    return float(2 * stats.t.sf(abs(t), spread.degrees))


def _mean(one: Effect) -> float:
    return -2.0 if one.mean is None else one.mean.mean


def _fields(one: Effect) -> dict[str, Any]:
    return {name: getattr(one, name) for name in Effect.__dataclass_fields__}


# -- as a page -------------------------------------------------------------------------------


def page(
    space: Space, own: Entry, told: Sequence[Effect], dropped: Sequence[Dropped]
) -> str:  # fmt: skip
    """Return the ablation as Markdown: the spec, each change's effect, and what was left out."""
    tasks = list(own.tasks)
    head = ["axis", "change", "mean", *tasks]
    lines = [_line(head), _line(["---"] * len(head))]
    lines.append(_line(["", own.name, str(own.skill or NONE), *map(str, own.tasks.values())]))
    lines += [_line(_row(one, tasks)) for one in told if one.tasks]
    parts = [_title(space, own), "\n".join(lines)]
    if missing := [one for one in told if one.why]:
        parts.append("## Not on every task\n\n" + "\n".join(
            f"- {one.axis}: {one.change}: {one.why}" for one in missing))  # fmt: skip
    if dropped:
        parts.append("## Changes left out\n\n" + "\n".join(
            f"- {one.axis}: {one.change}: {one.why}" for one in dropped))  # fmt: skip
    return "\n\n".join(parts) + "\n"


def _title(space: Space, own: Entry) -> str:
    rung, settings = space.settings.rungs[-1], space.settings
    sizes = ", ".join(f"{n} ({_size(rung.sizes.get(n), e)})" for n, e in settings.tasks.items())
    return (
        f"# Ablation: {own.name}\n\n"
        f"Each row changes one axis of `{own.name}`, whose own skills are in the first row, and "
        f"shows by how much the skill changes: the mean over {rung.seeds} seeds of the difference "
        f"to the same seed of `{own.name}`; ± is half of the 95 % confidence interval. Bold: the "
        "mean differs from 0 with 95 % confidence for all changes together (paired t tests with "
        "Holm's correction; with twenty changes or more, variances are estimated from all of them "
        "together). "
        f"{settings.model.layers} × {settings.model.dim} channels, {rung.steps} steps of "
        f"{settings.training.batch} sequences; {sizes}."
    )


def _size(rung: str | None, entry: TaskEntry) -> str:
    return rung or entry.rung or "published"


def _row(one: Effect, tasks: Sequence[str]) -> list[str]:
    mean = NONE if one.mean is None else _signed(one.mean)
    cells = [_signed(one.tasks[task]) if task in one.tasks else NONE for task in tasks]
    return [one.axis, one.change.replace("|", "\\|"), f"**{mean}**" if one.sure else mean, *cells]


def _signed(one: Interval) -> str:
    return f"{one.mean:+.3f}" + (f" ± {one.half:.3f}" if one.seeds > 1 else "")


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
