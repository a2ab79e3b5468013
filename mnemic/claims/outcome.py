"""The outcome of reproducing a claim: parts that hold or do not, rows, and panels to draw."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Verdict = Literal["holds", "holds in part", "does not hold", "not settled"]
VERDICTS: tuple[Verdict, ...] = ("holds", "holds in part", "does not hold", "not settled")


@dataclass(frozen=True)
class Part:
    """One sentence that is true or false of the numbers; ``holds`` is None where they do not tell.

    ``seen`` has the numbers in words, ``why`` the reason where the sentence does not hold.
    """

    says: str
    holds: bool | None
    seen: str
    why: str = ""


@dataclass(frozen=True)
class Curve:
    """A line of a panel: points, and how far each may be off; ``printed`` if it is the paper's."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    spread: tuple[float, ...] = ()
    printed: bool = False


@dataclass(frozen=True)
class Panel:
    """One pair of axes; ``log`` names those that are logarithmic."""

    title: str
    x: str
    y: str
    curves: tuple[Curve, ...]
    log: str = ""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a claim; ``sizes`` and ``seeds`` say what was run, ``seconds`` how long."""

    claim: str
    parts: tuple[Part, ...]
    panels: tuple[Panel, ...]
    sizes: Mapping[str, Any]
    seconds: float = 0.0
    setting: str = ""
    rows: tuple[Mapping[str, Any], ...] = field(default=())

    @property
    def verdict(self) -> Verdict:
        """The verdict on the claim, by whether its parts hold."""
        return judged(part.holds for part in self.parts)

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as plain data, with its verdict."""
        return {**asdict(self), "verdict": self.verdict}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Outcome":
        """Return the outcome of the data that ``to_json`` returned."""
        panels = tuple(
            Panel(**{**panel, "curves": tuple(_curve(c) for c in panel["curves"])})
            for panel in data["panels"]
        )
        kept = {name: value for name, value in data.items() if name != "verdict"}
        parts = tuple(Part(**part) for part in data["parts"])
        return cls(**{**kept, "parts": parts, "panels": panels, "rows": tuple(data["rows"])})


def judged(parts: Iterable[bool | None]) -> Verdict:
    """Return the verdict on a claim whose parts hold, do not, or are open.

    >>> judged([True, True]), judged([True, False]), judged([False]), judged([True, None])
    ('holds', 'holds in part', 'does not hold', 'not settled')
    """
    told = list(parts)
    if not told or None in told:
        return "not settled"
    if all(told):
        return "holds"
    return "holds in part" if any(told) else "does not hold"


def _curve(data: Mapping[str, Any]) -> Curve:
    plain: dict[str, Any] = {key: tuple(x) if isinstance(x, list) else x for key, x in data.items()}
    return Curve(**plain)
