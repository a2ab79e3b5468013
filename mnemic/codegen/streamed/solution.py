"""The loop around a pass that solves a system without a matrix: conjugate gradients."""

from collections.abc import Iterator

from mnemic.codegen.plan import Call

STATE = ("", "_left", "_along", "_power", "_live")
"""The solution so far, what is left, the next direction, its power, and which rows go on."""


def begun(pad: str, names: list[str], op: Call) -> Iterator[str]:
    """Yield what stands before the first iteration, and what a pass starts with; ``names``: those
    of the solution, the target, the diagonal, the direction and its image."""
    x, target, diagonal, unknown, _ = names
    options = dict(op.options)
    state = ", ".join(f"{x}{part}" for part in STATE)
    most = f"{options['tolerance']!r}"
    yield f"{pad}{state}, {x}_goal = tiles.begun({target}, {diagonal}, {most}, PRECISION)"
    yield f"{pad}{x}_count = 0"
    going = f"({x}_count < {options['iterations']}) & (tl.max({x}_live.to(tl.int32), 0) > 0)"
    yield f"{pad}while {going}:"
    yield f"{pad}    {unknown} = {x}_along"


def stepped(pad: str, names: list[str]) -> Iterator[str]:
    """Yield the end of an iteration of conjugate gradients."""
    x, _, diagonal, _, image = names
    state = ", ".join(f"{x}{part}" for part in STATE)
    yield f"{pad}{state} = tiles.stepped({state}, {x}_goal, {image}, {diagonal})"
    yield f"{pad}{x}_count += 1"
