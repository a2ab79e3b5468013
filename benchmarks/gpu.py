"""Times of generated kernels on a GPU, beside others' kernels for the same rules.

    python benchmarks/gpu.py prepare FOLDER          # where mnemic is installed
    python FOLDER/gpu.py verify                      # on the GPU: the checks of `mnemic verify`
    python FOLDER/gpu.py run -o results.json         # on the GPU
    python FOLDER/gpu.py table results.json

``prepare`` compiles the specs of the rows into FOLDER and puts this script beside them; everything
else needs torch and Triton alone, and flash-linear-attention where it is to be a peer. Times are
medians with a cold cache, all runners of a row in turns in one process, eager and as a CUDA graph.
``run --dry`` tries everything on the CPU at tiny sizes, our kernels in Triton's interpreter.
``run`` exits with 4 where one of our own forms failed. Results belong into benchmarks/results/.
"""

import argparse
import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))


def prepare(folder: Path, words: list[str]) -> None:
    """Compile the rows' specs, and copy this script."""
    from on_gpu import rows

    import mnemic

    for spec in dict.fromkeys(row.spec for row in rows.named(words)):
        mnemic.compile(rows.SPECS.get(spec, spec), folder / spec)
        print(f"compiled {spec}")
    shutil.copy(HERE / "gpu.py", folder / "gpu.py")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(HERE / "on_gpu", folder / "on_gpu", dirs_exist_ok=True, ignore=ignored)


def run(folder: Path, out: Path, words: list[str], *, dry: bool, forms: Sequence[str],
        rounds: int) -> int:  # fmt: skip
    """Measure rows, writing after each; return 4 where one of our own forms failed.

    A dry run interprets our kernels: Triton decides when it is imported, so it is told before.
    """
    if dry:
        os.environ["TRITON_INTERPRET"] = "1"
    import torch
    from on_gpu import measure, results, rows

    device = "cuda" if torch.cuda.is_available() and not dry else "cpu"
    if device == "cpu" and not dry:
        print("gpu.py: torch finds no GPU; --dry tries everything on the CPU", file=sys.stderr)
        return 5
    dtype = torch.float32 if dry else torch.bfloat16
    setting = measure.Setting(folder, device, dtype, tuple(forms), 1 if dry else rounds, dry)
    found = results.begun(device, dry, dtype)
    for row in rows.named(words):
        print(f"measuring {row.name}", flush=True)
        found["rows"].append(measure.measured(row.small() if dry else row, setting))
        results.save(found, out)
        if device == "cuda":
            torch.cuda.empty_cache()
    print(results.table(found))
    print(*results.goals(found), sep="\n")
    failed = list(results.failures(found))
    print(*(f"FAILED {line}" for line in failed), sep="\n", end="", file=sys.stderr)
    return 4 if failed else 0


def verify(folder: Path, words: list[str], processes: int) -> int:
    """The checks of every compiled folder on this device, each in a process of its own, recorded
    beside the code; kernels take most of the time to compile, so several run at once."""
    from on_gpu import rows

    specs = list(dict.fromkeys(row.spec for row in rows.named(words)))
    own = [sys.executable, str(Path(__file__).resolve()), "verify-spec", "--folder", str(folder)]
    with ThreadPoolExecutor(processes) as threads:
        runs = [threads.submit(_done, [*own, spec]) for spec in specs]
        for run in as_completed(runs):
            print(run.result().stdout, end="", flush=True)
    return max((run.result().returncode for run in runs), default=0)


def _done(command: list[str]) -> "subprocess.CompletedProcess[str]":
    """Run a command whose faults are told like its findings."""
    done = subprocess.run(command, check=False, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)  # fmt: skip
    return done if done.returncode >= 0 else _ended(done, command[-1])


def _ended(
    done: "subprocess.CompletedProcess[str]", spec: str
) -> "subprocess.CompletedProcess[str]":
    """Tell of a process that a fault took down: exit code 4, as a form that is wrong."""
    told = f"{done.stdout}{spec}: FAILED, its process ended with {done.returncode}\n"
    return subprocess.CompletedProcess(done.args, 4, told)


def verify_spec(folder: Path, spec: str) -> int:
    """The checks of one compiled folder in this process."""
    from on_gpu import subject

    wrong = 0
    module = subject.load(folder / spec)
    entry: dict[str, Any] = importlib.import_module(
        f"{module.__name__}.verify"
    ).run(module.Layer)  # fmt: skip
    for form, dtypes in entry["forms"].items():
        for dtype, told in dtypes.items():
            print(f"{spec} {form} {dtype}: {'passed' if told['passed'] else 'FAILED'}")
            print(*(f"  {line}" for line in told["wrong"][:5]), sep="\n", end="", flush=True)
            wrong += not told["passed"]
    return 4 if wrong else 0


def table(path: Path) -> None:
    """Print results as Markdown, and how they stand to the goals."""
    import json

    from on_gpu import results

    found = json.loads(path.read_text(encoding="utf-8"))
    print(results.table(found))
    print(*results.goals(found), sep="\n")


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    told = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    commands = told.add_subparsers(dest="command", required=True)
    words = {"nargs": "*", "default": [], "metavar": "ROW", "help": "words of rows' names"}
    one = commands.add_parser("prepare", help="compile the rows' specs into a folder")
    one.add_argument("folder", type=Path)
    one.add_argument("rows", **words)
    one = commands.add_parser("run", help="measure on this machine's GPU")
    one.add_argument("rows", **words)
    one.add_argument("--folder", type=Path, default=HERE, help="of the compiled specs")
    one.add_argument("-o", "--output", type=Path, default=Path("results.json"))
    one.add_argument("--dry", action="store_true", help="tiny sizes on the CPU")
    one.add_argument("--forms", nargs="+", default=["triton"], help="of ours")
    one.add_argument("--rounds", type=int, default=20)
    one = commands.add_parser("verify", help="check every form on this machine")
    one.add_argument("rows", **words)
    one.add_argument("--folder", type=Path, default=HERE, help="of the compiled specs")
    several = max(1, (os.cpu_count() or 1) // 2)
    one.add_argument("--processes", type=int, default=several, help=f"at once ({several})")
    one = commands.add_parser("verify-spec", help="check one of them in this process")
    one.add_argument("spec")
    one.add_argument("--folder", type=Path, default=HERE, help="of the compiled specs")
    one = commands.add_parser("table", help="print results as Markdown")
    one.add_argument("results", type=Path)
    return told


def main() -> int:
    """Run a command."""
    asked = parser().parse_args()
    if asked.command == "prepare":
        prepare(asked.folder, asked.rows)
        return 0
    if asked.command == "run":
        return run(asked.folder, asked.output, asked.rows, dry=asked.dry, forms=asked.forms,
                   rounds=asked.rounds)  # fmt: skip
    if asked.command == "verify":
        return verify(asked.folder, asked.rows, max(1, asked.processes))
    if asked.command == "verify-spec":
        return verify_spec(asked.folder, asked.spec)
    table(asked.results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
