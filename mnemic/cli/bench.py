"""``mnemic bench``: speed, memory and long runs of compiled rules on this machine."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mnemic.cli.arguments import AsJson, complete_name
from mnemic.cli.model import require
from mnemic.cli.output import console, echo, print_json, raw, to_stderr
from mnemic.errors import CheckFailed, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.status import Status

    from mnemic.bench.report import Report

Specs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SUITE|SPEC|FOLDER",
        help="A suite (forms, decode, long, learn, recall; curves, training, decoding), then "
        "specs (if left out, all that compile; for whole models, one of each class). Specs alone "
        "run the suite forms, no words the standard set. Or the word table or page, then a folder "
        "of results.",
        autocompletion=complete_name,
    ),
]
Length = Annotated[
    int | None,
    typer.Option("--length", min=512, help="Tokens (1024 for forms, 16384 or 65536 for others).",
                 show_default=False),
]  # fmt: skip
Steps = Annotated[
    int | None,
    typer.Option(
        "--steps", min=1, help="To train for (200 for learn, 240 for curves).", show_default=False
    ),
]
Chunks = Annotated[
    int | None,
    typer.Option("--chunks", min=5, help="Chunks for recall (16).", show_default=False),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        "--out",
        metavar="FILE",
        help="Keep results in a JSON file, and go on where it ends; for page the Markdown file.",
    ),
]
Again = Annotated[bool, typer.Option("--again", help="Measure anew what the file holds.")]

MODELS = ("curves", "training", "decoding")
"""Suites of whole models beside a transformer."""
SUITES = ("forms", "decode", "long", "learn", "recall", *MODELS)
COUNTS = {"learn": "--steps", "recall": "--chunks", "curves": "--steps"}
"""What counts a suite's length; tokens for any other."""


def bench(
    specs: Specs = None,
    as_json: AsJson = False,
    length: Length = None,
    steps: Steps = None,
    chunks: Chunks = None,
    out: Out = None,
    again: Again = False,
) -> None:
    """Time compiled rules side by side with references: one process, one thread, best of several.

    `forms` times the chunk form against token by token; `decode` tokens one by one after short and
    long contexts, and the bytes of the state; `long` runs 65536 tokens of text with the
    coefficients of a layer's start in float32 and bfloat16 against float64, and fails (exit code
    4) on infinities, NaN, and errors that grow; `learn` trains for 200 steps on MQAR and bytes;
    `recall` asks for the pairs of a chunk at its end, chunk after chunk, untrained.

    Whole models of two million parameters beside transformers' Llama of the same size, in processes
    of their own (needs the extra hf): `curves` trains them on bytes, three seeds each; `training`
    times a forward and backward pass at 512 to 16384 tokens; `decoding` times one token after
    1024 to 65536.

    `table` prints what --output kept in a folder as a page of Markdown; `page` writes that of whole
    models to the file --output, with pictures in a folder images beside it.

    JSON: {"setting", "figures": [{"what", "value", "unit", "goal", "met", "detail"}, ...],
    "notes": [...]}.
    """
    words = tuple(specs or ())
    if words[:1] == ("table",):
        return _table(words[1:])
    if words[:1] == ("page",):
        return _page(words[1:], out)
    suite = words[0] if words and words[0] in SUITES else ""
    given = {"--length": length, "--steps": steps, "--chunks": chunks}
    if not suite and (any(given.values()) or out or again):
        raise UsageError(f"{', '.join(given)}, --output, --again go with {', '.join(SUITES)}")
    if any(value and option != COUNTS.get(suite, "--length") for option, value in given.items()):
        raise UsageError(
            "--steps goes with learn and curves, --chunks with recall, --length with the others"
        )
    with console(stderr=True).status("timing") as status:
        told = _progress(status, out is not None)
        if suite in MODELS:
            require()
            from mnemic.bench.models import suites as models

            asked = models.Asked(words[1:], steps or length, out, again)
            report, setting = models.run(suite, asked, told), models.setting()
        elif suite:
            from mnemic.bench import suites

            count = steps or chunks or length
            asked = suites.Asked(words[1:], count, out, again)
            report, setting = suites.run(suite, asked, told), suites.setting(suite, count)
        else:
            from mnemic import bench as standard

            report, setting = standard.run(words, told), standard.setting()
    _show(report, setting, as_json=as_json)
    failed = [f.what for f in report.figures if f.met is False]
    if suite == "long" and failed:
        if as_json:  # the one document has been printed
            raise typer.Exit(CheckFailed.exit_code)
        raise CheckFailed(f"bench: {', '.join(failed)} exceeds what rounding explains")


def _table(folders: tuple[str, ...]) -> None:
    """Print the page of one folder of results."""
    from mnemic.bench import table

    if len(folders) != 1:
        raise UsageError("bench table takes one folder, that of the files that --output made")
    raw(table.page(Path(folders[0])))


def _page(folders: tuple[str, ...], out: Path | None) -> None:
    """Write the page of whole models of one folder of results."""
    require()
    from mnemic.bench.models import page

    if len(folders) != 1 or out is None:
        raise UsageError("bench page takes one folder of results, and --output, the page's file")
    for path in page.write(Path(folders[0]), out):
        echo(str(path))


def _progress(status: "Status", lines: bool) -> "Callable[[str], None]":
    """Say what is measured: on the terminal's last line, or a line each for a log."""

    def show(what: str) -> None:
        status.update(f"measuring {what}")
        if lines and not sys.stderr.isatty():
            to_stderr(what)

    return show


def _show(report: "Report", setting: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"setting": setting, **report.to_json()})
        return
    echo(setting)
    console().print(report.table())
    for note in report.notes:
        echo(f"note: {note}")
