"""How long each command takes, cold and warm, and how large an installation is.

    python benchmarks/commands.py times              # every command; prints a table
    python benchmarks/commands.py times list check   # these alone
    python benchmarks/commands.py sizes              # of wheel and environments; needs pip

``times``: each command is run twice as a process of its own, in an empty folder, with one thread:
first with an empty cache, then with what the first run left there. A command that would go on for
long is asked for something small, which the table shows. Seconds are of the wall, and in brackets
of the processor, which other work on the machine changes little. Where packages have no bytecode
yet (no pip has compiled them), the very first command takes longer; that is a row of its own.

``sizes``: the wheel is built and installed with pip into environments that have nothing, beside
torch and what torch asks for: the core, then the core with each extra.
"""

import argparse
import os
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
import venv
from importlib.metadata import requires
from pathlib import Path

ROOT = Path(__file__).parents[1]
TIMES = (
    "--version", "--help", "list", "schema", "tasks", "doctor", "new my-rule --yes",
    "check gated-deltanet", "derive gated-deltanet", "compile gated-deltanet -o layer",
    "diff deltanet gated-deltanet", "audit deltanet",
    "capacity deltanet --dim 16", "influence gated-deltanet", "reproduce exact-swaps",
    "train gated-deltanet --task mqar --rung tiny --steps 10", "verify deltanet --seconds 5",
    "bench gated-deltanet", "kernels deltanet --target sm_90",
    "search {root}/examples/search/small.yaml --preview",
    "search {root}/examples/search/small.yaml --trials 2", "ablate titans --list",
    "leaderboard {root}/examples/search/small.yaml deltanet",
    "effects {root}/examples/search/recall -o effects.md",
    "pareto {root}/examples/search/leaderboard -o pareto.md",
    "model gated-deltanet --blocks 1 --dim 32 --vocabulary 256 -o model",
    "train {model} --data {text} --length 64 --batch 2 --steps 4",
    "eval {model} --data {text} --length 64", "serve {model} --port {port}",
    "site gated-deltanet -o site", "tune deltanet --batch 1 --tokens 64 --heads 1 --width 64",
    "map --path deltanet titans-linear",
)  # fmt: skip
"""By command, something of it that is small."""

PORT = 8765
ENOUGH = 600.0
"""Seconds after which a command is ended."""


def times(asked: argparse.Namespace) -> None:
    """Print the table of times."""
    print("| command | cold | warm |\n| --- | ---: | ---: |")
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        told = prepared(place)
        for number, command in enumerate(TIMES):
            if asked.commands and command.split()[0] not in asked.commands:
                continue
            cache = place / f"cache-{number}"
            cold, warm = (took(command.format(**told), place, cache) for _ in range(2))
            shown = command.format(**told | {"root": ".", "model": "MODEL", "text": "TEXT"})
            print(f"| `mnemic {shown.replace('./', '')}` | {cold} | {warm} |", flush=True)
        if not asked.commands:
            fresh = {"PYTHONPYCACHEPREFIX": str(place / "bytecode")}
            first = [took("list", place, place / "cache-first", **fresh) for _ in range(2)]
            print(f"| `mnemic list`, without any bytecode | {first[0]} | {first[1]} |")


def prepared(place: Path) -> dict[str, object]:
    """Write a text, and a small model of its bytes; what commands name them by."""
    text = place / "text.txt"
    text.write_text((ROOT / "README.md").read_text(encoding="utf-8"), encoding="utf-8")
    model = place / "runs" / "model"
    made = ["train", "gated-deltanet", "--data", str(text), "--dim", "32", "--layers", "1",
            "--length", "64", "--batch", "2", "--steps", "2", "--run",
            str(place / "runs")]  # fmt: skip
    told = environment(place / "cache")
    subprocess.run([sys.executable, "-m", "mnemic", *made], check=True, env=told, cwd=place,
                   capture_output=True)  # fmt: skip
    return {"root": ROOT, "model": model, "text": text, "port": PORT}


def environment(cache: Path, **more: str) -> dict[str, str]:
    """Return the variables of a command: a cache of its own, one thread."""
    return {**os.environ, "MNEMIC_CACHE": str(cache), "OMP_NUM_THREADS": "1", **more}


def took(command: str, place: Path, cache: Path, **more: str) -> str:
    """Run a command in an empty folder; its seconds, or how it ended."""
    with tempfile.TemporaryDirectory(dir=place) as folder:
        before, began, wall = used(), time.perf_counter(), 0.0
        process = subprocess.Popen(
            [sys.executable, "-m", "mnemic", *shlex.split(command)], cwd=folder,
            env=environment(cache, **more), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        if command.startswith("serve"):
            answered(process)
            wall = time.perf_counter() - began
            process.terminate()
        try:
            process.wait(ENOUGH)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()
            return f"more than {ENOUGH:.0f}"
        if not command.startswith("serve"):
            wall = time.perf_counter() - began
        end = "" if process.returncode in (0, -15, 130, 143) else f", exit {process.returncode}"
        return f"{wall:.1f} ({used() - before:.1f}){end}"


def answered(process: "subprocess.Popen[bytes]") -> None:
    """Wait until a server answers its first request."""
    address = f"http://127.0.0.1:{PORT}/v1/models"
    while process.poll() is None:
        try:
            urllib.request.urlopen(address, timeout=5).read()
        except OSError:
            time.sleep(0.02)
        else:
            return


def used() -> float:
    """Return the processor's seconds of all processes that have ended."""
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime


def sizes(asked: argparse.Namespace) -> None:
    """Print the sizes of the wheel and of environments with it."""
    sys.path.insert(0, str(ROOT / "tests"))
    from test_wheel import UNWANTED, build, lend_torch, pip, size

    needed = [line for line in requires("torch") or () if not UNWANTED.search(line)]
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        wheel = build(place)
        print(f"wheel: {wheel.stat().st_size / 1e6:.1f} MB")
        print("| extra | adds, MB |\n| --- | ---: |")
        for extra in asked.extras or ("", "compare", "search"):
            home = place / "env"
            venv.create(home, with_pip=False, symlinks=True)
            (site,) = home.glob("lib/python*/site-packages")
            lend_torch(site)
            pip(home, *needed)
            before = size(site)
            pip(home, str(wheel))
            core = size(site)
            if extra:
                pip(home, f"{wheel}[{extra}]")
            added = size(site) - (core if extra else before)
            print(f"| {extra or '(none)'} | {added / 1e6:.0f} |", flush=True)
            if not extra:
                print(f"| (mnemic alone) | {size(site / 'mnemic') / 1e6:.0f} |")
            shutil.rmtree(home)


def main() -> None:
    """Read what is asked for, and print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parts = parser.add_subparsers(required=True)
    part = parts.add_parser("times")
    part.add_argument("commands", nargs="*")
    part.set_defaults(run=times)
    part = parts.add_parser("sizes")
    part.add_argument("extras", nargs="*")
    part.set_defaults(run=sizes)
    asked = parser.parse_args()
    asked.run(asked)


if __name__ == "__main__":
    main()
