"""Milliseconds and memory of a training step of specs in one block, each in a process of its own.

python benchmarks/steps.py -o benchmarks/results/steps.json
python benchmarks/steps.py moneta memora dla --steps 5
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from trained_step import step

from mnemic.dsl.catalogue import names
from mnemic.dsl.load import load
from mnemic.errors import InvalidSpec
from mnemic.search.space.one_block import in_block
from mnemic.search.study.isolated import Bounds, Failure, isolated

BLOCK = Path(__file__).parents[1] / "examples" / "search" / "block.yaml"
Specs = Annotated[list[str] | None, typer.Argument(help="All packaged ones, if left out.")]
Out = Annotated[Path | None, typer.Option("-o", "--out", help="Keep the figures, spec by spec.")]


def main(
    specs: Specs = None,
    out: Out = None,
    block: str = str(BLOCK),
    own: Annotated[bool, typer.Option("--own", help="Each spec in its own block.")] = False,
    batch: int = 32,
    length: int = 64,
    dim: int = 64,
    steps: int = 5,
    seconds: float = 60,
    memory: float = 6,
) -> None:
    """Measure a training step of each spec, and print the slowest first."""
    shared = load(block).block
    found: dict[str, Any] = {}
    with TemporaryDirectory() as folder:
        for name in specs or names():
            try:
                spec = load(name) if own else in_block(load(name), shared, dim)
            except InvalidSpec as error:
                found[name] = {"failed": str(error).splitlines()[0]}
                continue
            sizes = (batch, length, dim)
            answer = isolated(step, spec, sizes, steps, seconds / 2,
                              bounds=Bounds(seconds, memory), log=Path(folder) / "log")  # fmt: skip
            found[name] = {"failed": answer.why} if isinstance(answer, Failure) else answer.value
            print(name, found[name], flush=True)
            if out is not None:
                out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print("| spec | ms a step | GiB |\n| --- | --- | --- |")
    for name in sorted(found, key=lambda one: -found[one].get("ms", float("inf"))):
        one = found[name]
        print(f"| {name} | {one['ms']:.1f} | {one['gib']:.2f} |" if "ms" in one
              else f"| {name} | {one['failed']} | |")  # fmt: skip


if __name__ == "__main__":
    typer.run(main)
