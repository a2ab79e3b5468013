"""``mnemic site``: pages to read it all, in a browser, offline."""

import hashlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mnemic import pipeline
from mnemic.cli.arguments import AsJson, complete_name
from mnemic.cli.facts import gathered, kernels, read_or_make
from mnemic.cli.output import console, echo, print_json, to_stderr
from mnemic.dsl.catalogue import find, names
from mnemic.dsl.spec import Spec

if TYPE_CHECKING:
    from mnemic.site import System
    from mnemic.site.build import Built

Specs = Annotated[
    list[str] | None,
    typer.Argument(metavar="SPEC", help="Only these, packaged or your own; all packaged ones "
                   "if left out.", autocompletion=complete_name, show_default=False),
]  # fmt: skip
Output = Annotated[Path, typer.Option("-o", "--output", help="The folder.", metavar="DIR")]


def site(output: Output, specs: Specs = None, as_json: AsJson = False) -> None:
    """Build a site of all systems that opens in a browser, offline: DIR/index.html.

    A page for each system (problem, derivation, rule, costs, code, relatives, audit, results), a
    table to choose from, the map, the audit by paper and the guides. DIR is new, empty, or an
    earlier site of mnemic's, and is written whole or not at all. Derivations and the map are
    remembered, so that a second site takes seconds. Needs the extra docs.

    JSON: {"folder", "pages", "bytes", "seconds", "warnings"}.
    """
    from mnemic.site import build

    began = time.perf_counter()
    sources = tuple(specs or names())
    chosen = {spec.name: (source, spec) for source, spec in
              ((source, pipeline.read(source)) for source in sources)}  # fmt: skip
    with build.claimed(output.expanduser().resolve()) as folder:
        built = _built(chosen, folder)
    seconds = round(time.perf_counter() - began, 1)
    told = {**built._asdict(), "folder": str(built.folder), "seconds": seconds}
    if as_json:
        print_json(told)
        return
    for line in built.warnings:
        to_stderr(f"warning: {line}")
    echo(f"{built.pages} pages, {built.bytes / 1e6:.1f} MB in {seconds} s: "
         f"{built.folder / 'index.html'}")  # fmt: skip


def _built(chosen: Mapping[str, tuple[str, Spec]], folder: Path) -> "Built":
    from mnemic import relations
    from mnemic.site import build

    with console(stderr=True).status("deriving") as status:
        systems = _systems(chosen, lambda name: status.update(f"deriving {name}"))
        specs = {name: spec for name, (_, spec) in chosen.items()}
        drawn = relations.remembered(
            specs, lambda name: status.update(f"relating {name}"), to_stderr
        )
        status.update("writing pages")
        return build.build(systems, drawn, folder)


def _systems(
    chosen: Mapping[str, tuple[str, Spec]], told: Callable[[str], None]
) -> "list[System]":  # fmt: skip
    from mnemic import site as pages

    specs = {name: spec for name, (_, spec) in chosen.items()}
    facts = gathered(specs, told)
    derived = read_or_make(f"described-{_digest()}", specs, told, pages.describe)
    return [
        pages.System(spec, source, _text(source), facts[name], tuple(kernels(spec)), derived[name])
        for name, (source, spec) in chosen.items()
    ]


def _digest() -> str:
    """Hash the code that writes a spec's page, which the generator's own hash does not cover."""
    from mnemic.site import describe

    return hashlib.sha256(Path(describe.__code__.co_filename).read_bytes()).hexdigest()[:16]


def _text(source: str) -> str:
    """Read the YAML of a spec as its file has it."""
    path = find(source) if source in names() else Path(source)
    return path.read_text(encoding="utf-8")
