"""Find the known system nearest to a spec that a search found, and their differences."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from mnemic.compiler.compare.diff import Difference, diff
from mnemic.compiler.compare.differing_entries import axes
from mnemic.dsl.catalogue import names
from mnemic.dsl.load import load
from mnemic.dsl.spec import Spec
from mnemic.pipeline import derive

SECONDS = 3.0
"""How long a change of coefficients is searched for."""


@dataclass(frozen=True)
class Nearest:
    """A packaged spec, the entries apart from the block's in which it differs, and the diff."""

    name: str
    apart: int
    difference: Difference

    @property
    def text(self) -> str:
        """The difference in words; the spec that was found is A in it."""
        return str(self.difference)


def nearest(spec: Spec) -> Nearest:
    """Find the packaged spec with the fewest differing entries; of ties the first by name."""
    apart = {name: _count_differences(spec, name) for name in names()}
    name = min(apart, key=lambda n: (apart[n], n))
    return Nearest(name, apart[name], diff(derive(spec), derive(load(name)), seconds=SECONDS))


def _count_differences(spec: Spec, name: str) -> int:
    return sum(not row.name.startswith("block") for row in axes(spec, _loaded(name)))


@cache
def _loaded(name: str) -> Spec:
    return load(name)
