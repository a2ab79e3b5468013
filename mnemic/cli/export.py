"""``mnemic export``: a saved model as ONNX graphs."""

from pathlib import Path
from typing import Annotated

import typer

from mnemic.cli.arguments import AsJson
from mnemic.cli.model import require
from mnemic.cli.output import echo, print_json

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A model's folder.")]
Verified = Annotated[
    bool,
    typer.Option("--verify/--no-verify", help="Whether to compare the graphs with PyTorch first."),
]
Replace = Annotated[bool, typer.Option("--replace", help="Write over graphs that are there.")]


def export(
    folder: Folder, verify: Verified = True, replace: Replace = False, as_json: AsJson = False
) -> None:
    """Export a model to ONNX: graphs of a sequence and of one token, with states in and out.

    DIR/onnx gets start.onnx (the states before the first token), prefill.onnx (any number of
    tokens), step.onnx (one) and weights.bin. A rule that is one of ONNX's LinearAttention, under
    whatever name, is a node of it; others run token by token. The graphs are run in ONNX Runtime
    and compared with PyTorch, whole, in pieces and in steps; the card gets the errors. They are
    written whole or not at all.

    JSON: {"folder", "standard": {"<spec>": "<update rule>"},
    "checks": [{"name", "error", "bound", "passed"}, ...]}.
    """
    from mnemic.export.folder import export_folder

    require()

    place, graphs, found = export_folder(folder, verify=verify, replace=replace)
    rules = {name: form.update_rule for name, form in graphs.standard.items()}
    if as_json:
        listed = [{"name": c.name, "error": c.error, "bound": c.bound, "passed": c.passed}
                  for c in found]  # fmt: skip
        print_json({"folder": str(place), "standard": rules, "checks": listed})
        return
    echo(f"{place}: {', '.join(sorted(path.name for path in place.iterdir()))}")
    for name, rule in rules.items():
        echo(f"  {name}: LinearAttention, {rule}")
    for c in found:
        echo(f"  {c.name}: {c.error:.1e}")
