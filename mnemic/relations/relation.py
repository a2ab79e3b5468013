"""One relation of two systems: which contains which, at what values, under what change."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

Kind = Literal["equal", "equal under a change", "special case", "limit", "approximation", "meeting"]

WORDS: dict[Kind, str] = {
    "equal": "is the same rule as",
    "equal under a change": "is, under a change of coefficients,",
    "special case": "is a special case of",
    "limit": "is a limit of",
    "approximation": "is what this approximates without its chunk anchor:",
    "meeting": "is",
}


@dataclass(frozen=True)
class Relation:
    """``inner`` is ``outer`` at the values ``at``, its coefficients as ``change`` tells.

    In a meeting neither contains the other: ``inner`` at ``where`` is ``outer`` at ``at``. ``back``
    is the change in the other direction where the two are equal. ``how`` says whether
    algebra settled it or random numbers of 30 digits; ``error`` is the largest difference of both
    rules' outputs, run token by token in float64 on random inputs, relative to the largest output;
    ``notes`` what the rules alone do not tell: another block, another range of a coefficient.
    """

    inner: str
    outer: str
    kind: Kind
    at: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    change: tuple[str, ...] = ()
    back: tuple[str, ...] = ()
    how: str = "algebra"
    error: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def both_ways(self) -> bool:
        """Whether each system is the other."""
        return self.kind in ("equal", "equal under a change")

    @property
    def substitution(self) -> str:
        """The values and the change in one line."""
        return ", ".join((*self.at, *self.change))

    def __str__(self) -> str:
        first = f"{self.inner} at {', '.join(self.where)}" if self.where else self.inner
        line = f"{first} {WORDS[self.kind]} {self.outer}"
        line += f": {self.substitution}" if self.substitution else ""
        return line + (f" ({'; '.join(self.notes)})" if self.notes else "")

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> "Relation":
        """Return the relation that ``to_json`` told; other keys are ignored."""
        known = {f.name for f in fields(cls)}
        plain: dict[str, Any] = {
            key: tuple(x) if isinstance(x, list) else x for key, x in row.items() if key in known
        }
        return cls(**plain)

    def to_json(self) -> dict[str, Any]:
        """Return the relation as plain data."""
        return {key: list(x) if isinstance(x, tuple) else x for key, x in asdict(self).items()}
