"""The start of a kernel, avoiding what this version of Triton compiles wrongly."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final

import torch

from . import interpreted, versions
from .patterns import turned_accumulators
from .sizes import specialised

WITHOUT_GROUPS: Final = 2
"""Warps of a program that has no warp groups: its products take other instructions."""

_turned: dict[Hashable, bool] = {}
"""Whether a launch meets a product that is wrong, by all that Triton compiles a kernel anew for."""


def begin(
    function: Any, grid: tuple[int, ...], arguments: list[Any], options: Mapping[str, Any]
) -> None:
    """Launch a kernel with ``num_warps`` and other options.

    Where a product of warp groups would be wrong the program gets two warps instead, which is
    slower and causes one warning.
    """
    place = next(x.device for x in arguments if isinstance(x, torch.Tensor))
    clear = clear_of_faults(function, grid, arguments, options, place)
    if clear is not options:
        versions.announce(
            f"{function.__name__}: this version of Triton compiles its products wrongly for warp "
            "groups, so it runs with two warps, slower; Triton 3.8 or newer is right"
        )
    options = clear
    if versions.interpreting():
        with interpreted.prepared_once():
            function[grid](*arguments, **options)
    else:
        function[grid](*arguments, **options)


def clear_of_faults(
    function: Any, grid: tuple[int, ...], arguments: Sequence[Any], options: Mapping[str, Any],
    place: torch.device,
) -> Mapping[str, Any]:  # fmt: skip
    """Return the options with which a kernel is launched on a device: its own, or where a product
    of warp groups would be wrong (``versions.FAULTS``) those with two warps."""
    if not versions.faulty(place) or not _meets(function, grid, arguments, options):
        return options
    return {**options, "num_warps": WITHOUT_GROUPS}


def _meets(
    function: Any, grid: tuple[int, ...], arguments: Sequence[Any], options: Mapping[str, Any]
) -> bool:
    key = (function, versions.offline(), *map(_kind, arguments), *options.items())
    if key not in _turned:  # asking Triton takes as long as the launch itself
        compiled = function.warmup(*arguments, grid=grid, **options)
        _turned[key] = turned_accumulators(compiled.asm["ttgir"]) > 0
    return _turned[key]


def _kind(x: Any) -> Hashable:
    """Return what Triton tells an argument's kernels apart by: a tensor's type and whether it is
    aligned, a number's being 1, a multiple of 16, of 32 bits."""
    if isinstance(x, torch.Tensor):
        return x.dtype, x.data_ptr() % 16 == 0
    if type(x) is int:
        return specialised(x)
    return type(x), x
