"""Options whose values are none that a command takes."""

from typing import Any

import typer
from pydantic import ValidationError
from typer.core import TyperCommand


class Command(TyperCommand):
    """Tell what was read, beside what is allowed, where the value of an option is a wrong one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line.

        Raises:
            typer.BadParameter: a value is no number, or outside its bounds.
        """
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            error.message = _tell(error)
            raise


def _tell(error: typer.BadParameter) -> str:
    """Return the message with the value, where it is one of a type or of a bound."""
    if not isinstance(error.__cause__, ValidationError):
        return error.message
    first = error.__cause__.errors(include_url=False)[0]
    allowed = first["msg"].partition(", unable")[0].replace("Input should be", "must be")
    return f"{allowed}: read '{first['input']}'"
