"""The wheel carries what the commands need, and works outside of the checkout."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Callable
from importlib.metadata import requires, version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SMALL = 150e6
"""Bytes that an installation may take beside torch and what torch brings."""

UNWANTED = re.compile("extra ==|^(nvidia|cuda|triton)")
"""What torch asks for that the core of mnemic must do without."""

Run = Callable[..., str]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the checkout."""
    return build(tmp_path_factory.mktemp("wheel"))


def build(folder: Path, source: Path = ROOT) -> Path:
    """Build the wheel of a source tree into a folder."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps",
               "--no-build-isolation", "--wheel-dir", str(folder), str(source)]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


def test_wheel_holds_the_specs_and_the_type_marker(wheel: Path) -> None:
    """Every spec of the checkout is in the wheel, and so is py.typed."""
    names = set(zipfile.ZipFile(wheel).namelist())
    specs = {p.relative_to(ROOT / "specs").as_posix() for p in (ROOT / "specs").rglob("*.yaml")}
    assert {f"mnemic/specs/{name}" for name in specs} <= names
    assert "mnemic/py.typed" in names


def command(home: Path, cwd: Path, **variables: str) -> Run:
    """Return what runs a program of an environment away from the checkout, and gives its output."""
    told = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    told |= {"MNEMIC_CACHE": str(cwd / "cache"), "PYTHONNOUSERSITE": "1", **variables}

    def run(name: str, *arguments: str) -> str:
        done = subprocess.run(
            [home / name, *arguments], cwd=cwd, env=told, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def installed(wheel: Path, home: Path) -> Path:
    """Make an environment that has the wheel alone; return the folder of its packages."""
    venv.create(home, with_pip=False, symlinks=True)
    pip(home, "--no-deps", "--no-index", str(wheel))
    (site,) = home.glob("lib/python*/site-packages")
    return site


def pip(home: Path, *arguments: str) -> None:
    """Install into an environment that has no pip of its own."""
    python = str(home / "bin" / "python")
    command = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def first_lines(run: Run, cwd: Path) -> None:
    """Do what README's first lines say: its spec, its rule, its folder that needs no mnemic."""
    (text,) = re.findall(r"```yaml\n(.*?)```", README, re.S)
    (cwd / "my-rule.yaml").write_text(text, encoding="utf-8")
    (rule,) = re.findall(r"```text\n(\(1\).*?)```", README, re.S)
    derived = run("mnemic", "derive", "my-rule.yaml")
    assert all(line.partition(" ")[2] in derived for line in rule.splitlines())
    run("mnemic", "compile", "my-rule.yaml", "-o", "my_rule")
    assert (cwd / "my_rule" / "kernels.py").is_file()
    assert "{verify,tune}" in run("python", "-m", "my_rule", "--help")


def commands(run: Run, package: Path) -> None:
    """Run the commands that read what comes with the package."""
    assert f"from {package / 'specs'}" in run("mnemic", "doctor")
    light_commands(run)


def light_commands(run: Run) -> None:
    """Run commands that need no torch."""
    listed = json.loads(run("mnemic", "list", "--json"))["specs"]
    assert len(listed) == len(list((ROOT / "specs").rglob("*.yaml")))
    assert "gated-deltanet" in run("mnemic", "check", "gated-deltanet")
    assert '"$schema"' in run("mnemic", "schema")
    run("mnemic", "new", "another", "--yes")
    assert "another" in run("mnemic", "check", "another.yaml")


def test_wheel_compiles_outside_of_the_checkout(wheel: Path, tmp_path: Path) -> None:
    """Installed, with what it depends on borrowed, it reads its own specs and compiles one."""
    home = tmp_path / "env"
    site = installed(wheel, home)
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    run = command(home / "bin", tmp_path)
    first_lines(run, tmp_path)
    assert f"from {(site / 'mnemic').resolve() / 'specs'}" in run("mnemic", "doctor")


