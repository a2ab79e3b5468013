"""The verdict on a printed line."""

from dataclasses import dataclass, field
from typing import Any, Literal

from mnemic.audit.entry import Equation, Paper

Kind = Literal["agrees", "agrees under", "differs", "no rule", "not judged"]
KINDS: tuple[Kind, ...] = ("agrees", "agrees under", "differs", "no rule", "not judged")


@dataclass(frozen=True)
class Witness:
    """Numbers with which anyone can compute a printed line and its problem's solution."""

    given: dict[str, Any]
    name: str
    printed: Any
    derived: Any


@dataclass(frozen=True)
class Verdict:
    """One printed line, judged.

    ``fails`` says what is wrong with the entry itself: it cannot be computed, no number of it
    matters, or its correction does not agree. Then the audit fails, whatever the paper says.
    """

    paper: Paper
    line: Equation
    kind: Kind
    change: str | None = None
    term: str | None = None
    algebra: bool = False
    corrected: str | None = None
    witness: Witness | None = None
    reason: str | None = None
    fails: tuple[str, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as plain data."""
        seen = self.witness
        return {
            "paper": self.paper.id, "where": self.line.where, "number": list(self.line.number),
            "verdict": self.kind, "change": self.change, "term": self.term,
            "printed": self.line.printed, "rule": self.line.rule, "problem": self.line.problem,
            "stated": self.line.stated, "corrected": self.line.corrected,
            "corrected_agrees": self.corrected, "by": self.by, "slip": self.line.slip,
            "note": self.line.note, "reason": self.reason, "specs": list(self.line.specs),
            "witness": None if seen is None else {
                "given": seen.given, "name": seen.name, "printed": seen.printed,
                "derived": seen.derived,
            },
            "fails": list(self.fails),
        }  # fmt: skip

    @property
    def by(self) -> str | None:
        """How the verdict was reached."""
        if self.kind in ("no rule", "not judged"):
            return None
        return "algebra and numbers" if self.algebra else "numbers"
