"""``mnemic list``: the packaged specs, with what their rules derive to."""

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mnemic.cli.arguments import AsJson
from mnemic.cli.facts import HEAD, gathered
from mnemic.cli.output import console, echo, print_json, progress
from mnemic.cli.tables import fitting, left_out
from mnemic.dsl.catalogue import find, names
from mnemic.dsl.load import load
from mnemic.errors import Issue, UsageError, format_issue, nearest

if TYPE_CHECKING:
    from rich.table import Table

    from mnemic.dsl.spec import Spec

HEADINGS = ("family", "name", "class", "form", "train", "decode", "state", "title", "source")
SHOWN = ("name", "class", "form", "train", "decode", "state", "family", "title", "source")
"""In the order in which they are given room."""

CUT, NARROWEST = ("title", "source"), 12
"""What may be cut, and to how much at least."""

Family = Annotated[
    str | None, typer.Option("--family", help="Only one family: the folder that a spec lies in.")
]
Class = Annotated[
    str | None, typer.Option("--class", help="Only one class of rule, such as affine.")
]
Paper = Annotated[
    str | None,
    typer.Option("--paper", help="Only what has this in its source: an author, a year, a word."),
]


def list_(
    family: Family = None, class_: Class = None, paper: Paper = None, as_json: AsJson = False
) -> None:
    """List the packaged specs: class, costs, the fastest form, state, source.

    Costs are FLOPs a token of one head with d_k = d_v = 64: in training over 2048 tokens, and in
    decoding.

    JSON: {"sizes", "specs": [{"name", "title", "family", "class", "forms", "missing", "state",
    "costs", "source"}, ...]}.
    """
    rows = _rows(family, class_, paper)
    if as_json:
        print_json({"sizes": HEAD, "specs": rows})
    else:
        shown = console()
        table, left = _table(rows, shown.width)
        shown.print(table)
        echo(f"{len(rows)} specs; FLOPs a token and head at d_k = d_v = 64")
        if left:
            echo(left_out(left))


def _rows(family: str | None, class_: str | None, paper: str | None) -> list[dict[str, Any]]:
    families = {name: find(name).parent.name for name in names()}
    _known("family", family, families.values())
    specs = {name: load(name) for name in names() if family in (None, families[name])}
    specs = _of_paper(specs, paper)
    with progress("deriving") as told:
        found = gathered(specs, told)
    _known("class", class_, (facts["class"] for facts in found.values()))
    return [
        {
            "name": name,
            "title": spec.title,
            "family": families[name],
            **found[name],
            "source": spec.source.model_dump() if spec.source else None,
        }
        for name, spec in sorted(specs.items(), key=lambda item: (families[item[0]], item[0]))
        if class_ in (None, found[name]["class"])
    ]


def _known(what: str, given: str | None, there: Iterable[str]) -> None:
    """Raise UsageError where there is no such family or class among those that are left."""
    allowed = tuple(sorted(set(there)))
    if given is not None and given not in allowed:
        issue = Issue(f"no such {what}", f"--{what}", given, allowed, nearest(given, allowed))
        raise UsageError(format_issue(issue))


def _of_paper(specs: dict[str, "Spec"], paper: str | None) -> dict[str, "Spec"]:
    """Return the specs whose source has these words in it.

    Raises UsageError, with the nearest word of a source, where none has.
    """
    if paper is None:
        return specs
    sources = {name: _words(spec) for name, spec in specs.items()}
    found = {name: specs[name] for name in specs if paper.lower() in sources[name].lower()}
    if not found:
        words = {word.strip(".,:;()") for text in sources.values() for word in text.split()}
        issue = Issue("no source has this", "--paper", paper, (), nearest(paper, words))
        raise UsageError(format_issue(issue))
    return found


def _words(spec: "Spec") -> str:
    """Return a spec's paper and the place in it."""
    return f"{spec.source.paper} {spec.source.where or ''}" if spec.source else ""


def _table(rows: list[dict[str, Any]], width: int) -> tuple["Table", tuple[str, ...]]:
    """Return the rows within ``width`` columns, and the headings that have no room there.

    Titles and sources are cut to fit; nothing else is, and what does not fit is left out whole.
    """
    from rich import box
    from rich.table import Table

    cells = [dict(zip(HEADINGS, _cells(row), strict=True)) for row in rows]
    wide = {h: max(len(h), *(len(row[h]) for row in cells)) for h in HEADINGS}
    wide = fitting(wide, width - 2, SHOWN, CUT, NARROWEST)
    table = Table(box=box.SIMPLE_HEAD if sys.stdout.isatty() else None, pad_edge=False)
    for heading, size in wide.items():
        right = "right" if heading in ("train", "decode") else "left"
        table.add_column(heading, no_wrap=True, justify=right, width=size)  # type: ignore[arg-type]
    for row in cells:
        table.add_row(*(_cut(row[heading], size) for heading, size in wide.items()))
    return table, tuple(h for h in HEADINGS if h not in wide)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    """Return a row's texts, in the order of the headings."""
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
    """Return a count with three digits: 8.19k, 24.6M.

    >>> _short(8192.0)
    '8.19k'
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.3g}{letter}"
    return f"{count:.3g}"
