"""Figures, their goals, and the table of both."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class Figure:
    """One measured figure.

    Args:
        what: was measured.
        value: in ``unit`` (``x`` for a ratio).
        unit: of the value and the goal.
        detail: the numbers behind it.
        least: the goal, where more is better.
        most: the goal, where less is better.
    """

    what: str
    value: float
    unit: str
    detail: str = ""
    least: float | None = None
    most: float | None = None

    @property
    def goal(self) -> str:
        """The goal of the figure in words, or nothing."""
        if self.least is not None:
            return f">= {self.least:g} {self.unit}"
        return "" if self.most is None else f"<= {self.most:g} {self.unit}"

    @property
    def met(self) -> bool | None:
        """Whether the figure meets its goal; None without one."""
        if self.least is not None:
            return self.value >= self.least
        return None if self.most is None else self.value <= self.most


@dataclass(frozen=True)
class Report:
    """All figures, and what could not be measured."""

    figures: tuple[Figure, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return figures and notes as plain data."""
        return {
            "figures": [{**asdict(f), "goal": f.goal, "met": f.met} for f in self.figures],
            "notes": list(self.notes),
        }

    def table(self) -> "Table":
        """Return the figures as a table for a terminal."""
        from rich.table import Table

        table = Table(box=None, pad_edge=False)
        for heading, justify in (("what", "left"), ("value", "right"), ("goal", "left"),
                                 ("", "left"), ("detail", "left")):  # fmt: skip
            table.add_column(heading, justify=justify)  # type: ignore[arg-type]
        for f in self.figures:
            verdict = {True: "met", False: "MISSED", None: ""}[f.met]
            table.add_row(f.what, f"{f.value:.3g} {f.unit}", f.goal, verdict, f.detail)
        return table
