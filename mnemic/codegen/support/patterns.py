"""A pattern in a kernel's intermediate code that some versions of Triton compile wrongly."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

VALUE = re.compile(r"%[A-Za-z0-9_]+(?:#\d+)?")
DEFINED = re.compile(r"^\s*(%[A-Za-z0-9_]+)(?::\d+)? = ([a-z_]+\.[a-z_0-9]+)(.*)$")
CARRIED = re.compile(r"(%[A-Za-z0-9_]+) = %[A-Za-z0-9_]+(?:#\d+)?[,)]")

PRODUCT = "ttng.warp_group_dot"
"""A product of Hopper's warp groups: the only ones that are wrong."""

ACCUMULATORS = (PRODUCT, "ttng.warp_group_dot_wait", "tt.dot", "carried")

STEPS = (
    "arith.", "math.", "tt.fp_to_fp", "tt.broadcast", "tt.trans", "ttg.convert_layout",
    "ttg.local_alloc", "ttg.local_load", "ttg.memdesc_trans",
)  # fmt: skip
"""What is followed from a product's operand back to where it came from."""


TURNS = ("tt.trans", "ttg.memdesc_trans")


@dataclass(frozen=True)
class Operation:
    """One value's operation and operands."""

    name: str
    operands: tuple[str, ...]


def turned_accumulators(ttgir: str) -> int:
    """Count products of warp groups whose left operand is a transposed accumulator.

    The accumulator is that of a product, or one that a loop carries. Triton 3.4 to 3.7.1 gets them
    wrong (flash-linear-attention issues 640 and 984, pull requests 826 and 988).
    """
    known = _operations(ttgir)
    products = (o for o in known.values() if o.name == PRODUCT)
    return sum(_reaches(known, product.operands[0], turned=False) for product in products)


def _operations(ttgir: str) -> dict[str, Operation]:
    found: dict[str, Operation] = {}
    for line in ttgir.splitlines():
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
    """Return whether a value is a transposed accumulator, seen through changes of layout."""
    operation = known.get(value.partition("#")[0])
    if operation is None:
        return False
    if operation.name in ACCUMULATORS:
        return turned
    if not operation.name.startswith(STEPS):
        return False
    turned = turned or operation.name in TURNS
    return any(_reaches(known, operand, turned=turned) for operand in operation.operands)
