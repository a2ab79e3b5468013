"""Lets the tests of this folder import what is beside them; small spaces."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def space_file(tmp_path: Path) -> Path:
    """A space whose trials take a moment."""
    path = tmp_path / "space.yaml"
    from small_space import SPACE

    path.write_text(SPACE)
    return path
