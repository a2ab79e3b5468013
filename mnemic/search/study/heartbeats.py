"""Heartbeats: those of a clock that is set back, and those that a worker did not live to write."""

from collections.abc import Collection

from optuna.storages import RDBStorage
from sqlalchemy import DateTime, Integer, column, func, select, table, update

BEATS = table("trial_heartbeats", column("trial_id", Integer()), column("heartbeat", DateTime()))


def begin(storage: RDBStorage, trials: Collection[int]) -> None:
    """Write a first heartbeat of running trials that have none, given by their ids.

    A worker takes a trial and then writes its first heartbeat. Where it dies in between, Optuna
    would hold the trial for running for ever; from here on it is missed after a grace, as always.
    """
    with storage.engine.connect() as connection:
        of_these = select(BEATS.c.trial_id).where(BEATS.c.trial_id.in_(trials))
        beating = set(connection.scalars(of_these))
    for trial in set(trials) - beating:
        storage.record_heartbeat(trial)


def bring_back(storage: RDBStorage) -> None:
    """Set heartbeats that lie ahead of the storage's clock to its present time.

    They were written before the clock was set back. As they stand, a worker that has died since
    would be missed only when the clock has caught up with them; so it is after a grace, as always.
    """
    ahead = BEATS.c.heartbeat > func.now()
    with storage.engine.begin() as connection:
        if connection.scalar(select(func.count()).select_from(BEATS).where(ahead)):
            connection.execute(update(BEATS).where(ahead).values(heartbeat=func.now()))
