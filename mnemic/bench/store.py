"""Results of long measurements, kept spec by spec so that a broken run goes on where it was."""

import datetime
import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mnemic.errors import UsageError
from mnemic.models.files import finite, replacing


@dataclass(frozen=True)
class Kept:
    """What a file of results holds: the command, versions and sizes, and a result a spec."""

    command: str
    setting: dict[str, Any]
    results: dict[str, dict[str, Any]]


def load(path: Path) -> Kept:
    """Read a file of results.

    Raises:
        UsageError: it is not one.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return Kept(found["command"], dict(found["setting"]), dict(found["results"]))
    except (ValueError, KeyError, TypeError):
        raise UsageError(f"{path}: not a result of mnemic bench; choose another file") from None


class Store:
    """A JSON file: the command and setting of a measurement, and a result a spec.

    Args:
        path: the file; ``None`` keeps results in memory only.
        command: what was asked for; a file of another command is not touched.
        setting: versions and sizes. Results under another setting are measured anew.

    Raises:
        UsageError: the file is not one of this command.
    """

    def __init__(self, path: Path | None, command: str, setting: Mapping[str, Any]) -> None:
        self.path, self.command, self.setting = path, command, dict(setting)
        self.results: dict[str, dict[str, Any]] = {}
        if path is not None and path.exists():
            self.results = self._read(path)

    def _read(self, path: Path) -> dict[str, dict[str, Any]]:
        found = load(path)
        if found.command != self.command:
            raise UsageError(f"{path}: holds the results of '{found.command}'; choose another file")
        return found.results if found.setting == self.setting else {}

    def known(self, name: str, key: str) -> dict[str, Any] | None:
        """Return the kept result of a spec, or None if not measured for the same rule (``key``)."""
        found = self.results.get(name)
        return found if found is not None and found.get("key") == key else None

    def keep(self, name: str, key: str, result: Mapping[str, Any]) -> None:
        """Keep a result, on disk at once."""
        today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
        self.results[name] = {"key": key, "date": today, **finite(result)}
        if self.path is None:
            return
        text = json.dumps(
            {"command": self.command, "setting": self.setting,
             "results": dict(sorted(self.results.items()))}, indent=1,
        )  # fmt: skip
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(self.path) as beside:
            beside.write_text(text + "\n", encoding="utf-8")


def versions() -> dict[str, str]:
    """Return what results depend on beside the specs."""
    from importlib.metadata import version

    import torch

    return {
        "mnemic": version("mnemic"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, one thread",
    }
