"""Options of the whole suite."""

from __future__ import annotations

import gc
import signal
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

pytest_plugins = ("tiers",)

YOUNG = 100_000
"""Objects made before the garbage collector looks: SymPy makes many, and hardly any in cycles."""

FILE = pytest.StashKey[Path]()
"""The file of the last test."""

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--regenerate`` writes golden files anew instead of comparing with them."""
    parser.addoption("--regenerate", action="store_true", help="write golden files anew")


def pytest_configure() -> None:
    """Collect garbage seldom, and hear interrupts, which a job in the background may not."""
    gc.set_threshold(YOUNG, 50, 50)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Keep what test collection has made out of every later garbage collection."""
    _kept()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Keep what the tests of other files have made out of the garbage collections of this one's.

    Libraries ask for whole collections: every training run of transformers does, for seconds where
    a process holds the rules of many tests.
    """
    if item.config.stash.get(FILE, item.path) != item.path:
        _kept()
    item.config.stash[FILE] = item.path


def _kept() -> None:
    gc.collect()
    gc.freeze()


class Golden:
    """Texts kept under ``tests/golden``."""

    def __init__(self, regenerate: bool) -> None:
        self.regenerate = regenerate

    def check(self, name: str, text: str) -> None:
        """Compare with the kept text, or keep this one."""
        path = GOLDEN / name
        if self.regenerate:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"no golden file {name}: run pytest --regenerate"
        assert path.read_text(encoding="utf-8") == text


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Golden texts."""
    return Golden(bool(request.config.getoption("--regenerate")))
