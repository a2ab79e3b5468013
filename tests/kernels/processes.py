"""Where the processes of these tests find what a test's file imports."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PATHS = (HERE, HERE.parent, HERE.parent / "codegen")

Call = Callable[..., Any]
"""Calls a function of the test's own file in such a process."""
