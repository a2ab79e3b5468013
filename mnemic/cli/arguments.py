"""Arguments and options that several commands share."""

from typing import Annotated

import typer

from mnemic.dsl.catalogue import names


def complete_name(incomplete: str) -> list[str]:
    """Return the packaged specs' names that begin with ``incomplete``, for the shell."""
    return [name for name in names() if name.startswith(incomplete)]


def complete_task(incomplete: str) -> list[str]:
    """Return the names of tasks to train on that begin with ``incomplete``, for the shell."""
    from mnemic.search import tasks

    return [name for name in tasks.names() if name.startswith(incomplete)]


def complete_any_task(incomplete: str) -> list[str]:
    """Return the names of tasks, of the memory alone too, that begin with ``incomplete``."""
    from mnemic.search import tasks

    every = (*tasks.names(), *tasks.memory_names())
    return [name for name in every if name.startswith(incomplete)]


SpecArgument = Annotated[
    str,
    typer.Argument(
        metavar="SPEC", help="A YAML file, or a packaged spec's name.", autocompletion=complete_name
    ),
]
SpecArguments = Annotated[
    list[str],
    typer.Argument(
        metavar="SPEC",
        help="YAML files, or packaged specs' names.",
        autocompletion=complete_name,
    ),
]
DeviceOption = Annotated[
    str, typer.Option("--device", metavar="NAME", help="Torch device: cpu, cuda, cuda:1, ...")
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON document, errors too.", show_default=False)
]
