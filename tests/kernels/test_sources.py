"""The digest of what kernels are made from: what decides a kernel is in it, and nothing else."""

from pathlib import Path
from shutil import copytree

import pytest

from mnemic import pipeline
from mnemic.kernels.sources import digest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A compiled folder that may be edited."""
    return Path(copytree(pipeline.compile("gla").folder, tmp_path / "gla"))


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text, f"{path.name} no longer has {old!r}"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("kernels.py", "STEPS: tl.constexpr", "STEPS: int"),
        ("support/tiles/loads.py", "def load_rows(", "def load_rows(more, "),
        ("support/tiles/products.py", "def dot(", "def dot(more, "),
        ("support/configuration.py", "from .sizes import", "OTHER = 1\nfrom .sizes import"),
    ],
)  # fmt: skip
def test_what_decides_a_kernel(folder: Path, name: str, old: str, new: str) -> None:
    before = digest(folder)
    edit(folder / name, old, new)
    assert digest(folder) != before


@pytest.mark.some(4)
@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("kernels.py", '"""', '"""Other words: '),
        ("kernels.py", "@triton.jit", "# a comment\n@triton.jit"),
        ("gla.py", "import torch\n", "import torch\nOTHER = 1\n"),
        ("support/tiles/factors.py", "def cholesky(", "def cholesky(more, "),
        ("support/ops.py", "from .adjoints", "OTHER = 1\nfrom .adjoints"),
        ("support/pool.py", "from . import kept", "OTHER = 1\nfrom . import kept"),
    ],
)
def test_what_decides_nothing(folder: Path, name: str, old: str, new: str) -> None:
    before = digest(folder)
    edit(folder / name, old, new)
    assert digest(folder) == before


def test_specs_differ() -> None:
    found = {digest(pipeline.compile(name).folder) for name in ("gla", "hgrn2", "deltanet")}
    assert len(found) == 3
