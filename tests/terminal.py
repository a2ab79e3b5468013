"""Commands run on a terminal of a given width."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios


def on_terminal(columns: int, *arguments: str) -> tuple[str, int]:
    """Return what a command shows on a terminal of so many columns, and its exit status."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    process = subprocess.Popen(
        [sys.executable, "-m", "mnemic", *arguments], stdout=theirs, stderr=theirs,
        env={**environment, "TERM": "xterm", "NO_COLOR": "1"},
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    while True:
        try:
            shown += os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
    os.close(ours)
    return shown.decode().replace("\r\n", "\n"), process.wait()
