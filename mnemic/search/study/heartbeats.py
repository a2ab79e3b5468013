"""Repair heartbeats: after a clock was set back, and where a worker died before its first one."""

from collections.abc import Collection

from optuna.storages import RDBStorage
from sqlalchemy import DateTime, Integer, column, func, select, table, update

BEATS = table("trial_heartbeats", column("trial_id", Integer()), column("heartbeat", DateTime()))


def begin(storage: RDBStorage, trials: Collection[int]) -> None:
    """Write a first heartbeat of running trials that have none, given by their ids.

    A worker takes a trial and then writes its first heartbeat. If it dies in between, Optuna would
    regard the trial as running for ever; with a heartbeat it expires after the grace period.
    """
    with storage.engine.connect() as connection:
        of_these = select(BEATS.c.trial_id).where(BEATS.c.trial_id.in_(trials))
        beating = set(connection.scalars(of_these))
    for trial in set(trials) - beating:
        storage.record_heartbeat(trial)


def bring_back(storage: RDBStorage) -> None:
    """Set heartbeats that lie ahead of the storage's clock to its present time.

    They were written before the clock was set back. Unchanged, the trial of a worker that has died
    since would expire only once the clock has caught up; now it does after the grace period.
    """
    ahead = BEATS.c.heartbeat > func.now()
    with storage.engine.begin() as connection:
        if connection.scalar(select(func.count()).select_from(BEATS).where(ahead)):
            connection.execute(update(BEATS).where(ahead).values(heartbeat=func.now()))
