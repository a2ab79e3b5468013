"""Compile every kernel of given specs for a target, in separate processes."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from importlib.metadata import version
from queue import SimpleQueue
from typing import Any

from mnemic import pipeline
from mnemic.errors import CheckFailed, EnvironmentFailed, InvalidSpec
from mnemic.kernels.jobs import Job
from mnemic.kernels.limits import target as known
from mnemic.kernels.sources import digest
from mnemic.kernels.stalls.units import can_simulate
from mnemic.kernels.worker import COMPILING, INTERPRETING, Worker

WIDTHS = (64, 128)
"""Head sizes of the default configuration."""

Built = tuple[Job, dict[str, Any]]


def jobs(
    specs: Iterable[str], target: str, widths: tuple[int, ...] = WIDTHS, *, stalls: bool = False
) -> Iterator[Job]:
    """Yield a job for each spec and head size; specs that do not compile have none.

    Raises ``UsageError`` for a target that is not known, or (with ``stalls``) cannot be simulated.
    """
    known(target)
    if stalls:
        can_simulate(target)
    for name in specs:
        try:
            compiled = pipeline.compile(name)
        except InvalidSpec:
            if not pipeline.derive(name).structure.refused:
                raise
            continue
        lead = (compiled.spec.name, compiled.rule.structure.kind, str(compiled.folder), target)
        source = digest(compiled.folder)
        for width in widths:
            yield Job(*lead, width, source=source, stalls=stalls)


LONGEST = 3600.0
"""Seconds for the kernels of one spec at one width: of large ones a cut takes minutes."""


def build(asked: Iterable[Job], processes: int, told: Callable[[Job], None]) -> Iterator[Built]:
    """Compile jobs in so many processes, in their order; ``told`` hears of each as it starts."""
    return _each(asked, "compile_folder", [Worker(COMPILING) for _ in range(processes)], told)


def count(asked: Iterable[Job], processes: int, told: Callable[[Job], None]) -> Iterator[Built]:
    """Count in so many processes, where Triton interprets, what jobs' kernels ask for, in order."""
    return _each(asked, "count_folder", [Worker(INTERPRETING) for _ in range(processes)], told)


def _each(
    asked: Iterable[Job], function: str, workers: list[Worker], told: Callable[[Job], None]
) -> Iterator[Built]:
    idle: SimpleQueue[Worker] = SimpleQueue()
    for worker in workers:
        idle.put(worker)

    def run(job: Job) -> Built:
        told(job)
        worker = idle.get()
        try:
            return job, worker.call(
                "mnemic.kernels.jobs", function, timeout=LONGEST, job=asdict(job)
            )
        except (CheckFailed, EnvironmentFailed) as error:
            return job, {"missing": str(error).splitlines()[0], "passes": {}, "failed": True}
        finally:
            idle.put(worker)

    try:
        with ThreadPoolExecutor(len(workers)) as pool:
            yield from pool.map(run, asked)
    finally:
        for worker in workers:
            worker.close()


def versions() -> dict[str, str]:
    """Return the package versions that a table depends on, besides the specs."""
    return {"triton": version("triton")}
