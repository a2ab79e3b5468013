"""Tables that fit a terminal: columns that have no room are left out whole, and told of."""

from collections.abc import Collection, Mapping, Sequence

BETWEEN = 3
"""Columns between two of a table."""


def fitting(
    wide: Mapping[str, int], width: int, order: Sequence[str], flexible: Collection[str], least: int
) -> dict[str, int]:
    """Return the columns of a table that fit, and how wide each is; the first always does.

    Room is given in the ``order``. A ``flexible`` column may be narrower than its text, but not
    below ``least``, and leaves that much to those behind it.

    >>> fitting({"name": 9, "rate": 4, "title": 40}, 40, ("name", "title", "rate"), ("title",), 12)
    {'name': 9, 'title': 28}
    """
    left, found = width, dict[str, int]()
    bending = [heading for heading in order if heading in flexible]
    for heading in order:
        needed = min(wide[heading], least) if heading in flexible else wide[heading]
        if found and needed > left:
            continue
        found[heading] = needed
        if heading in flexible:
            bending.remove(heading)
            room = left - len(bending) * (least + BETWEEN)
            found[heading] = min(wide[heading], max(room, needed))
        left -= found[heading] + BETWEEN
    return {heading: found[heading] for heading in wide if heading in found}


def left_out(headings: Sequence[str]) -> str:
    """Return the line that tells which columns had no room."""
    return f"no room for: {', '.join(headings)} (a wider terminal or --json has all)"
