"""A PostgreSQL server of the test's own, from Debian's package."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def programs() -> Path | None:
    """The folder of ``initdb`` and ``postgres``, where they are installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    path = str(found[-1]) if found else shutil.which("initdb")
    return None if path is None else Path(path).resolve().parent


@contextmanager
def server() -> Iterator[str]:
    """Start a server in a folder of its own; the URL of an empty database on it.

    PostgreSQL does not run as root, so there it is run as the package's own user.
    """
    programs_, port = programs(), _free_port()
    user = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        if user:
            shutil.chown(folder, "postgres")
        made = [programs_ / "initdb", "-D", f"{folder}/data", "-A", "trust", "-U", "tester", "-N"]
        subprocess.run(made, check=True, capture_output=True, cwd=folder, **user)
        told = ["-p", str(port), "-k", folder, "-c", "listen_addresses=127.0.0.1"]
        with (Path(folder) / "log").open("wb") as log:
            process = subprocess.Popen(
                [programs_ / "postgres", "-D", f"{folder}/data", *told, "-c", "fsync=off"],
                stdout=log, stderr=log, cwd=folder, **user,
            )  # fmt: skip
        try:
            until(lambda: _answers(port))
            yield f"postgresql://tester@127.0.0.1:{port}/postgres"
        finally:
            process.send_signal(signal.SIGQUIT)
            process.wait()


def until(condition: Callable[[], bool], seconds: float = 240.0) -> None:
    """Wait for something to become true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def _answers(port: int) -> bool:
    import psycopg

    try:
        psycopg.connect(f"postgresql://tester@127.0.0.1:{port}/postgres").close()
    except psycopg.OperationalError:
        return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
