"""Numbers to judge a line by: short decimals, so that anyone can compute with them again."""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mnemic.audit.entry import Equation
from mnemic.dsl.functions import CONSTANTS

if TYPE_CHECKING:
    from torch import Tensor

ITEMS: Final = 4
"""Pairs in a window or a prefix, more than keys have entries so that their sum is invertible."""

HIDDEN: Final = 4


@dataclass(frozen=True)
class Sizes:
    """The sizes of keys and values; of a square memory the same."""

    keys: int
    values: int

    def of(self, shape: str) -> tuple[int, ...]:
        """Return the rows and columns of a shape by its name."""
        k, v = self.keys, self.values
        return {
            "scalar": (), "key": (k, 1), "value": (v, 1), "memory": (v, k), "square": (k, k),
            "keys": (ITEMS, k), "values": (ITEMS, v), "mixed": (v, v), "hidden": (HIDDEN, 1),
            "inner": (HIDDEN, k), "outer": (v, HIDDEN),
            "row": (1, ITEMS), "tokens": (ITEMS, 1),
        }[shape]  # fmt: skip


WIDE, SQUARE = Sizes(3, 2), Sizes(3, 3)

_SHAPES: Final = {
    "memory": ("W", "X", "S", "A", "G", "Z", "C", "M"), "key": ("k", "q", "phi", "w"),
    "value": ("v", "u"), "keys": ("K",), "values": ("V",), "outer": ("W1",), "inner": ("W2", "W3"),
}  # fmt: skip
_BY_NAME: Final = {name: shape for shape, names in _SHAPES.items() for name in names}


def shape_of(name: str, line: Equation) -> str:
    """Return the shape of a name: what the line says, else what its first letters say."""
    stem = name.removesuffix("_i").rstrip("0123456789").removesuffix("_")
    for known in (name, name.removesuffix("_i"), stem):
        if known in line.shapes:
            return line.shapes[known]
        if known in _BY_NAME:
            return _BY_NAME[known]
    return "scalar"


def coefficients(names: Iterable[str], line: Equation) -> tuple[str, ...]:
    """Return the scalars among the names that a change of coefficients may touch.

    A name that ends in a number is another token's: to set it to this token's is no change of
    coefficients but a special case.
    """
    return tuple(
        name for name in sorted(names)
        if shape_of(name, line) == "scalar" and not name.endswith("_i")
        and not name[-1].isdigit() and name not in (*line.fixed, *line.values, *CONSTANTS)
    )  # fmt: skip


def draw(names: Iterable[str], line: Equation, sizes: Sizes, seed: int) -> dict[str, Any]:
    """Return a value for each name, the same for the same seed."""
    import torch

    found = {name: _value(name, line, sizes, seed) for name in sorted(names)}
    return {**found, "I": torch.eye(sizes.keys, dtype=torch.float64)}


def _value(name: str, line: Equation, sizes: Sizes, seed: int) -> Any:
    if name in line.values:
        return _tensor(line.values[name])
    chance = random.Random(f"{name} {seed}")
    stem = name.removesuffix("_i")
    domain = line.domains.get(name) or line.domains.get(stem)
    shape = sizes.of(shape_of(name, line))
    if name.endswith("_i"):
        return [_tensor(_drawn(chance, domain, shape)) for _ in range(ITEMS)]
    return _tensor(_drawn(chance, domain, shape))


def _drawn(chance: random.Random, domain: str | None, shape: tuple[int, ...]) -> Any:
    """Return decimals with one digit; a scalar is a fraction unless its domain says otherwise."""
    if not shape:
        return _number(chance, domain or "unit")
    rows, columns = shape
    made = [[_number(chance, domain or "any") for _ in range(columns)] for _ in range(rows)]
    if domain in ("symmetric", "definite"):
        return [
            [made[max(i, j)][min(i, j)] + (6.0 if i == j and domain == "definite" else 0.0)
             for j in range(columns)] for i in range(rows)
        ]  # fmt: skip
    if domain == "strictly lower":
        return [[made[i][j] if j < i else 0.0 for j in range(columns)] for i in range(rows)]
    if domain == "simplex":
        parts = [chance.randint(1, 5) for _ in range(rows * columns)]
        parts[-1] += 32 - sum(parts) if sum(parts) < 32 else 0
        whole = sum(parts)
        return [[parts[i * columns + j] / whole for j in range(columns)] for i in range(rows)]
    return made


def _number(chance: random.Random, domain: str) -> float:
    if domain == "unit":
        return chance.randint(1, 9) / 10
    if domain == "above one":
        return chance.randint(11, 30) / 10
    if domain == "positive":
        return chance.randint(2, 20) / 10
    return chance.choice((-1, 1)) * chance.randint(1, 15) / 10


def _tensor(value: Any) -> "Tensor":
    import torch

    return torch.tensor(value, dtype=torch.float64)
