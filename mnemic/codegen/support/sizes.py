"""Sizes: how many features a map makes, from the formula that the code generator writes."""

import math
from collections.abc import Callable


def eval_size(text: str, size: int) -> int:
    """Return D from its formula in d, one of the shapes that the code generator writes."""
    return int(FEATURES[text.split("(", maxsplit=1)[0]](size, *_numbers(text)))


def power_of_two(size: int) -> int:
    """Return the least power of two that is no less."""
    return 1 << max(0, size - 1).bit_length()


def specialised(number: int) -> tuple[bool, bool, bool]:
    """Return what Triton compiles anew for: a number's being 1, a multiple of 16, of 32 bits."""
    return number == 1, number % 16 == 0, number < 2**31


def volume(sizes: list[int]) -> int:
    """Multiply sizes."""
    found = 1
    for size in sizes:
        found *= size
    return found


def _numbers(text: str) -> list[int]:
    inner = text[text.index("(") + 1 : -1] if "(" in text else ""
    return [int(part) for part in inner.split(",") if part.strip()]


FEATURES: dict[str, Callable[..., int]] = {
    "d": lambda d: d,
    "double": lambda d: 2 * d,
    "power": lambda d, p: d**p,
    "monomials": lambda d, p: math.comb(d + p, p),
    "multiple": lambda d, m: m * d,
    "fixed": lambda d, m: m,
}
"""How many features a map makes of d coordinates."""
