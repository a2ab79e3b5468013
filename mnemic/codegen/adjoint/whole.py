"""Functions that no tile computes: their gradients are PyTorch's own, of the function as it is.

Feature maps that make more channels than they take are read before a scan, and links found by a
root, trees, local fits and attention over kept pairs run in PyTorch forward as well.
"""

from collections.abc import Callable

from mnemic.codegen.adjoint.at import At
from mnemic.codegen.adjoint.constants import without_gradient

FUNCTIONS = (
    "features", "inverse_link", "blended_after", "blended_before", "blended_carry",
    "blended_remain", "decayed_products", "accumulate_rows", "accumulate_blended", "every_level",
    "recall_levels", "weigh_levels", "read_levels", "recall_buckets",
    "through_transition", "merged", "kernel_rows", "kernel_row", "kernel_self", "half_solved",
    "half_solved_rows", "pivot", "bordered", "next_solved", "grown_factor", "solved_behind",
    "prefix_reads", "shares", "exp_relative", "relative", "decays_left", "decays_at_end",
    "local_means", "local_linears", "local_linear", "attention", "beside", "squares",
    "carried_keys",
)  # fmt: skip


def whole(at: At) -> None:
    """Every argument's gradient by autograd of the function alone."""
    op = at.quantity.op
    function = op.function  # type: ignore[union-attr]
    constant = without_gradient(function)
    options = dict(op.options)  # type: ignore[union-attr]
    for place, argument in enumerate(at.arguments):
        if not constant(place):
            at.give_call(argument, "pulled_back", at.d, *at.arguments, of=function, place=place,
                         **options)  # fmt: skip


RULES: dict[str, Callable[[At], None]] = dict.fromkeys(FUNCTIONS, whole)
