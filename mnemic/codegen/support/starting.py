"""Starting a kernel, clear of what this version of Triton compiles wrongly."""

from typing import Any, Final

import torch

from . import interpreted, versions
from .patterns import turned_accumulators

WITHOUT_GROUPS: Final = 2
"""Warps of a program that has no warp groups: its products take other instructions."""

_turned: dict[str, bool] = {}


def begin(
    function: Any, grid: tuple[int, ...], arguments: list[Any], options: dict[str, Any]
) -> None:
    """Launch a kernel with ``num_warps`` and other options.

    Where a product of warp groups would be wrong (``versions.FAULTS``) the program has two warps
    instead, which is slower, and said once.
    """
    place = next(x.device for x in arguments if isinstance(x, torch.Tensor))
    if versions.faulty(place) and _meets(function, grid, arguments, options):
        versions.announce(
            f"{function.__name__}: this version of Triton compiles its products wrongly for warp "
            "groups, so it runs with two warps, slower; Triton 3.8 or newer is right"
        )
        options = {**options, "num_warps": WITHOUT_GROUPS}
    if versions.interpreting():
        with interpreted.prepared_once():
            function[grid](*arguments, **options)
    else:
        function[grid](*arguments, **options)


def _meets(
    function: Any, grid: tuple[int, ...], arguments: list[Any], options: dict[str, Any]
) -> bool:
    compiled = function.warmup(*arguments, grid=grid, **options)
    if compiled.hash not in _turned:
        _turned[compiled.hash] = turned_accumulators(compiled.asm["ttgir"]) > 0
    return _turned[compiled.hash]
