"""Train the best points again with seeds that the search never used, beside hand-written specs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from threading import Event, Lock
from typing import Final

from filelock import FileLock

from mnemic.dsl.hashing import spec_hash
from mnemic.dsl.spec import Spec
from mnemic.models.device import OF_SPACE, demand_device
from mnemic.models.files import write_json
from mnemic.search.space.settings import Rung, Settings
from mnemic.search.space.space import Space
from mnemic.search.study import work
from mnemic.search.study.isolated import Bounds, Failure, isolated
from mnemic.search.study.records import run_of
from mnemic.search.study.scores import Interval, above, by_seed, interval
from mnemic.search.study.side_by_side import side_by_side
from mnemic.search.study.training import Run

FRESH: Final = 1000
"""The first seed of a confirmation; those of a search are below."""
NAME: Final = "confirmed.json"

Named = tuple[str, Spec]


@dataclass(frozen=True)
class Confirmed:
    """A spec trained with fresh seeds: its runs, or why there are none.

    Args:
        setting: the difference to the last rung's budget; empty for that budget itself.
    """

    name: str
    runs: tuple[Run, ...]
    why: str = ""
    setting: str = ""

    @property
    def skill(self) -> Interval | None:
        """The mean skill over tasks with its interval over seeds; None without runs."""
        return interval(by_seed(self.runs)) if self.runs else None


def confirm(
    space: Space, new: Sequence[Named], known: Sequence[Named], folder: Path,
    told: Callable[[str], None], jobs: int = 1,
) -> list[Confirmed]:  # fmt: skip
    """Train found points and hand-written specs with fresh seeds, ``jobs`` at a time.

    The budget is the last rung's. If the space has ``longer`` or ``wider``, everything is repeated
    with that multiple of the steps, or of the model's width. With ``early`` a hand-written spec
    that after that many seeds is below the best point found, with 97.5 % confidence, is trained no
    further. Each of the two tests of a spec takes half of the 5 %, so that the final statement
    holds with 95 % confidence.

    Results are stored spec by spec: after an interruption the same call resumes. The specs that
    did best under the last rung's budget come first in the other settings, each in all of them
    before the next, so that a call that ends early has compared the best everywhere.

    Args:
        new: points that the search found, by name.
        known: hand-written specs to compare with, by name.

    Raises:
        UsageError: no such device.
        EnvironmentFailed: the device is not on this machine.
    """
    demand_device(space.settings.device, OF_SPACE)
    board = _Board(space, folder)
    number, total = 0, len(list(_settings(space))) * (len(new) + len(known))

    def tell(one: Confirmed) -> Confirmed:
        nonlocal number
        number += 1
        where = f" with {one.setting}" if one.setting else ""
        told(f"{number} of {total}: {one.name}{where} {one.why or one.skill}")
        return one

    first, *later = _settings(space)
    for stage in ([first], later):
        best: dict[str, Interval] = {}
        asked = [(setting, named) for setting in stage for named in new]
        for one in side_by_side(board.trained, asked, jobs, board.stopping):
            if skill := tell(one).skill:
                best[one.setting] = max(best.get(one.setting, skill), skill, key=_mean)
        asked = [(setting, named) for named in board.best_first(known) for setting in stage]
        for one in side_by_side(partial(board.compared, best), asked, jobs, board.stopping):
            tell(one)
    return board.results


def confidence(space: Space) -> float:
    """Return the confidence of one comparison that gives 95 % over all tests of a spec."""
    return 0.95 if space.settings.confirm.early is None else 0.975


def _mean(skill: Interval) -> float:
    return skill.mean


@dataclass(frozen=True)
class _Setting:
    """A budget under which specs are compared; ``label`` says what differs from the last rung."""

    label: str
    settings: Settings
    rung: Rung


_Asked = tuple[_Setting, Named]


def _settings(space: Space) -> Iterator[_Setting]:
    settings, asked = space.settings, space.settings.confirm
    last = settings.rungs[-1]
    yield _Setting("", settings, last)
    if asked.longer is not None:
        assert last.steps is not None
        steps = last.model_copy(update={"steps": asked.longer * last.steps})
        yield _Setting(f"{asked.longer}x steps", settings, steps)
    if asked.wider is not None:
        model = settings.model.model_copy(update={"dim": asked.wider * settings.model.dim})
        wide = settings.model_copy(update={"model": model})
        yield _Setting(f"{asked.wider}x width", wide, last)


class _Board:
    """The confirmed results so far, stored in a file, and the training of further specs."""

    def __init__(self, space: Space, folder: Path) -> None:
        self.space, self.folder = space, folder
        self.stopping, self.writing = Event(), Lock()
        self.kept = {(one.setting, one.name): (one, digest) for one, digest in self._stored()}
        self.done = {run.key: run for one, _ in self.kept.values() for run in one.runs if run.key}

    def _stored(self) -> list[tuple[Confirmed, str]]:
        return _load(self.space, self.folder)

    @property
    def results(self) -> list[Confirmed]:
        """All confirmed results, including those of earlier calls."""
        return [one for one, _ in self.kept.values()]

    def best_first(self, known: Sequence[Named]) -> list[Named]:
        """Return specs by their mean skills under the last rung's budget, those without last."""
        skills = {name: one.skill for (label, name), (one, _) in self.kept.items() if not label}
        found = {name: skill.mean for name, skill in skills.items() if skill}
        return sorted(known, key=lambda named: -found.get(named[0], -math.inf))

    def trained(self, asked: _Asked) -> Confirmed:
        """Train a spec in a setting with every fresh seed."""
        setting, named = asked
        return self._keep(setting, named, self._runs(setting, named, self._seeds(0, None)))

    def compared(self, found: Mapping[str, Interval], asked: _Asked) -> Confirmed:
        """Train a spec with a few seeds, and with the rest unless it is below the best found.

        Seeds that an earlier call trained stay in the result either way.

        Args:
            found: by the setting's label, the skill of the best point found.
        """
        setting, named = asked
        best = found.get(setting.label)
        early = self.space.settings.confirm.early if best is not None else None
        runs = self._runs(setting, named, self._seeds(0, early))
        if early is not None and not isinstance(runs, Failure):
            assert best is not None
            rest = self._seeds(early, None)
            if above(best, interval(by_seed(runs)), confidence(self.space)):
                rest = [seed for seed in rest if self._is_done(setting, named, seed)]
            more = self._runs(setting, named, rest)
            runs = more if isinstance(more, Failure) else runs + more
        return self._keep(setting, named, runs)

    def _is_done(self, setting: _Setting, named: Named, seed: int) -> bool:
        """Return whether every task was trained with a seed."""
        jobs = work.jobs(named[1], setting.settings, setting.rung, [seed])
        return all(job.key in self.done for job in jobs)

    def _seeds(self, first: int, end: int | None) -> Sequence[int]:
        seeds = self.space.settings.confirm.seeds
        return range(FRESH + first, FRESH + (seeds if end is None else end))

    def _runs(
        self, setting: _Setting, named: Named, seeds: Sequence[int]
    ) -> tuple[Run, ...] | Failure:
        """Train every task with these seeds, each run in a process of its own."""
        name, spec = named
        limits = setting.settings.limits
        bounds = Bounds(limits.seconds, limits.memory)
        log = self.folder / "logs" / f"confirm-{name.replace('/', '_')}.log"
        runs: list[Run] = []
        for job in work.jobs(spec, setting.settings, setting.rung, seeds):
            if job.key not in self.done:
                answer = isolated(
                    work.run_one, job, self.folder / "runs", limits.seconds, bounds=bounds,
                    log=log, stopping=self.stopping,
                )  # fmt: skip
                if self.stopping.is_set():
                    raise KeyboardInterrupt
                found = answer if isinstance(answer, Failure) else answer.value
                if isinstance(found, Failure):
                    return found
                self.done[job.key] = found
            runs.append(self.done[job.key])
        return tuple(runs)

    def _keep(self, setting: _Setting, named: Named, runs: tuple[Run, ...] | Failure) -> Confirmed:
        name, spec = named
        if isinstance(runs, Failure):
            found = Confirmed(name, (), f"{runs.kind}: {runs.why}", setting.label)
        else:
            found = Confirmed(name, runs, "", setting.label)
        lock = FileLock(self.folder / f"{NAME}.lock")
        with self.writing, lock:  # another command may confirm in this folder, too
            self.kept |= {(one.setting, one.name): (one, d) for one, d in self._stored()}
            self.kept[setting.label, name] = (found, spec_hash(spec))
            plain = [{**asdict(one), "spec": digest} for one, digest in self.kept.values()]
            write_json(self.folder / NAME, {"space": self.space.hash, "confirmed": plain})
        return found


def confirmed(space: Space, folder: Path) -> list[Confirmed]:
    """Load the results of earlier confirmations of this space."""
    return [one for one, _ in _load(space, folder)]


def _load(space: Space, folder: Path) -> list[tuple[Confirmed, str]]:
    """Load the confirmed results, each with the hash of its spec."""
    path = folder / NAME
    if not path.is_file():
        return []
    kept = json.loads(path.read_text(encoding="utf-8"))
    if kept["space"] != space.hash:
        return []
    return [
        (Confirmed(one["name"], tuple(map(run_of, one["runs"])), one["why"],
                   one.get("setting", "")), one["spec"])
        for one in kept["confirmed"]
    ]  # fmt: skip
