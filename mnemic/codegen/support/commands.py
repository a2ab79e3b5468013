"""The command line of a compiled folder, with torch (and Triton) alone: verify, and tune."""

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

import torch

from . import tune, verify
from .arguments import ArgumentError
from .sequence import SequenceLayer
from .shapes import PURPOSES, Shape

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


def main(layer_type: type[SequenceLayer], words: Sequence[str]) -> int:
    """Run a command, and return its exit code: 0 done, 2 usage, 4 a check failed, 5 environment."""
    asked = parser().parse_args(words)
    try:
        if asked.command == "verify":
            return _verify(layer_type, as_json=asked.json)
        return _tune(layer_type, shape(asked), tuple(asked.purposes), as_json=asked.json)
    except ArgumentError as error:
        print(error, file=sys.stderr)
        return 2
    except (torch.OutOfMemoryError, OSError) as error:
        print(str(error).splitlines()[0], file=sys.stderr)
        return 5


def parser() -> argparse.ArgumentParser:
    """Return the parser of the commands and their options."""
    told = argparse.ArgumentParser(prog="python FOLDER", description=(__doc__ or "").strip())
    commands = told.add_subparsers(dest="command", required=True)
    one = commands.add_parser("verify", help="every form against the recurrence in float64")
    one.add_argument("--json", action="store_true", help="print the entry of verified.json")
    one = commands.add_parser("tune", help="how the kernels are best cut on this GPU at a shape")
    for name, value, what in (
        ("batch", 8, "rows of a batch"), ("tokens", 4096, "tokens of a row"),
        ("heads", 16, "heads"), ("width", 64, "channels of keys"),
    ):  # fmt: skip
        one.add_argument(f"--{name}", type=int, default=value, help=f"{what} ({value})")
    one.add_argument("--value-width", type=int, help="channels of values (as of keys)")
    one.add_argument("--dtype", choices=DTYPES, default="bfloat16")
    one.add_argument("--for", dest="purposes", nargs="+", choices=PURPOSES, default=PURPOSES)
    one.add_argument("--json", action="store_true", help="print the report as JSON")
    return told


def shape(asked: argparse.Namespace) -> Shape:
    """Return the shape that the options tell.

    Raises ``ArgumentError`` for sizes below 1.
    """
    value = asked.value_width or asked.width
    found = Shape(
        asked.batch, asked.tokens, asked.heads, asked.width, value, DTYPES[asked.dtype]
    )  # fmt: skip
    if min(found.batch, found.tokens, found.heads, found.key, found.value) < 1:
        raise ArgumentError(f"tune: read {found}, sizes of 1 or more are needed")
    return found


def _verify(layer_type: type[SequenceLayer], *, as_json: bool) -> int:
    entry = verify.run(layer_type, trying=verify.spoken(layer_type.rule.name))
    if as_json:
        print(json.dumps(entry, indent=1))
    for form, dtypes in () if as_json else entry["forms"].items():
        for dtype, told in dtypes.items():
            print(f"{form} {dtype}: {verify.outcome(told)}")
            for line in told["wrong"][:5]:
                print(f"  {line}")
    return 0 if entry["passed"] else 4


def _tune(
    layer_type: type[SequenceLayer], wanted: Shape, purposes: tuple[str, ...], *, as_json: bool
) -> int:
    report: dict[str, Any] = tune.run(layer_type, wanted, purposes=purposes)
    print(*([json.dumps(report, indent=1)] if as_json else tune.lines(report)), sep="\n")
    return 4 if tune.none_right(report) else 0
