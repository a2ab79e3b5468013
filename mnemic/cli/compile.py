"""``mnemic compile``: a spec as a folder of code that runs."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from mnemic import pipeline
from mnemic.cli import facts
from mnemic.cli.arguments import AsJson, SpecArgument
from mnemic.cli.output import echo, print_json
from mnemic.dsl.hashing import spec_hash

Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", help="The folder; mnemic's cache if left out.", metavar="DIR"),
]

Tools = Annotated[
    bool,
    typer.Option(
        "--tools/--no-tools",
        help="Whether DIR has the commands verify and tune, and its own test.",
    ),
]


def compile_(
    spec: SpecArgument, output: Output = None, tools: Tools = True, as_json: AsJson = False
) -> None:
    """Compile a spec into a folder that needs torch alone.

    The folder is new, empty, or an earlier one of mnemic's, and is written whole or not at all.
    Its __init__.py has Layer, an nn.Module on [B, T, dim], and rule, the operator.

    JSON: {"name", "hash", "folder", "module", "files", "seconds", "warnings"}.
    """
    began = time.perf_counter()
    compiled = pipeline.compile(spec, output, tools=tools)
    told = {
        "name": compiled.spec.name,
        "hash": spec_hash(compiled.spec),
        "folder": str(compiled.folder),
        "module": f"{compiled.spec.module}.py",
        "files": _files(compiled.folder),
        "seconds": round(time.perf_counter() - began, 3),
        "warnings": list(_slow(compiled)),
    }
    if as_json:
        print_json(told)
    else:
        _show(told)


def _slow(compiled: pipeline.Compiled) -> tuple[str, ...]:
    """Return the warning on a memory of layers that runs token by token; empty for others."""
    told = facts.pace(compiled.spec)
    return () if told is None else (told,)


def _files(folder: Path) -> list[str]:
    kept = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return sorted(path.relative_to(folder).as_posix() for path in kept)


def _show(told: dict[str, Any]) -> None:
    echo(f"{told['name']}: compiled in {told['seconds']:.2f} s to {told['folder']}")
    first = {
        "DERIVATION.md": "how the rule follows from the spec",
        told["module"]: "the rule in PyTorch, each line with the number of its equation; Layer",
        "kernels.py": "its forms as fused Triton kernels",
        "step.py": "one token of the layer as one kernel",
    }
    there = [name for name in first if name in told["files"]]
    for name in there:
        echo(f"  {name:<{max(map(len, there))}}  {first[name]}")
    echo(f"  and {len(told['files']) - len(there)} files that these need (docs/folder.md)")
    for line in told["warnings"]:
        echo(f"  warning: {line}")
