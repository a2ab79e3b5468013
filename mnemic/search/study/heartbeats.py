"""Heartbeats under a clock that is set back."""

from optuna.storages import RDBStorage
from sqlalchemy import DateTime, column, func, select, table, update

BEATS = table("trial_heartbeats", column("heartbeat", DateTime()))


def bring_back(storage: RDBStorage) -> None:
    """Set heartbeats that lie ahead of the storage's clock to its present time.

    They were written before the clock was set back. As they stand, a worker that has died since
    would be missed only when the clock has caught up with them; so it is after a grace, as always.
    """
    ahead = BEATS.c.heartbeat > func.now()
    with storage.engine.begin() as connection:
        if connection.scalar(select(func.count()).select_from(BEATS).where(ahead)):
            connection.execute(update(BEATS).where(ahead).values(heartbeat=func.now()))
