"""Locks that let only one worker of a study in at a time, wherever the workers run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from filelock import FileLock
from optuna.storages import RDBStorage
from sqlalchemy import ColumnElement, Connection, func, select
from sqlalchemy.exc import SQLAlchemyError

from mnemic.search.study.patience import Patience

SERVERS: Final = ("postgresql", "mysql", "mariadb")
"""Databases that have locks of their own."""


@contextmanager
def alone(storage: RDBStorage, folder: Path, study: str, patience: Patience) -> Iterator[None]:
    """Keep the other workers of a study out for the block; a worker's death releases the lock.

    SQLite is reached only by processes of one machine, so a file beside the database is locked. On
    a database server the lock lasts as long as the connection that took it.
    """
    dialect = storage.engine.dialect.name
    if dialect == "sqlite":
        with FileLock(_beside(storage.engine.url.database, folder)):
            yield
        return
    if dialect not in SERVERS:
        yield
        return
    connection = patience.call(_locked, storage, dialect, study)
    try:
        yield
    finally:
        with suppress(SQLAlchemyError):  # the server is gone, and the lock with it
            connection.detach()  # so that it is closed, not kept for others: that frees the lock
            connection.close()


@contextmanager
def making_tables(connection: Connection) -> Iterator[None]:
    """Keep other workers out while this one creates a storage's tables, which takes several steps.

    For SQLite a file beside the database is locked; a database server keeps the lock until the
    connection is closed.
    """
    dialect = connection.dialect.name
    if dialect == "sqlite":
        with FileLock(_beside(connection.engine.url.database, Path())):
            yield
        return
    if dialect in SERVERS:
        connection.execute(select(_lock(dialect, "tables")))
    yield


def _beside(database: str | None, folder: Path) -> Path:
    """Return the file to lock: beside the database, or in a folder if that has no file."""
    return folder / "ask.lock" if not database else Path(database).with_name("ask.lock")


def _locked(storage: RDBStorage, dialect: str, study: str) -> Connection:
    """Return a connection that holds the study's lock."""
    connection = storage.engine.connect()
    try:
        connection.execute(select(_lock(dialect, study)))
    except BaseException:
        connection.invalidate()
        raise
    return connection


def _lock(dialect: str, study: str) -> ColumnElement[object]:
    digest = sha256(f"mnemic {study}".encode())
    if dialect == "postgresql":
        return func.pg_advisory_lock(int.from_bytes(digest.digest()[:8], "big", signed=True))
    return func.get_lock(digest.hexdigest()[:60], -1)
