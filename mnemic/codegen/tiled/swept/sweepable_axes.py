"""Which axes of its memories a form can loop over block by block."""

from collections.abc import Callable
from itertools import chain, combinations

from mnemic.codegen.tiled.axes import NoTiles
from mnemic.codegen.tiled.layout import Layout
from mnemic.codegen.tiled.swept.swept_kernel import of_form


def axes(lay: Layout, spread: Callable[[tuple[str, ...]], Layout]) -> tuple[str, ...]:
    """Choose the axes that leave the fewest memories whole, then the fewest axes, those of no
    argument first; none where none can be gone along.

    ``spread`` gives the layout without functions of memories that are gone along.
    """
    matrices = [state for state in lay.states if len(state.sizes) > 1]
    sizes = dict.fromkeys(size for state in matrices for size in state.sizes)
    found = [along for along in _subsets(tuple(sizes)) if _goes(along, spread)]
    own = {size for row in lay.rows for size in row.sizes}

    def order(along: tuple[str, ...]) -> tuple[int, int, int]:
        whole = sum(not set(state.sizes) & set(along) for state in matrices)
        return whole, len(along), len(own & set(along))

    return min(found, key=order, default=())


def _goes(along: tuple[str, ...], spread: Callable[[tuple[str, ...]], Layout]) -> bool:
    try:
        return all(sweeps.sections() for sweeps in of_form(spread(along), along).all)
    except NoTiles:
        return False


def _subsets(sizes: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return all choices of some of these sizes, the smallest first."""
    numbers = range(1, len(sizes) + 1)
    return list(chain.from_iterable(combinations(sizes, number) for number in numbers))
