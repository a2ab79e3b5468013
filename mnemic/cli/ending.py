"""How the process ends where no command can tell of it: signals, and output that cannot be written.

Nothing heavy is imported here, since Ctrl-C may come while the commands are still imported.
"""

import io
import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from mnemic.cli import spelled

ENVIRONMENT, INTERRUPTED, TERMINATED = 5, 130, 143
"""Exit codes; the last two are the shell's own, 128 and the signal's number."""


class Terminated(SystemExit):
    """SIGTERM has come: everything is tidied up on the way out, as after Ctrl-C."""


@contextmanager
def ended_in_one_line() -> Iterator[None]:
    """Turn whatever ends the process early into one line on standard error and an exit code."""
    try:
        _prepare()
        try:
            yield
        finally:
            sys.stdout.flush()
    except Terminated:
        _leave("terminated", TERMINATED)
    except KeyboardInterrupt:
        _leave("interrupted", INTERRUPTED)
    except OSError as error:
        _leave(describe_error(error), ENVIRONMENT)


def describe_error(error: OSError) -> str:
    """Return what the system refused, in one line: of which file, and why."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return "the working folder is gone: change to one that exists"
    return f"{error.filename or 'the system'}: {error.strerror or error}"


def _prepare() -> None:
    """Print any text in any encoding, end quietly when the reader of a pipe leaves, and let
    SIGTERM be an exception, so that nothing half-written is left."""
    spelled.register()
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the shell: >&-
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=spelled.HANDLER)
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, _unread)
    signal.signal(signal.SIGTERM, _terminate)


def _unread(number: int, frame: object) -> None:
    """End quietly, by the signal, where nobody reads standard output or error any more. The other
    end of a socket, or of a process's pipe, is no reason to: who writes there is told by
    BrokenPipeError."""
    if any(_is_left(stream) for stream in (sys.stdout, sys.stderr)):
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)


def _is_left(stream: object) -> bool:
    """Tell whether the reader of a stream has left."""
    try:
        place = stream.fileno()  # type: ignore[attr-defined]
    except (AttributeError, OSError, ValueError):
        return False  # in memory, or closed
    asked = select.poll()
    asked.register(place, select.POLLOUT)
    left = select.POLLERR | select.POLLHUP | select.POLLNVAL
    return any(event & left for _, event in asked.poll(0))


def _terminate(number: int, frame: object) -> None:
    raise Terminated(TERMINATED)


def _leave(message: str, code: int) -> None:
    """Tell, and exit; throw away what could not be written, so that Python does not try again
    and print a traceback of its own."""
    print(f"mnemic: {message}", file=sys.stderr)
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    raise SystemExit(code)
