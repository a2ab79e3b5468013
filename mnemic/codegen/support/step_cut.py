"""The kernel of a layer's token as data, and how it is cut: blocks of values, or of memories."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from .configuration import Configuration
from .fused import Held, Stored, swept_always
from .narrower import Order, of_tokens
from .sizes import power_of_two

ENTRIES = 64
"""Entries of memories a thread at most, while there are more than one block of values."""

PRODUCTS = 4
"""How many times as much an entry counts beside matrix products, which have tiles of their own."""

MOST = 110
"""Entries of memories a thread beyond which a program's registers cannot hold them."""

LEAST_WARPS, MOST_WARPS = 4, 16

BLOCK, LEAST_BLOCK = 4_096, 16
"""Entries of a memory's block where a program goes along it, and channels of one at least."""


@dataclass(frozen=True)
class Step:
    """The generated kernel of a layer's token, and what it takes."""

    kernel: Any
    raws: tuple[str, ...]
    """Coefficients that it takes before their activations."""
    states: tuple[Held, ...]
    sizes: Mapping[str, str]
    """Sizes that are d_k (``key``) or d_v (``value``); states tell the others."""
    vectors: tuple[str, ...]
    """The vectors whose channels it reads."""
    value: str
    """The size of the output's channels."""
    split: str
    """The size that may be cut into blocks, one a program; empty where there is none."""
    taps: int
    finishes: bool
    """Whether it norms or gates the output."""
    gated: bool
    normed: bool
    places: bool
    """Whether it reads the rule's position."""
    numbered: bool
    """Whether it reads the token's number."""
    products: bool
    tails: tuple[Held, ...] = ()
    """What a window of tokens carries: the first size is the window's."""
    window: int = 1
    along: tuple[str, ...] = ()
    """The sizes along which its memories, where they stand, are gone through by blocks."""
    scratch: Stored = ()
    """How many rows it keeps for a while along each size of ``along``."""
    swept: "Step | None" = None
    """The kernel that goes along axes, for memories that registers do not hold."""

    @property
    def narrowing(self) -> Order:
        """How its cuts become narrower."""
        return of_tokens(split=bool(self.split or self.along))

    def blocked(self, size: str, block: int) -> int | None:
        """Return the block of a size's axis, or ``None`` where it has none."""
        return block if size == self.split or size in self.along else None


def suited(step: Step, sizes: Mapping[str, int]) -> Step | None:
    """Return the step, or where registers do not hold its memories the one that goes along them.

    ``None`` where there is none that fits.
    """
    always = swept_always()
    found = (step.swept, step) if always else (step, None if always is False else step.swept)
    return next((x for x in found if x is not None and cut(x, sizes) is not None), None)


def cut(step: Step, sizes: Mapping[str, int]) -> Configuration | None:
    """Choose whole values where their memories fit into a program's registers, else blocks of them;
    along axes blocks of ``BLOCK`` entries.

    ``None`` where even the smallest block does not fit.
    """
    if step.along:
        return _along(step, sizes)
    whole = power_of_two(sizes[step.value])
    block = whole
    while True:
        alive = _alive(step, sizes, block)
        if alive <= ENTRIES * 32 * MOST_WARPS or not step.split or block <= 16:
            break
        block //= 2
    if alive > MOST * 32 * MOST_WARPS:
        return None
    most = MOST_WARPS // 2 if step.products else MOST_WARPS  # tiles of 16 rows share out badly
    warps = min(most, max(LEAST_WARPS, power_of_two(-(-alive // (ENTRIES * 32)))))
    return Configuration(1, block, warps)


def _along(step: Step, sizes: Mapping[str, int]) -> Configuration | None:
    wide = {n: power_of_two(x) for n, x in sizes.items()}
    other = max(
        prod(wide[n] for n in held.sizes if n not in step.along) for held in step.states
    )  # fmt: skip
    block = min(max(wide[n] for n in step.along), max(LEAST_BLOCK, BLOCK // other))
    return Configuration(1, block, LEAST_WARPS * 2) if other * block <= 2 * BLOCK else None


def _alive(step: Step, sizes: Mapping[str, int], block: int) -> int:
    """Count the entries of memories that a program holds, and of what products need beside them."""
    held = {n: step.blocked(n, block) or power_of_two(x) for n, x in sizes.items()}
    entries = sum(prod(held[name] for name in state.sizes) for state in step.states)
    return entries * (PRODUCTS if step.products else 1)


def too_large(step: Step, sizes: Mapping[str, int]) -> str:
    """Say why even the smallest cut does not fit."""
    told = ", ".join(f"{name} = {size}" for name, size in sizes.items())
    block = 16 if step.split else power_of_two(sizes[step.value])
    found = _alive(step, sizes, block) // (32 * MOST_WARPS)
    return (
        f"memories of {told} do not fit into a step's kernel: a thread would hold {found} numbers, "
        f"and {MOST} are the limit"
    )
