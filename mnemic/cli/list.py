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
SHOWN = ("name", "class", "form", "train", "decode", "state", "family", "title", "source")
"""In the order in which they are given room."""

CUT, NARROWEST = ("title", "source"), 12
"""What may be cut, and to how much at least."""

BETWEEN = 3
"""Columns between two of the table."""

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
        table, left = _table(rows, shown.width)
        shown.print(table)
        echo(f"{len(rows)} specs; FLOPs a token and head at d_k = d_v = 64")
        if left:
            echo(f"no room for: {', '.join(left)} (a wider terminal or --json has all)")


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


def _table(rows: list[dict[str, Any]], width: int) -> tuple["Table", tuple[str, ...]]:
    """The rows within ``width`` columns, and the headings of what there is no room for.

    Titles and sources are cut to fit; nothing else is, and what does not fit is left out whole.
    """
    from rich import box
    from rich.table import Table

    cells = [dict(zip(HEADINGS, _cells(row), strict=True)) for row in rows]
    wide = {h: max(len(h), *(len(row[h]) for row in cells)) for h in HEADINGS}
    wide = _fitting(wide, width - 2)
    table = Table(box=box.SIMPLE_HEAD if sys.stdout.isatty() else None, pad_edge=False)
    for heading, size in wide.items():
        right = "right" if heading in ("train", "decode") else "left"
        table.add_column(heading, no_wrap=True, justify=right, width=size)  # type: ignore[arg-type]
    for row in cells:
        table.add_row(*(_cut(row[heading], size) for heading, size in wide.items()))
    return table, tuple(h for h in HEADINGS if h not in wide)


def _fitting(wide: dict[str, int], width: int) -> dict[str, int]:
    """The columns that fit, in their order, and how wide each is; the name always fits."""
    left, found = width, dict[str, int]()
    for heading in SHOWN:
        least = min(wide[heading], NARROWEST) if heading in CUT else wide[heading]
        if found and least > left:
            continue
        room = left - (NARROWEST + BETWEEN if heading == "title" else 0)
        found[heading] = min(wide[heading], max(room, least)) if heading in CUT else least
        left -= found[heading] + BETWEEN
    return {heading: found[heading] for heading in HEADINGS if heading in found}


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