@pytest.mark.full
def test_the_commands_of_the_wheel_outside_of_the_checkout(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "env"
    site = installed(wheel, home)
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    light_commands(command(home / "bin", tmp_path))


@pytest.mark.full
def test_the_wheel_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    """With the core's dependencies alone: no Triton, SciPy, Optuna or matplotlib.

    The compiled folder runs where there is torch and no mnemic; beside torch and what torch brings,
    all takes less than ``SMALL``.
    """
    home = tmp_path / "env"
    venv.create(home, with_pip=False, symlinks=True)
    (site,) = home.glob("lib/python*/site-packages")
    lend_torch(site)
    needed = [line for line in requires("torch") or () if not UNWANTED.search(line)]
    try:
        pip(home, *needed)
    except AssertionError as error:
        pytest.skip(f"no packages can be had here: {str(error).splitlines()[-1]}")
    before = size(site)
    pip(home, str(wheel))
    assert size(site) - before < SMALL
    assert not any((site / name).exists() for name in ("triton", "scipy", "optuna", "matplotlib"))
    run = command(home / "bin", tmp_path)
    first_lines(run, tmp_path)
    commands(run, (site / "mnemic").resolve())
    run("python", "-m", "my_rule", "verify")
    train = ("train", "my-rule.yaml", "--task", "mqar", "--rung", "tiny", "--steps", "2")
    assert "after 2 steps" in run("mnemic", *train)


def interpreter(version: str) -> Path:
    """Return a Python of this version on this machine, or skip."""
    kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
    found = [*kept, *filter(None, [shutil.which(f"python{version}")])]
    for path in found:
        done = subprocess.run([path, "-c", "import venv"], capture_output=True, check=False)
        if done.returncode == 0:
            return Path(path)
    pytest.skip(f"no Python {version} is installed here")


@pytest.mark.full
@pytest.mark.parametrize("python", ["3.12", "3.13", "3.14"])
def test_the_wheel_on_other_pythons(wheel: Path, tmp_path: Path, python: str) -> None:
    """With the core's dependencies but torch, which is there for one Python: no command needs it
    that reads, derives, compares or writes code."""
    home = tmp_path / "env"
    made = [str(interpreter(python)), "-m", "venv", "--without-pip", str(home)]
    subprocess.run(made, check=True, capture_output=True)
    needed = [line for line in requires("mnemic") or () if not re.search("extra ==|^torch", line)]
    try:
        pip(home, *needed)
    except AssertionError as error:
        pytest.skip(f"no packages can be had here: {str(error).splitlines()[-1]}")
    pip(home, "--no-deps", str(wheel))
    run = command(home / "bin", tmp_path)
    assert run("python", "-V").startswith(f"Python {python}.")
    light_commands(run)
    assert "forget" in run("mnemic", "derive", "gated-deltanet", "--words")
    assert "deltanet" in run("mnemic", "diff", "deltanet", "gated-deltanet")
    run("mnemic", "compile", "gated-deltanet", "-o", "layer")
    (package,) = home.glob("lib/python*/site-packages/mnemic")
    run("python", "-W", "error", "-m", "compileall", "-qf", "layer", str(package))
    assert "pip install torch" in refused(home / "bin", tmp_path, "train", "dot", "--task", "mqar")


def refused(home: Path, cwd: Path, *arguments: str) -> str:
    """Return the one line with which a command ends that misses something."""
    done = subprocess.run([home / "mnemic", *arguments], cwd=cwd, capture_output=True, text=True,
                          check=False, env={"PATH": os.environ["PATH"]})  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (5, "", 1)
    return done.stderr


def lend_torch(site: Path) -> None:
    """Put torch as the tests have it into an environment by links, so that pip fetches none."""
    own = Path(sysconfig.get_path("purelib"))
    for name in ("torch", "torchgen", "functorch", f"torch-{version('torch')}.dist-info"):
        (site / name).symlink_to(own / name)


def size(folder: Path) -> int:
    """Return the bytes of all files of a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


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
    again = build(tmp_path, source)
    assert zipfile.ZipFile(again).namelist() == zipfile.ZipFile(wheel).namelist()
