"""``mnemic map``: how systems are related."""

from typing import TYPE_CHECKING, Annotated

import typer

from mnemic import pipeline
from mnemic.cli.arguments import AsJson, complete_name
from mnemic.cli.drawing import PICTURE, Drawing, write_drawing
from mnemic.cli.output import console, echo, print_json, to_stderr
from mnemic.cli.pages import demand_ending
from mnemic.dsl.catalogue import names
from mnemic.dsl.extends import is_path
from mnemic.dsl.spec import Spec
from mnemic.errors import Issue, UsageError, format_issue, nearest

if TYPE_CHECKING:
    from mnemic.relations import Map, Relation

Specs = Annotated[
    list[str] | None,
    typer.Argument(metavar="SPEC", help="Specs of your own beside the packaged ones.",
                   autocompletion=complete_name, show_default=False),
]  # fmt: skip
Near = Annotated[
    str | None,
    typer.Option("--near", metavar="NAME", help="Only the relations of one system; a file, too.",
                 autocompletion=complete_name),
]  # fmt: skip
Path_ = Annotated[
    tuple[str, str] | None,
    typer.Option("--path", metavar="A B", help="A chain of substitutions from one to the other.",
                 show_default=False),
]  # fmt: skip
Whole = Annotated[
    bool, typer.Option("--all", help="Relations that follow from others, too.", show_default=False)
]


def map_(
    specs: Specs = None, near: Near = None, path: Path_ = None, every: Whole = False,
    out: Drawing = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Relate all packaged specs, and your own: which is which, at what values.

    Relations are found by algebra on the derived rules and then run: both rules in float64 with
    d_k = 4 and d_v = 3 on random inputs. Kinds: the same rule; the same under a change of
    coefficients; a special case at values; a limit; the rule that a chunk anchor approximates. What
    follows from other relations is left out unless --all. The map of all takes two minutes the
    first time and is then remembered.

    JSON: {"systems": [{"name", "class"}], "relations": [{"inner", "outer", "kind", "at", "change",
    "back", "how", "error", "notes", "direct"}], "unconfirmed": [text]}.
    """
    if near and path:
        raise UsageError("--near and --path exclude one another")
    demand_ending(out, PICTURE)
    chosen = {name: pipeline.read(name) for name in names()}
    asked = [name for name in (near, *(path or ())) if name]
    files = {word: pipeline.read(word) for word in asked if is_path(word)}
    own = [*(pipeline.read(source) for source in specs or ()), *files.values()]
    chosen |= {spec.name: spec for spec in own}
    named = {word: files[word].name if word in files else word for word in asked}
    for name in named.values():
        _known(name, list(chosen))
    drawn = _map(chosen)
    if out is not None:
        from mnemic.relations.drawing import svg

        write_drawing(out, svg(drawn))
    if as_json:
        print_json(drawn.to_json())
    elif path:
        _chain(drawn, named[path[0]], named[path[1]])
    elif near:
        _near(drawn, named[near])
    else:
        _lines(drawn.relations if every else drawn.direct)
        _summary(drawn)


def _known(name: str, allowed: list[str]) -> None:
    if name not in allowed:
        near = nearest(name, allowed)
        hint = None if near else "a path ends in .yaml or has a separator"
        issue = Issue("no such system on the map", read=name, nearest=near, hint=hint)
        raise UsageError(format_issue(issue))


def _map(specs: dict[str, Spec]) -> "Map":
    """Return the map of specs, remembered; say on a terminal what is related."""
    from mnemic import relations

    with console(stderr=True).status("relating systems") as status:
        return relations.remembered(
            specs, lambda name: status.update(f"relating {name}"), to_stderr
        )


def _lines(relations: "tuple[Relation, ...]") -> None:
    for relation in relations:
        echo(str(relation))


def _near(drawn: "Map", name: str) -> None:
    """Tell the relations of one system; without any, what else tells how it differs."""
    found = drawn.near(name)
    _lines(found)
    if found:
        echo(f"{name}: {len(found)} relation{'s' if len(found) > 1 else ''}")
    else:
        echo(f"{name}: no relation to another of {len(drawn.classes)} systems was found; "
             f"mnemic diff {name} OTHER tells how it differs from one")  # fmt: skip


def _chain(drawn: "Map", a: str, b: str) -> None:
    steps = drawn.path(a, b)
    if steps is None:
        echo(f"no chain of relations joins {a} and {b}")
    else:
        _lines(steps)


def _summary(drawn: "Map") -> None:
    kinds: dict[str, int] = {}
    for relation in drawn.relations:
        kinds[relation.kind] = kinds.get(relation.kind, 0) + 1
    counted = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    echo(f"{len(drawn.classes)} systems, {len(drawn.relations)} relations ({counted}), "
         f"{len(drawn.direct)} of them no composition of others")  # fmt: skip
    if drawn.alone:
        echo(f"without a relation: {', '.join(drawn.alone)}")
    for reason in drawn.unconfirmed:
        echo(f"not confirmed: {reason}")
