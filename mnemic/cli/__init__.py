"""The command ``mnemic``: one file a command, none of which imports anything heavy by itself.

Exit codes: 0 done, 2 usage, 3 invalid spec, 4 a numerical check failed, 5 environment; 130 after
Ctrl-C, 143 after SIGTERM. Where the reader of its output leaves, SIGPIPE ends the process, as it
does others. With ``--json`` a command prints one JSON document on standard output, for errors too:
``{"error", "exit_code", "message"}`` and, for an invalid spec, ``issues``.
"""


def main() -> None:
    """Run the command with the process's arguments, and exit with its code."""
    from mnemic.cli.ending import ended_in_one_line

    with ended_in_one_line():
        from mnemic.cli.app import app

        app(prog_name="mnemic")
