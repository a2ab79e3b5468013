"""``mnemic tasks``: what there is to learn, and one example of each in words."""

import inspect
import textwrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mnemic.cli.arguments import AsJson, complete_any_task
from mnemic.cli.output import console, echo, print_json
from mnemic.cli.tables import BETWEEN, fitting, left_out
from mnemic.cli.train import pair

if TYPE_CHECKING:
    from rich.table import Table

    from mnemic.search.tasks import Exercise

HEADINGS = ("task", "of", "metric", "chance", "best", "rungs", "title", "source")
SHOWN = ("task", "of", "title", "metric", "chance", "best", "rungs", "source")
"""In the order in which they are given room."""

WRAPPED, NARROWEST = ("title", "rungs", "source"), 24
"""What may take several lines, and how wide it is at least."""

Name = Annotated[
    str | None,
    typer.Argument(
        metavar="TASK", help="A task, or a Python file.", autocompletion=complete_any_task
    ),
]
Rung = Annotated[
    str | None, typer.Option("--rung", help="Rung of the example; the easiest if left out.")
]
TaskOptions = Annotated[
    list[str] | None,
    typer.Option("--task-option", metavar="NAME=VALUE", help="An option of the task; repeatable."),
]
Seed = Annotated[int, typer.Option(help="Seed of the example.", min=0)]


def tasks(
    task: Name = None,
    rung: Rung = None,
    task_option: TaskOptions = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """List the tasks, or describe one: options, rungs from easy to published, an example.

    Tasks "of a model" are for mnemic train; those "of a memory" need no training: a compiled
    operator is asked for the next value (mnemic.search.tasks.evaluate). Chance and best are those
    of the default options.

    JSON: {"tasks": [{"name", "of", "title", "source", "metric", "higher_is_better", "chance",
    "ceiling", "ladder"}, ...]}; of one, the same of its own and "about", "options", "chosen",
    "example" ([[read, answer or null], ...]).
    """
    from mnemic.search.tasks import find, memory_names, names

    if task is None:
        rows = [_row(find(name)()) for name in (*names(), *memory_names())]
        if as_json:
            print_json({"tasks": rows})
        else:
            _print_table(rows)
        return
    kind = find(task)
    told = dict(map(pair, task_option or []))
    easiest = next(iter(kind.ladder), None) if not told else None
    chosen = kind.configure(told, rung or easiest)
    if as_json:
        print_json(_whole(chosen, seed))
    else:
        _print_one(_whole(chosen, seed), rung or easiest)


def _row(task: "Exercise[Any]") -> dict[str, Any]:
    from mnemic.search.tasks import Task

    return {
        "name": task.name,
        "of": "model" if isinstance(task, Task) else "memory",
        "title": task.title,
        "source": task.source,
        "metric": task.metric,
        "higher_is_better": task.higher_is_better,
        "chance": task.chance,
        "ceiling": task.ceiling,
        "ladder": {rung: dict(told) for rung, told in task.ladder.items()},
    }


def _whole(task: "Exercise[Any]", seed: int) -> dict[str, Any]:
    from dataclasses import asdict

    from mnemic.search.tasks.options import described

    return {
        **_row(task),
        "about": inspect.getdoc(type(task)) or "",
        "options": described(task.options_type),
        "chosen": asdict(task.options),
        "example": task.example(seed),
    }


def _print_table(rows: list[dict[str, Any]]) -> None:
    shown = console()
    table, left = _table(rows, shown.width)
    shown.print(table)
    echo(f"{len(rows)} tasks; mnemic tasks TASK shows options, rungs and an example")
    if left:
        echo(left_out(left))


def _table(rows: list[dict[str, Any]], width: int) -> tuple["Table", tuple[str, ...]]:
    """Return the rows within ``width`` columns, and the headings that have no room there.

    Titles, rungs and sources take several lines where they must; nothing is cut.
    """
    from rich.table import Table

    cells = [dict(zip(HEADINGS, _cells(row), strict=True)) for row in rows]
    wide = {h: max(len(h), *(len(row[h]) for row in cells)) for h in HEADINGS}
    wide = fitting(wide, width, SHOWN, WRAPPED, NARROWEST)
    table = Table(box=None, pad_edge=False, padding=(0, BETWEEN, 0, 0))
    for heading, size in wide.items():
        table.add_column(heading, width=size, no_wrap=heading not in WRAPPED)
    for row in cells:
        table.add_row(*(row[heading] for heading in wide))
    return table, tuple(h for h in HEADINGS if h not in wide)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    """Return a row's texts, in the order of the headings."""
    ends = (f"{row['chance']:.3g}", f"{row['ceiling']:.3g}")
    rungs = ", ".join(row["ladder"])
    return row["name"], row["of"], row["metric"], *ends, rungs, row["title"], row["source"]


def _print_one(told: dict[str, Any], rung: str | None) -> None:
    echo(f"{told['name']}: {told['title']}\n\n{told['about']}\n")
    echo(f"source: {told['source']}")
    better = "more" if told["higher_is_better"] else "less"
    ends = f"chance {told['chance']:.4g}, best {told['ceiling']:.4g}; {better} is better"
    echo(f"metric: {told['metric']}, {ends}\n\noptions:")
    for option in told["options"]:
        spread = ", ".join(map(str, option["allowed"]))
        allowed = f"one of {spread}" if option["kind"] == "choice" else f"[{spread}]"
        echo(f"  {option['name']} = {option['default']}, {allowed}: {option['about']}")
    if told["ladder"]:
        echo("\nrungs:")
    for name, values in told["ladder"].items():
        changed = ", ".join(f"{key} = {value}" for key, value in values.items())
        echo(f"  {name}: {changed or 'the defaults'}")
    where = f" at {rung}" if rung else ""
    echo(f"\nexample{where}; what should be answered at a place follows it after →")
    words = [read if answer is None else f"{read}→{answer}" for read, answer in told["example"]]
    wide = [word.replace(" ", "\N{NO-BREAK SPACE}") for word in words]
    text = textwrap.fill(
        " ".join(wide), 96, initial_indent="  ", subsequent_indent="  ", break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
    echo(text.replace("\N{NO-BREAK SPACE}", " "))
