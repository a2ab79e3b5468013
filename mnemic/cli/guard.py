"""What ends a command early: one message and an exit code, never a traceback."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import typer

from mnemic.cli.ending import INTERRUPTED, describe_error
from mnemic.cli.extras import to_install
from mnemic.cli.output import print_json, tell, to_stderr
from mnemic.errors import EnvironmentFailed, MnemicError


def guarded(command: Callable[..., None], extra: str = "") -> Callable[..., None]:
    """Return the command with every expected failure turned into a message and its exit code.

    With the option ``as_json`` the message is a JSON document on standard output. ``extra`` is what
    pip is told to install where the command lacks one of its packages.
    """

    @wraps(command)
    def run(*args: Any, **options: Any) -> None:
        try:
            command(*args, **options)
        except MnemicError as error:
            raise fail(error, as_json=options.get("as_json", False)) from None
        except ModuleNotFoundError as error:
            raise fail(_missing(error, extra), as_json=options.get("as_json", False)) from None
        except (KeyboardInterrupt, typer.Abort):
            to_stderr("interrupted")
            raise typer.Exit(INTERRUPTED) from None
        except OSError as error:
            broken = EnvironmentFailed(describe_error(error))
            raise fail(broken, as_json=options.get("as_json", False)) from None

    return run


def _missing(error: ModuleNotFoundError, extra: str) -> EnvironmentFailed:
    """Return what to tell of a package that is not installed.

    Raises the error itself for a module of mnemic's own, which is a bug.
    """
    package = (error.name or "").partition(".")[0]
    if package in ("", "mnemic"):
        raise error
    what = to_install(package, extra)
    return EnvironmentFailed(
        f"{package} is not installed, and this command needs it: pip install {what}"
    )


def fail(error: MnemicError, *, as_json: bool) -> typer.Exit:
    """Tell the error; return what to raise for its exit code."""
    if as_json:
        print_json(error.to_json())
    else:
        tell(error)
    return typer.Exit(error.exit_code)
