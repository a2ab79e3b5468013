"""Where trials are kept: SQLite in the run's folder, or any database that Optuna reaches."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import optuna
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
from sqlalchemy import create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from mnemic.errors import EnvironmentFailed, UsageError
from mnemic.search.study.alone import making_tables

RETRIES: Final = 3
NETWORK: Final = frozenset({
    "nfs", "nfs4", "cifs", "smbfs", "smb2", "smb3", "9p", "afs", "ceph", "lustre", "gpfs",
    "beegfs", "glusterfs", "fuse.glusterfs", "fuse.sshfs", "fuse.ceph", "ocfs2", "gfs2", "davfs",
    "fuse.davfs2", "orangefs", "pvfs2", "panfs", "wekafs", "fuse.s3fs", "fuse.rclone", "ncpfs",
})  # fmt: skip
"""Types of file systems whose locks SQLite cannot trust."""


@dataclass(frozen=True)
class Beat:
    """The heartbeat of a worker: one every ``interval`` seconds; after ``grace`` seconds without
    one its trial is considered dead and retried."""

    interval: int = 60
    grace: int = 300


def open_storage(
    url: str | None, folder: Path, beat: Beat, mounts: str | None = None
) -> RDBStorage:
    """Open the storage of a run, and check that it is reachable and ready.

    Args:
        url: an SQLAlchemy URL; None for SQLite in ``folder``.
        folder: the folder of the run.
        beat: the heartbeat of the workers.
        mounts: the system's table of mounts, as Linux writes it; read from the system if None.

    Raises:
        UsageError: no such kind of database, or SQLite on a network file system.
        EnvironmentFailed: it cannot be reached, or its driver is not installed.
    """
    whole = _normal(url or f"sqlite:///{folder.resolve() / 'study.db'}")
    shown = make_url(whole).render_as_string(hide_password=True)
    local = whole.startswith("sqlite")
    if local:
        _refuse_network(make_url(whole).database, mounts)
    options: dict[str, Any] = {"connect_args": {"timeout": 60}} if local else {
        "connect_args": {"connect_timeout": 10}, "pool_pre_ping": True,
    }  # fmt: skip
    if not whole.startswith(("sqlite", "postgresql", "mysql")):
        options = {}
    _silence()
    try:
        probe = create_engine(whole, **options)
        try:
            with probe.connect() as connection, making_tables(connection):
                return _made(whole, options, beat)
        finally:
            probe.dispose()  # and with it the lock that the connection holds
    except (NoSuchModuleError, ImportError) as error:
        message = f"{shown}: no driver for this storage is installed"
        hint = ": pip install 'mnemic[postgresql]'" if "postgresql" in whole else ""
        raise EnvironmentFailed(f"{message}{hint} ({error})") from None
    except SQLAlchemyError as error:
        first = str(error.__cause__ or error).strip().splitlines()[0]
        raise EnvironmentFailed(f"{shown}: the storage cannot be used: {first}") from None
    except RuntimeError as error:  # tables of another version of Optuna
        raise EnvironmentFailed(f"{shown}: the storage cannot be used: {error}") from None


def demand_file(url: str) -> None:
    """Raise UsageError where a URL names a missing SQLite file: opening it would create it."""
    database = make_url(_normal(url)).database
    if url.startswith("sqlite") and database and not Path(database).is_file():
        raise UsageError(f"{url}: no such file")


def give_back(storage: RDBStorage) -> None:
    """Close this thread's connection to a storage, and all that are not in use."""
    storage.remove_session()
    storage.engine.dispose()


def _made(url: str, options: dict[str, Any], beat: Beat) -> RDBStorage:
    retry = RetryHeartbeatStaleTrialCallback(max_retry=RETRIES)
    return RDBStorage(
        url, engine_kwargs=options, heartbeat_interval=beat.interval, grace_period=beat.grace,
        heartbeat_stale_trial_callback=retry,
    )  # fmt: skip


def _normal(url: str) -> str:
    """Return the URL with a driver that is still maintained."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        message = f"{url}: not a storage's URL: needed one such as postgresql://user@host/database"
        raise UsageError(message) from None
    if parsed.drivername in ("postgresql", "postgres"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    return parsed.render_as_string(hide_password=False)


def _refuse_network(database: str | None, mounts: str | None) -> None:
    """Raise where the database's file would lie on a network file system."""
    if database in (None, "", ":memory:"):
        raise UsageError("sqlite: a storage must be a file, or trials are lost")
    path = Path(str(database)).resolve()
    if not path.parent.is_dir():
        raise UsageError(f"{path.parent}: no such folder")
    kind = filesystem(path, mounts)
    if kind in NETWORK:
        raise UsageError(
            f"{path}: SQLite on a network file system ({kind}) corrupts under several workers; "
            "give the run a local folder, or --storage postgresql://..."
        )


def filesystem(path: Path, mounts: str | None = None) -> str | None:
    """Return the type of the file system of a path, where the system provides it.

    >>> filesystem(Path("/data/x"), "a / ext4 rw 0 0\\nb /data nfs4 rw 0 0")
    'nfs4'
    """
    table = Path("/proc/self/mounts")
    if mounts is None:
        mounts = table.read_text(encoding="utf-8") if table.is_file() else ""
    rows = [line.split() for line in mounts.splitlines()]
    points = {row[1].replace("\\040", " "): row[2] for row in rows if len(row) > 2}
    return next((points[str(p)] for p in (path, *path.parents) if str(p) in points), None)


def _silence() -> None:
    """Silence Optuna's warnings on experimental features, and its log, which ours replaces."""
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    warnings.filterwarnings("ignore", "Heartbeat of storage is supposed to be used", UserWarning)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
