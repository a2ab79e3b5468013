"""Sample points of coefficients, at which expressions are evaluated."""

import math
from collections.abc import Iterator, Sequence
from itertools import product
from random import Random
from typing import Final

MOST: Final = 81
"""Points at which an expression of several coefficients is looked at: all corners and middles of
four, a sample of more."""


def few_of(values: list[float]) -> list[float]:
    """Return the least, the middle and the largest; 1 where there is none.

    >>> few_of([3.0, 1.0, 2.0, 5.0]), few_of([])
    ([1.0, 3.0, 5.0], [1.0])
    """
    inside = sorted(values) or [1.0]
    return sorted({inside[0], inside[len(inside) // 2], inside[-1]})


def points(values: Sequence[list[float]]) -> Iterator[tuple[float, ...]]:
    """Yield combinations of a few values of each coefficient: all, or ``MOST`` of them.

    If there are more, these are taken: all coefficients at the least, the middle and the largest
    value, each alone at an end, and a fixed random sample.

    >>> len([*points([[0.0, 1.0, 2.0]] * 4)]), len([*points([[0.0, 1.0, 2.0]] * 12)])
    (81, 81)
    """
    few = [few_of(one) for one in values]
    if math.prod(map(len, few)) <= MOST:
        yield from product(*few)
        return
    middle = [one[len(one) // 2] for one in few]
    found = [tuple(one[i] for one in few) for i in (0, -1)] + [tuple(middle)]
    for i, one in enumerate(few):
        found += [(*middle[:i], end, *middle[i + 1 :]) for end in (one[0], one[-1])]
    source = Random(len(few))
    while len(found) < MOST:
        found.append(tuple(source.choice(one) for one in few))
    yield from found
