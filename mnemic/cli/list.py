"""``mnemic list``: the packaged specs, with what their rules derive to."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mnemic.cli.arguments import AsJson
from mnemic.cli.facts import HEAD, gathered
from mnemic.cli.output import console, echo, print_json
from mnemic.dsl.catalogue import find, names
from mnemic.dsl.load import load
from mnemic.errors import Issue, UsageError, format_issue, nearest

if TYPE_CHECKING:
    from rich.table import Table

HEADINGS = ("family", "name", "class", "form", "train", "decode", "state", "title", "source")

Family = Annotated[
    str | None, typer.Option("--family", help="Only one family: the folder that a spec lies in.")
]


def list_(family: Family = None, as_json: AsJson = False) -> None:
    """List the packaged specs: class, costs, the fastest form, state, source.

    Costs are FLOPs a token of one head with d_k = d_v = 64: in training over 2048 tokens, and in
    decoding. Rules are derived once and then remembered.

    JSON: {"sizes", "specs": [{"name", "title", "family", "class", "forms", "missing", "state",
    "costs", "source"}, ...]}.
    """
    rows = _rows(family)
    if as_json:
        print_json({"sizes": HEAD, "specs": rows})
    else:
        shown = console()
        shown.print(_table(rows, shown.width))
        echo(f"{len(rows)} specs; FLOPs a token and head at d_k = d_v = 64")


def _rows(family: str | None) -> list[dict[str, Any]]:
    families = {name: find(name).parent.name for name in names()}
    _known(family, sorted(set(families.values())))
    chosen = [name for name in families if family in (None, families[name])]
    specs = {name: load(name) for name in chosen}
    with _progress() as told:
        found = gathered(specs, told)
    return [
        {
            "name": name,
            "title": spec.title,
            "family": families[name],
            **found[name],
            "source": spec.source.model_dump() if spec.source else None,
        }
        for name, spec in sorted(specs.items(), key=lambda item: (families[item[0]], item[0]))
    ]


def _known(family: str | None, families: list[str]) -> None:
    if family is not None and family not in families:
        near = nearest(family, families)
        raise UsageError(
            format_issue(Issue("no such family", "--family", family, tuple(families), near))
        )


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Say on a terminal what is derived."""
    if not sys.stderr.isatty():
        yield lambda name: None
        return
    with console(stderr=True).status("deriving") as status:
        yield lambda name: status.update(f"deriving {name}")


def _table(rows: list[dict[str, Any]], width: int) -> "Table":
    """The rows within ``width`` columns; titles and sources are cut to fit."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD if sys.stdout.isatty() else None, pad_edge=False)
    for heading in HEADINGS:
        right = "right" if heading in ("train", "decode") else "left"
        table.add_column(heading, no_wrap=True, justify=right)  # type: ignore[arg-type]
    cells = [_cells(row) for row in rows]
    whole = [max(map(len, column)) for column in zip(HEADINGS, *cells, strict=True)]
    room = max(width - sum(whole[:-2]) - 3 * len(HEADINGS), 24)
    title = min(whole[-2], room // 2)
    for row in cells:
        table.add_row(*row[:-2], _cut(row[-2], title), _cut(row[-1], room - title))
    return table


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    """A row's texts, in the order of the headings."""
    costs, source = row["costs"], row["source"] or {}
    return (
        row["family"],
        row["name"],
        row["class"],
        row["forms"][-1] if row["missing"] is None else "not yet",
        _short(costs["train_flops"]),
        _short(costs["decode_flops"]),
        row["state"],
        row["title"] or "",
        source.get("where") or source.get("paper") or "",
    )


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _short(count: float) -> str:
    """A count with three digits: 8.19k, 24.6M.

    >>> _short(8192.0)
    '8.19k'
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.3g}{letter}"
    return f"{count:.3g}"
