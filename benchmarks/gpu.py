"""Times of generated kernels on a GPU, beside others' kernels for the same rules.

    python benchmarks/gpu.py prepare FOLDER          # where mnemic is installed
    python benchmarks/gpu.py ahead FOLDER            # there too: compile what the GPU will run
    python FOLDER/gpu.py verify                      # on the GPU: the checks of `mnemic verify`
    python FOLDER/gpu.py run -o results.json         # on the GPU
    python FOLDER/gpu.py table results.json

``prepare`` compiles the specs of the rows into FOLDER and puts this script beside them; ``ahead``
does what a GPU that is lent by the minute need not: it compiles all kernels, with the release of
Triton that PYTHONPATH finds, which must be the GPU's. Everything else needs torch and Triton alone,
and flash-linear-attention where it is to be a peer. Times are medians with a cold cache, all
runners of a row in turns in one process, eager and as a CUDA graph. ``run --dry`` tries everything
on the CPU at tiny sizes, our kernels in Triton's interpreter. ``run`` exits with 4 where one of our
own forms failed, ``verify`` where a check did or was not made. Results belong into
benchmarks/results/.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
DTYPES = ("bfloat16", "float32", "float16")


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
    from on_gpu import keys

    if keys.unpack(folder) and not dry:
        keys.shared()
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


def ahead(folder: Path, words: list[str], dtypes: list[str]) -> None:
    """Compile ahead what the GPU will launch, into the folder."""
    sys.path.insert(0, str(folder))
    from on_gpu import ahead, rows

    found = rows.named(words)
    specs = dict.fromkeys(row.spec for row in found)
    for line in ahead.compiled(folder, specs, found, dtypes):
        print(line, flush=True)


def verify(folder: Path, words: list[str], dtypes: list[str], processes: int,
           seconds: float) -> int:  # fmt: skip
    """The checks of every compiled folder on this device, in many processes, recorded beside the
    code; kernels take most of the time to compile, where none were compiled ahead."""
    from on_gpu import keys, rows, shares

    keys.unpack(folder)
    specs = list(dict.fromkeys(row.spec for row in rows.named(words)))
    return shares.run(folder, specs, dtypes, processes, seconds, shares.command_of)


def verify_spec(folder: Path, spec: str, dtype: str) -> int:
    """The checks of one compiled folder in one dtype, in this process."""
    from on_gpu import shares

    shares.checked(shares.Share(folder, spec, dtype))
    return 0


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
    dtypes = {"nargs": "+", "default": list(DTYPES), "choices": DTYPES}
    one = commands.add_parser("ahead", help="compile ahead what the GPU will run (minutes)")
    one.add_argument("folder", type=Path)
    one.add_argument("rows", **words)
    one.add_argument("--dtypes", **dtypes)
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
    one.add_argument("--dtypes", **dtypes)
    one.add_argument("--seconds", type=float, default=3600.0, help="after which all is cut short")
    one = commands.add_parser("verify-spec", help="check one of them in this process")
    one.add_argument("spec")
    one.add_argument("dtype", choices=DTYPES)
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
    if asked.command == "ahead":
        ahead(asked.folder, asked.rows, asked.dtypes)
        return 0
    if asked.command == "verify":
        return verify(asked.folder.resolve(), asked.rows, asked.dtypes, max(1, asked.processes),
                      asked.seconds)  # fmt: skip
    if asked.command == "verify-spec":
        return verify_spec(asked.folder, asked.spec, asked.dtype)
    table(asked.results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
