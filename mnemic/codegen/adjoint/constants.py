"""What no gradient goes through: numbers of tokens and heads, and arguments that tell a shape."""

from collections.abc import Callable

INDICES = (
    "zero",
    "h_index",
    "t_index",
    "H_index",
    "first_index",
    "ends",
    "level_keeps",
    "level_writes",
)
"""Arguments that are the same whatever the inputs."""

ALL = frozenset(range(16))
SHAPES: dict[str, frozenset[int]] = {
    "as_vector": frozenset({1}),
    "filled": ALL,
    "constant": ALL,
    "lower_ones": ALL,
    "lower_ones_of": ALL,
    "level_sums": frozenset({1}),
    "unit_of": ALL,
    "key_size": ALL,
    "ones_of": ALL,
    "own_rows": frozenset({1}),
    "with_zeros": frozenset({1}),
    "with_ones": frozenset({1}),
    "exp_over": frozenset({1, 2}),
    "recent_of": ALL,
    "recent_past": ALL,
    "row_top": ALL,
    "row_tops": ALL,
    "unknown": ALL,
    "solution": ALL,
    "solution_with": frozenset({0, 2, 3, 4}),
    "recall_buckets": frozenset({3}),
    "through_transition": frozenset({2, 3}),
    "merged": frozenset({2}),
    **{
        f"{n}{z}": ALL for n in ("highest", "simplex_root") for z in ("", "_of_rows", "_of_columns")
    },
    **{f"simplex_entries{z}": frozenset({2, 3}) for z in ("", "_of_rows", "_of_columns")},
}
"""By function, the places of arguments that have no gradient."""


def without_gradient(function: str) -> Callable[[int], bool]:
    """Whether an argument, by its place, has no gradient."""
    places = SHAPES.get(function, frozenset())
    return lambda place: place in places
