"""One relation of two systems: which contains which, at what values, under what change."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

Kind = Literal["equal", "equal under a change", "special case", "limit", "approximation"]

WORDS: dict[Kind, str] = {
    "equal": "is the same rule as",
    "equal under a change": "is, under a change of coefficients,",
    "special case": "is a special case of",
    "limit": "is a limit of",
    "approximation": "is what this approximates without its chunk anchor:",
}


@dataclass(frozen=True)
class Relation:
    """``inner`` is ``outer`` at the values ``at``, with ``outer``'s coefficients as ``change`` tells.

    ``back`` is the change in the other direction where the two are equal. ``how`` says whether
    algebra settled it or random numbers of 30 digits; ``error`` is the largest difference of both
    rules' outputs, run token by token in float64 on random inputs, relative to the largest output;
    ``range`` what the two allow a coefficient where that differs.
    """

    inner: str
    outer: str
    kind: Kind
    at: tuple[str, ...] = ()
    change: tuple[str, ...] = ()
    back: tuple[str, ...] = ()
    how: str = "algebra"
    error: float | None = None
    ranges: tuple[str, ...] = ()

    @property
    def both_ways(self) -> bool:
        """Whether each is the other."""
        return self.kind in ("equal", "equal under a change")

    @property
    def substitution(self) -> str:
        """The values and the change in one line."""
        return ", ".join((*self.at, *self.change))

    def __str__(self) -> str:
        line = f"{self.inner} {WORDS[self.kind]} {self.outer}"
        line += f": {self.substitution}" if self.substitution else ""
        return line + (f" ({'; '.join(self.ranges)})" if self.ranges else "")

    def to_json(self) -> dict[str, Any]:
        """Return the relation as plain data."""
        return {key: list(x) if isinstance(x, tuple) else x for key, x in asdict(self).items()}
