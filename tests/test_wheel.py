"""The wheel carries the specs and works outside of the checkout."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = """
import sys, pathlib, mnemic
from mnemic.dsl import catalogue
assert pathlib.Path(mnemic.__file__).is_relative_to(sys.argv[1]), mnemic.__file__
assert len(catalogue.names()) >= 58, catalogue.names()
rule = mnemic.compile("gated-deltanet", sys.argv[2]).operator
print(rule.name)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps",
               "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT)]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


def test_wheel_holds_the_specs_and_the_type_marker(wheel: Path) -> None:
    """Every spec of the checkout is in the wheel, and so is py.typed."""
    names = set(zipfile.ZipFile(wheel).namelist())
    specs = {p.relative_to(ROOT / "specs").as_posix() for p in (ROOT / "specs").rglob("*.yaml")}
    assert {f"mnemic/specs/{name}" for name in specs} <= names
    assert "mnemic/py.typed" in names


def test_wheel_compiles_outside_of_the_checkout(wheel: Path, tmp_path: Path) -> None:
    """Unpacked somewhere else, it loads its own specs and compiles one."""
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    (tmp_path / "try.py").write_text(SCRIPT, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(site), "MNEMIC_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "try.py", str(site), str(tmp_path / "out")]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "gated-deltanet"


def test_the_sdist_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    """It has what the wheel is built from, the pages and the examples."""
    from hatchling.build import build_sdist

    before = Path.cwd()
    os.chdir(ROOT)
    try:
        built = tmp_path / build_sdist(str(tmp_path))
    finally:
        os.chdir(before)
    with tarfile.open(built) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = (path for path in tmp_path.iterdir() if path.is_dir())
    for name in ("docs/language.md", "examples/own_task.py", "CITATION.cff", "SECURITY.md"):
        assert (source / name).is_file(), name
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps",
               "--no-build-isolation", "--wheel-dir", str(tmp_path), str(source)]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    (again,) = tmp_path.glob("*.whl")
    assert zipfile.ZipFile(again).namelist() == zipfile.ZipFile(wheel).namelist()
