"""``mnemic tune``: how a spec's fused kernels are best cut on this GPU."""

from pathlib import Path
from typing import Annotated, Any

import typer

from mnemic import pipeline
from mnemic.cli.arguments import AsJson, SpecArgument
from mnemic.cli.output import console, echo, print_json
from mnemic.errors import CheckFailed

Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", help="The compiled folder; mnemic's cache if left out.",
                 metavar="DIR"),
]  # fmt: skip
Batch = Annotated[int, typer.Option("--batch", min=1, help="Rows of a batch.")]
Tokens = Annotated[int, typer.Option("--tokens", min=1, help="Tokens of a row.")]
Heads = Annotated[int, typer.Option("--heads", min=1, help="Heads.")]
Width = Annotated[int, typer.Option("--width", min=1, help="Channels of keys, d_k.")]
ValueWidth = Annotated[
    int | None,
    typer.Option("--value-width", min=1, help="Channels of values, d_v (as d_k).",
                 show_default=False),
]  # fmt: skip
Dtype = Annotated[str, typer.Option("--dtype", help="bfloat16, float16 or float32.")]
For = Annotated[
    list[str] | None,
    typer.Option("--for", help="forward, training or decode (all three).", show_default=False),
]


def tune(
    spec: SpecArgument,
    output: Output = None,
    batch: Batch = 8,
    tokens: Tokens = 4096,
    heads: Heads = 16,
    width: Width = 64,
    value_width: ValueWidth = None,
    dtype: Dtype = "bfloat16",
    purpose: For = None,
    as_json: AsJson = False,
) -> None:
    """Find how a spec's fused kernels are best cut on this GPU at a shape, and keep it.

    Rows a chunk, channels a block, warps and stages, from the model's choice on. Each cut is first
    compared with the recurrence in float64; what is wrong, does not compile or does not fit is
    dropped, and the rest is timed in turns with a cold cache. The winner is kept in the cache, by
    code, sizes, classes of length and memories, dtype, device and versions, and is taken by every
    later call that matches. Without a GPU there is nothing to time, which is said. Exit code 4
    where no cut is right.

    JSON: {"rule", "shape", "setting", "note", "folder", "tuned": [{"purpose", "question", "model",
    "choice", "why", "trials": [{"rows", "block", "warps", "stages", "wrong", "seconds"}, ...]},
    ...]}.
    """
    from mnemic.kernels import tuning

    wanted = tuning.Wanted(batch, tokens, heads, width, value_width or width, dtype)
    purposes = tuning.purposes(purpose or [])
    compiled = pipeline.compile(spec, output)
    with console(stderr=True).status(f"tuning {compiled.spec.name}"):
        report = tuning.tuned(compiled.folder, wanted, purposes)
    if as_json:
        print_json(report)
    else:
        echo("\n".join(_lines(report)))
    if report["none right"]:
        if as_json:  # the one document has been printed
            raise typer.Exit(CheckFailed.exit_code)
        why = "; ".join(f"{e['purpose']}: {e['why']}" for e in report["tuned"] if not e["choice"])
        raise CheckFailed(f"tune: {compiled.spec.name}: no cut is right: {why}")


def _lines(report: dict[str, Any]) -> list[str]:
    setting = [f"{name} {value}" for name, value in report["setting"].items() if value is not None]
    kept = [f"kept under {report['folder']}"] if report["tuned"] else []
    return [", ".join(setting), *report["lines"], *kept]
