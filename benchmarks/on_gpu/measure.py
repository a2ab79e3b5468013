"""One row measured: our forms and the peers, checked against each other, then timed in turns."""

import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from on_gpu import steps
from on_gpu.peers import Missing, Peer, peer
from on_gpu.rows import Row
from on_gpu.subject import Subject, load

AGREEMENT = 2e-2
"""Difference relative to 1 + the largest entry up to which 16-bit outputs count as the same."""


@dataclass(frozen=True)
class Setting:
    """How rows are measured."""

    folders: Path
    device: str
    dtype: torch.dtype
    forms: tuple[str, ...]
    rounds: int
    dry: bool

    @property
    def graphs(self) -> bool:
        """Whether CUDA graphs and the profiler are there."""
        return self.device == "cuda"


def measured(row: Row, setting: Setting) -> dict[str, Any]:
    """The results of a row: ways (forward, both) by runner, and what could not run and why."""
    subject = Subject.of(load(setting.folders / row.spec), row, setting.device, setting.dtype)
    found: dict[str, Any] = {"row": asdict(row), "ways": {}, "failed": {}, "runners": {}}
    runs = _runs(row, subject, setting, found)
    with torch.no_grad():
        _compare(row, runs, subject, found)
    for way in ("forward",) if row.decode else ("forward", "forward+backward"):
        found["ways"][way] = _way(way, runs, subject, setting, found["failed"])
    return found


def _runs(row: Row, subject: Subject, setting: Setting, found: dict[str, Any]) -> dict[str, Peer]:
    """Everything that is timed, by name."""
    runs: dict[str, Peer] = {}
    for form in setting.forms:
        if form in subject.rule.forms:
            runs[f"mnemic {form}"] = Peer(f"form='{form}'", subject.form(form))
        else:
            found["failed"][f"mnemic {form}"] = "the rule has no such form"
    if row.compiled and "chunk" in subject.rule.forms and not setting.dry:
        runs["compiled chunk"] = Peer("torch.compile of form='chunk'",
                                      torch.compile(subject.form("chunk")))  # fmt: skip
    for name in row.peers:
        try:
            runs[name] = peer(name, row, subject, setting.dry)
        except Missing as why:
            found["failed"][name] = str(why)
    found["runners"] = {name: {"what": p.what, "same": p.same} for name, p in runs.items()}
    return runs


def _compare(row: Row, runs: dict[str, Peer], subject: Subject, found: dict[str, Any]) -> None:
    """Differences to our first form; who differs is not timed. A runner that fails is left out."""
    first: Tensor | None = None
    for name, one in list(runs.items()):
        out, why = _tried(lambda one=one: one.run(subject.arguments))
        if out is None:
            found["failed"][name] = why
            del runs[name]
            continue
        told = found["runners"][name]
        if first is None and name.startswith("mnemic"):
            first = out
            told["bytes"] = {w: subject.floor(out, w != "forward") for w in ("forward", "both")}
        elif first is not None and one.same:
            apart = (out.double() - first.double()).abs().max() / (1 + first.double().abs().max())
            told["apart"] = float(apart)
            if not told["apart"] <= AGREEMENT:
                found["failed"][name] = f"differs from {next(iter(runs))} by {float(apart):.1e}"
                del runs[name]


def _way(way: str, runs: dict[str, Peer], subject: Subject, setting: Setting,
         failed: dict[str, str]) -> dict[str, Any]:  # fmt: skip
    """Eager and graph seconds, kernels and bytes of memory of each runner."""
    make = steps.forward if way == "forward" else steps.both
    calls: dict[str, steps.Step] = {}
    found: dict[str, Any] = {name: {} for name in runs}
    for name, one in runs.items():
        step, why = _tried(lambda one=one: _warm(make(one.run, subject.arguments)))
        if step is None:
            failed[f"{name}, {way}"] = why
        else:
            calls[name] = step
    for name, seconds in subject.times(calls, setting.rounds).items():
        found[name]["eager"] = seconds
    if not setting.graphs:
        return found
    graphs: dict[str, steps.Step] = {}
    for name, step in calls.items():
        found[name]["kernels"], _ = _tried(lambda step=step: steps.kernels(step))
        graph, why = _tried(lambda step=step: steps.captured(step))
        if graph is None:
            found[name]["no graph"] = why
        else:
            graphs[name] = graph
    for name, seconds in subject.times(graphs, setting.rounds).items():
        found[name]["graph"] = seconds
    return found


def _warm(step: steps.Step) -> steps.Step:
    step()
    return step


def _tried(function: Callable[[], Any]) -> tuple[Any, str]:
    """A value, or None and why not: a peer may raise anything, and no other row is to suffer."""
    try:
        found = function()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return found, ""
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        lines = str(error).strip().splitlines() or [""]
        where = f"{Path(place.filename).name}:{place.lineno}"
        return None, f"{type(error).__name__}: {lines[-1][:300]} ({where})"
