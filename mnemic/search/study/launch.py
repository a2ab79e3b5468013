"""Workers on a cluster: the same command, submitted once per worker."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mnemic.errors import EnvironmentFailed, UsageError

SIGNALS: Final = ("SIGUSR1", "SIGUSR2")
"""Those that submitit lets a cluster send before a job's time is over."""
LEAVE: Final = 60.0
"""Seconds that a search has to save; submitit's signal comes 90 s before the end."""


@dataclass(frozen=True)
class Cluster:
    """The resources that each worker requests from the cluster.

    Args:
        kind: ``slurm``; or ``local``, which starts processes on this machine, for tests.
        workers: the number of workers.
        hours: hours of wall time per worker.
        cores: cores per worker.
        memory: GiB per worker.
        partition: the cluster's partition; None for its default.
        gpus: GPUs per worker.
    """

    kind: str
    workers: int
    hours: float
    cores: int
    memory: float
    partition: str | None = None
    gpus: int = 0


def submit(arguments: Sequence[str], folder: Path, cluster: Cluster) -> list[str]:
    """Submit ``mnemic search`` with these arguments, and return the jobs' names.

    A worker is told to stop shortly before its time is over; it saves, and its trial is requeued.

    Raises:
        EnvironmentFailed: submitit is not installed, or finds no such cluster.
        UsageError: the kind of cluster is unknown.
    """
    if cluster.kind not in ("slurm", "local"):
        raise UsageError(f"--launch: read {cluster.kind!r}, allowed: slurm, local")
    try:
        import submitit
    except ImportError:
        message = "--launch needs submitit: pip install 'mnemic[slurm]'"
        raise EnvironmentFailed(message) from None
    folder.mkdir(parents=True, exist_ok=True)
    try:
        executor = submitit.AutoExecutor(folder=folder, cluster=cluster.kind)
    except RuntimeError as error:
        raise EnvironmentFailed(f"--launch {cluster.kind}: {error}") from None
    executor.update_parameters(
        name="mnemic-search", timeout_min=math.ceil(60 * cluster.hours),
        cpus_per_task=cluster.cores, mem_gb=math.ceil(cluster.memory),
    )  # fmt: skip
    if cluster.gpus:
        executor.update_parameters(gpus_per_node=cluster.gpus)
    if cluster.partition is not None:
        executor.update_parameters(slurm_partition=cluster.partition)
    with executor.batch():
        jobs = [executor.submit(worker, list(arguments)) for _ in range(cluster.workers)]
    return [str(job.job_id) for job in jobs]


def worker(arguments: list[str]) -> None:
    """Run ``mnemic search`` with these arguments; raise where it fails.

    A cluster that ends a job early sends a signal to all of its processes, and submitit raises an
    exception in this one. The search ignores that signal; this process tells it to stop and save.
    """
    command = [sys.executable, "-m", "mnemic", "search", *arguments]
    with _ignored(*SIGNALS):
        process = subprocess.Popen(command)
    try:
        code = process.wait()
    except BaseException:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(LEAVE)
        raise
    finally:
        process.kill()
    if code:
        raise subprocess.CalledProcessError(code, command)


@contextmanager
def _ignored(*names: str) -> Iterator[None]:
    """Let processes started in this block ignore these signals, where the system has them."""
    found = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = {one: signal.signal(one, signal.SIG_IGN) for one in found}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
