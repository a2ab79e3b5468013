"""What comes with the package of claims and of capacity, as pages show it."""

import re
from dataclasses import fields
from typing import Any

from mnemic.capacity import Held
from mnemic.capacity import recorded as capacities
from mnemic.claims import recorded as outcomes
from mnemic.claims.claim import Claim
from mnemic.claims.page import command, sizes, table
from mnemic.dsl.spec import Spec


def reproduced(claim: Claim, *, drawn: bool = True) -> dict[str, Any]:
    """Return a claim with its kept outcome, its command and, where ``drawn``, its picture."""
    found = outcomes.outcome(claim.name)
    told: dict[str, Any] = {
        "claim": claim, "found": found, "command": command(claim),
        "says": claim.says[0].upper() + claim.says[1:],
        "verdict": "not run" if found is None else found.verdict,
    }  # fmt: skip
    if found is not None and drawn:
        from mnemic.claims.drawing import svg

        told |= {"svg": _element(svg(found)), "table": table(found), "sizes": sizes(found)}
    return told


def capacity(spec: Spec) -> dict[str, Any] | None:
    """Return what was measured of how much a memory holds; None where nothing was.

    ``words`` has the pairs in words, ``at`` tells the share recalled at the largest number of pairs
    tried up to some number.
    """
    found = capacities.of(spec)
    if found is None or "refused" in found:
        return found

    def at(count: int) -> str:
        tried = [i for i, n in enumerate(found["pairs"]) if n <= count]
        return f"{found['recalled'][tried[-1]]:.2f}" if tried else ""

    measured = Held(**{f.name: found[f.name] for f in fields(Held)})
    return {**found, "at": at, "words": measured.held_in_words}


def _element(svg: str) -> str:
    """Return the SVG as a page's element, without metadata, a little smaller if room is short.

    What is still wider than the page is scrolled.
    """
    whole = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.S)
    found = re.search(r'width="([0-9.]+)pt" height="[0-9.]+pt"', whole)
    assert found is not None
    wide = float(found[1])
    style = f'style="width: min(100%, {wide:.0f}pt); min-width: {0.62 * wide:.0f}pt"'
    return whole.replace(found[0], style, 1)
