"""``mnemic eval``: what a saved model knows of a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mnemic.cli.arguments import AsJson
from mnemic.cli.model import require
from mnemic.cli.output import echo, print_json

if TYPE_CHECKING:
    from mnemic.hf.evaluate import Copied, Span

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A model's folder, with a tokenizer.")]
Data = Annotated[Path, typer.Option("--data", help="Text: a folder, a file, a table.")]
Column = Annotated[str, typer.Option("--column", help="A table's column of text.")]
Length = Annotated[int, typer.Option(help="Tokens of a window.", min=2)]
Distances = Annotated[
    list[int] | None,
    typer.Option("--distance", min=0, help="Tokens before a repetition; repeatable.",
                 show_default="0, 16, 64, … up to the length"),
]  # fmt: skip
Picture = Annotated[
    Path | None, typer.Option("--picture", help="Draw the results here.", metavar="PNG")
]


def eval_(
    folder: Folder,
    data: Data,
    column: Column = "text",
    length: Length = 1024,
    distance: Distances = None,
    picture: Picture = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate a model on text: loss by position, and passages that are found again.

    By position: the mean loss of tokens 1, 2-3, 4-7, … of windows, in bits; it falls as long as
    what came before helps. By distance: a passage of 16 tokens is repeated after so much other
    text; a memory that still holds it predicts the repetition better than the first time.

    JSON: {"positions": [{"first", "last", "bits"}, ...],
    "distances": [{"distance", "bits", "first", "exact"}, ...]}.
    """
    require()
    if picture is not None:
        import matplotlib  # noqa: F401  # its lack is told before the evaluation, which takes long
    import torch

    from mnemic.hf.evaluate import by_distance, by_position, draw, encoded
    from mnemic.hf.folder import load
    from mnemic.hf.texts import read_documents
    from mnemic.hf.tokenizer import load_tokenizer

    model = load(folder).eval()
    tokenizer = load_tokenizer(folder)
    tokens = encoded(read_documents(data, column), tokenizer)
    wanted = distance or [0, *(x for x in (16, 64, 256, 1024, 4096) if x < length)]
    spans = by_position(model, tokens, length)
    copies = by_distance(model, torch.cat(tokens), wanted)
    if as_json:
        told = {"positions": [*map(asdict, spans)], "distances": [*map(asdict, copies)]}
        print_json(told)
    else:
        _print(spans, copies)
    if picture is not None:
        draw(picture, spans, copies, folder.name)


def _print(spans: Sequence[Span], copies: Sequence[Copied]) -> None:
    echo("position     bits a token")
    for span in spans:
        echo(f"{f'{span.first}-{span.last}':<12} {span.bits:.3f}")
    echo("distance     first    again    exact")
    for c in copies:
        echo(f"{c.distance:<12} {c.first:<8.3f} {c.bits:<8.3f} {c.exact:.0%}")
