"""Patterns in a kernel's intermediate code that some versions of Triton compile wrongly."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

VALUE = re.compile(r"%[A-Za-z0-9_]+(?:#\d+)?")
DEFINED = re.compile(r"^\s*(%[A-Za-z0-9_]+)(?::\d+)? = ([a-z_]+\.[a-z_0-9]+)(.*)$")
CARRIED = re.compile(r"(%[A-Za-z0-9_]+) = %[A-Za-z0-9_]+(?:#\d+)?[,)]")

ELEMENTWISE = ("arith.", "math.", "tt.fp_to_fp", "tt.broadcast", "tt.trans")
"""What is followed from a product's operand back to where it came from."""


@dataclass(frozen=True)
class Operation:
    """One value's operation and operands."""

    name: str
    operands: tuple[str, ...]


def transposed_accumulators(ttir: str) -> int:
    """Products whose left operand is a transposed accumulator: of a product, or carried by a loop.

    On Hopper these are wrong from Triton 3.4 to 3.7.0 (flash-linear-attention issues 640, 826).
    """
    known = _operations(ttir)
    products = (o for o in known.values() if o.name == "tt.dot")
    return sum(_reaches(known, product.operands[0], turned=False) for product in products)


def _operations(ttir: str) -> dict[str, Operation]:
    found: dict[str, Operation] = {}
    for line in ttir.splitlines():
        match = DEFINED.match(line)
        if match is None:
            continue
        name, operation, rest = match.groups()
        if operation in ("scf.for", "scf.while"):
            _, _, carried = rest.partition("iter_args(")
            found |= {n: Operation("carried", ()) for n in CARRIED.findall(carried)}
            found[name] = Operation("carried", ())
        else:
            operands, _, _ = rest.partition(" : ")
            found[name] = Operation(operation, tuple(VALUE.findall(operands)))
    return found


def _reaches(known: Mapping[str, Operation], value: str, *, turned: bool) -> bool:
    """Whether a value is an accumulator, seen through elementwise steps and a transposition."""
    operation = known.get(value.partition("#")[0])
    if operation is None:
        return False
    if operation.name in ("tt.dot", "carried"):
        return turned
    if not operation.name.startswith(ELEMENTWISE):
        return False
    turned = turned or operation.name == "tt.trans"
    return any(_reaches(known, operand, turned=turned) for operand in operation.operands)
