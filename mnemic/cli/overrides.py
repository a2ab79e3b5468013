"""Options that override what a space says: its block, its budget, its rates and seeds."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from mnemic.cli.arguments import complete_name
from mnemic.errors import Issue, UsageError, format_issue, nearest

if TYPE_CHECKING:
    from mnemic.search.space.space import Space

BlockOption = Annotated[
    str | None,
    typer.Option(
        "--block", metavar="FILE|NAME", autocompletion=complete_name,
        help="Set every memory into the block of this spec.",
    ),
]  # fmt: skip
Budget = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COST[=BOUND]",
        help="Bound parameters, state, flops or training-flops, in place of the space's "
        "constraints: a number, or a multiple of the reference's (1.1x, if left out).",
    ),
]
Rates = Annotated[
    str | None,
    typer.Option(metavar="LR,LR,...", help="Learning rates, of which a sweep chooses each spec's."),
]
Device = Annotated[
    str | None,
    typer.Option(
        "--device", metavar="NAME", show_default="cpu",
        help="Torch's name of the device that trains: cuda, cuda:1, ...",
    ),
]  # fmt: skip
CompileSteps = Annotated[
    bool, typer.Option("--compile", help="Train under torch.compile: slow to begin, then faster.")
]
Seeds = Annotated[int | None, typer.Option(help="Seeds of each spec and task.", min=1, max=64)]
COSTS: Final = {"parameters": "parameters", "state": "state_bytes", "flops": "flops",
                "training-flops": "training_flops"}  # fmt: skip

OPTIONS: Final = {"constraints": "budget", "rungs": "seeds"}
"""The option that sets an entry, where it has another name."""


def overridden(
    space: "Space", budget: Sequence[str] | None, rates: tuple[float, ...] = (),
    seeds: int | None = None, **told: Any,
) -> "Space":  # fmt: skip
    """Return the space with the settings that options give; ``told`` are entries of ``search``.

    Raises:
        UsageError: a value that is none, with what is allowed.
    """
    from pydantic import ValidationError

    from mnemic.dsl.problems import message
    from mnemic.search.space.settings import Settings

    settings = space.settings
    update: dict[str, Any] = {name: value for name, value in told.items() if value is not None}
    if budget:
        update["constraints"] = dict(map(_bound, budget))
    if rates:
        update["rates"] = rates
    data = {**settings.model_dump(mode="json", by_alias=True), **update}
    if seeds is not None:
        data["rungs"] = [*data["rungs"][:-1], {**data["rungs"][-1], "seeds": seeds}]
    try:
        return replace(space, settings=Settings.model_validate(data, by_alias=True, by_name=False))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0])
        raise UsageError(
            f"--{OPTIONS.get(name, name)}: {message(first)}: read {first['input']!r}"
        ) from None


def numbers(text: str | None) -> tuple[float, ...]:
    """Return learning rates as they are typed."""
    try:
        return tuple(float(word) for word in text.split(",")) if text else ()
    except ValueError:
        raise UsageError(f"--rates: read {text!r}, allowed: numbers such as 1e-3,3e-3") from None


def _bound(text: str) -> tuple[str, float | str]:
    """Parse ``state=2x`` to an entry of ``constraints``. Raises UsageError for another name."""
    name, _, bound = text.partition("=")
    if name not in COSTS:
        issue = Issue("", "--budget", name, tuple(COSTS), nearest(name, COSTS))
        raise UsageError(format_issue(issue))
    try:
        return COSTS[name], float(bound)
    except ValueError:
        return COSTS[name], bound or "1.1x"
