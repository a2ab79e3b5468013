"""The command, run in this process or as a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mnemic.cli.app import app

sys.path.insert(0, str(Path(__file__).parent))


@dataclass(frozen=True)
class Done:
    """What a command left: its exit code and its two outputs."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as the one JSON document that it must be."""
        return json.loads(self.out)


Command = Callable[..., Done]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compile cache of the test's own."""
    monkeypatch.setenv("MNEMIC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def mnemic() -> Command:
    """The command in this process."""

    def run(*arguments: str | Path) -> Done:
        result = CliRunner().invoke(app, list(map(str, arguments)), prog_name="mnemic")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Done(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def shell() -> Command:
    """The command as a process; ``environment`` adds to the variables."""

    def run(*arguments: str | Path, environment: dict[str, str] | None = None) -> Done:
        done = subprocess.run(
            [sys.executable, "-m", "mnemic", *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return run
