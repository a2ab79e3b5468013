"""Install the lowest versions that pyproject.toml allows, and run some of the tests with them.

    python scripts/lowest.py                    # an environment for each of GROUPS
    python scripts/lowest.py --extras compare   # the core and these extras

Environments are made in a folder of their own, and every package that pyproject.toml gives a lower
bound gets the lowest version that resolves (uv finds it), torch first. A bound below that version
was never run, and is told as wrong. Needs a registry of packages.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
GROUPS = (("compare", "search", "postgresql", "slurm", "dashboard", "docs"), ("hf", "compare"))
"""Extras that are run together; packages of the last need another NumPy than the first of others.

``kernels`` is in none: torch decides which Triton it takes, and scripts/tritons.sh has the others.
"""

BOUND = re.compile(r"([\w.-]+)(?:\[[\w,]+\])?>=([\w.]+)")
RUNNERS = ("pytest", "hypothesis", "jsonschema", "psutil", "hatchling", "nbclient", "nbformat",
           "ipykernel")  # fmt: skip
TESTS = {
    "": ("tests/dsl", "tests/test_readme.py", "tests/compiler/test_steps.py",
         "tests/codegen/test_compiled.py", "tests/codegen/test_layer.py", "tests/cli/test_check.py",
         "tests/cli/test_command.py", "tests/cli/test_new.py", "tests/cli/test_train.py"),
    "compare": ("tests/relations", "tests/audit/test_judge.py"),
    "search": ("tests/search/study", "tests/search/test_report.py", "tests/cli/test_search.py"),
    "hf": ("tests/hf/test_train.py", "tests/hf/test_texts.py", "tests/hf/test_refusals.py",
           "tests/cli/test_model.py", "tests/cli/test_train_text.py"),
    "docs": ("tests/site/test_site.py",),
}  # fmt: skip
"""By extra, what is run of its tests (the first tier)."""


def bounds(extras: tuple[str, ...]) -> dict[str, str]:
    """Return the lower bound of each package of the core and of these extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = list(project["dependencies"])
    for extra in extras:
        asked += project["optional-dependencies"][extra]
    return {m[1]: m[2] for line in asked if (m := BOUND.match(line)) and m[1] != "mnemic"}


def lowest(python: str, extras: tuple[str, ...]) -> dict[str, str]:
    """Return the lowest version of each of these packages that resolves."""
    subprocess.run([python, "-m", "pip", "install", "--quiet", "uv"], check=True)
    told = [word for extra in extras for word in ("--extra", extra)]
    command = [python, "-m", "uv", "pip", "compile", "--quiet", "--python", python,
               "--resolution", "lowest-direct", "--no-annotate", *told,
               "pyproject.toml"]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    named = set(bounds(extras))
    lines = [line.split(" ;")[0].strip().split("==") for line in done.stdout.splitlines()]
    return {line[0]: line[1] for line in lines if line[0] in named}


def same(low: str, found: str) -> bool:
    """Return whether two versions are one, zeros at the end aside."""
    return re.sub(r"(\.0)+$", "", low) == re.sub(r"(\.0)+$", "", found)


def run(home: Path, extras: tuple[str, ...], *, tests: bool) -> bool:
    """Install the lowest versions into an environment, run its tests; whether all is well."""
    venv.create(home, with_pip=True, symlinks=True)
    python = str(home / "bin" / "python")
    found, told = lowest(python, extras), bounds(extras)
    wrong = [name for name, low in told.items() if not same(low, found[name])]
    for name, version in found.items():
        low = f" (pyproject.toml says {told[name]})" if name in wrong else ""
        print(f"{name} {version}{low}", flush=True)
    pins = [f"{name}=={version}" for name, version in found.items()]
    (home / "lowest.txt").write_text("\n".join(pins) + "\n", encoding="utf-8")
    here = str(ROOT) + (f"[{','.join(extras)}]" if extras else "")
    for packages in ([f"torch=={found['torch']}"],
                     ["-c", str(home / "lowest.txt"), "-e", here, *RUNNERS]):  # fmt: skip
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    if not tests:
        return not wrong
    paths = [path for extra in ("", *extras) for path in TESTS.get(extra, ())]
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tier", "first",
               "-W", "ignore::DeprecationWarning", "-W", "ignore::ImportWarning",
               *paths]  # fmt: skip
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0 and not wrong


def main() -> int:
    """Make each environment, and tell."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--extras")
    parser.add_argument("--no-tests", action="store_true")
    asked = parser.parse_args()
    groups = GROUPS
    if asked.extras is not None:
        groups = (tuple(name for name in asked.extras.split(",") if name),)
    with tempfile.TemporaryDirectory(dir=os.environ.get("LOWEST")) as name:
        done = [run(Path(name) / f"{number}", extras, tests=not asked.no_tests)
                for number, extras in enumerate(groups)]  # fmt: skip
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
