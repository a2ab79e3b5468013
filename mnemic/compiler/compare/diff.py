"""Two rules compared: the specs' axes, the rules' terms, class and costs, and a verdict.

The verdict is found by algebra on the canonical forms and confirmed on random numbers, never by
names.
"""

from dataclasses import dataclass, replace
from typing import Any

from mnemic.compiler.compare.differing_entries import Row, axes
from mnemic.compiler.compare.verdict import SECONDS, Verdict, judge
from mnemic.compiler.explain.cost import cost
from mnemic.compiler.explain.equations import terms
from mnemic.compiler.explain.printing import text
from mnemic.compiler.rule import Rule


@dataclass(frozen=True)
class Difference:
    """How rule ``a`` and rule ``b`` differ.

    ``axes`` lists the entries of the specs that differ, ``terms`` the parts of the rules,
    ``structure`` class, forms and costs of both.
    """

    a: str
    b: str
    axes: tuple[Row, ...]
    terms: tuple[Row, ...]
    structure: tuple[Row, ...]
    verdict: Verdict

    def __str__(self) -> str:
        """Return verdict and tables as lines of text, as ``mnemic diff`` prints them."""
        blocks = [f"A = {self.a}\nB = {self.b}", str(self.verdict)]
        for title, rows in (
            ("Specs", self.axes), ("Rules", self.terms), ("Structure", self.structure),
        ):  # fmt: skip
            if rows:
                blocks.append("\n".join([title, *_table(rows)]))
        return "\n\n".join(blocks) + "\n"

    __repr__ = __str__  # at a prompt the comparison is shown

    def to_json(self) -> dict[str, Any]:
        """Return the difference as plain data."""
        return {
            "a": self.a,
            "b": self.b,
            "axes": [row.to_json() for row in self.axes],
            "terms": [row.to_json() for row in self.terms],
            "structure": [row.to_json() for row in self.structure],
            "verdict": self.verdict.to_json(),
        }


def diff(a: Rule, b: Rule, *, seconds: float = SECONDS) -> Difference:
    """Compare two rules; the search for a change of coefficients ends after ``seconds``."""
    entries = axes(a.problem.spec, b.problem.spec)
    return Difference(
        a=a.name,
        b=b.name,
        axes=entries,
        terms=_differing(terms(a), terms(b)),
        structure=_structure(a, b),
        verdict=_with_block(judge(a, b, seconds), entries),
    )


def _with_block(verdict: Verdict, entries: tuple[Row, ...]) -> Verdict:
    """Return the verdict on two memories with a word on the blocks, where they differ."""
    parts = [row.name.removeprefix("block.") for row in entries if row.name.startswith("block")]
    if verdict.kind not in ("equal", "equal-under-change") or not parts:
        return verdict
    same = "same memory" if verdict.kind == "equal" else "same memory under a change"
    told = f"{same.capitalize()}, other block: {', '.join(parts)}. "
    return replace(verdict, sentence=told + verdict.sentence)


def _differing(a: dict[str, str], b: dict[str, str]) -> tuple[Row, ...]:
    pairs = {name: (a.get(name, "none"), b.get(name, "none")) for name in (*a, *b)}
    return tuple(Row(name, *pair) for name, pair in pairs.items() if pair[0] != pair[1])


def _structure(a: Rule, b: Rule) -> tuple[Row, ...]:
    rows = [
        Row("class", a.structure.kind, b.structure.kind),
        Row("forms", ", ".join(a.structure.forms), ", ".join(b.structure.forms)),
    ]
    for (name, one), (_, other) in zip(cost(a).rows(), cost(b).rows(), strict=True):
        rows.append(Row(name.replace("_", " "), text(one), text(other)))
    return tuple(rows)


def _table(rows: tuple[Row, ...]) -> list[str]:
    width = max(len(row.name) for row in rows)
    lines = []
    for row in rows:
        lines += [f"  {row.name:<{width}}  A  {row.a}", f"  {'':<{width}}  B  {row.b}"]
    return lines
