"""The page of claims, docs/claims.md: each with its verdict, its parts and its picture."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from mnemic.claims.catalogue import CLAIMS
from mnemic.claims.claim import Claim
from mnemic.claims.outcome import VERDICTS, Outcome, Part
from mnemic.claims.recorded import outcome

HEAD = """# What the papers claim, reproduced

`mnemic reproduce` lists the claims that are checked, `mnemic reproduce NAME` runs one again: the
systems are compiled from their specs, seeds and sizes are told, and the verdict follows from the
numbers by a rule in the code. Not every rule was written before its numbers were seen: in *swaps*,
*reachability* and *recall-trained* a system that does not solve the task is now *not settled* and
was *no*; so it is where runs mix at 32 pairs; *functions* takes a factor of 1.5 for "much harder";
*switching* chooses softmax's bandwidth on the training stream since a first run in which it
came out worst; and *needles* compares in longer texts only models that have learned the shorter. A
claim *holds in part* where some of its sentences do; ± is half of the 95 % interval over seeds.
`-o picture.svg` draws it, `--record` keeps the outcome in the package and `--markdown` prints this
page from what is kept. Tables of the papers stand beside ours; of figures, of which we have no
numbers, what the papers say about them.

"""


def page() -> str:
    """Return the page, from the outcomes that are kept."""
    rows = [(claim, outcome(claim.name)) for claim in CLAIMS]
    return HEAD + _summary(rows) + "".join(_section(claim, found) for claim, found in rows)


def counts() -> dict[str, int]:
    """Return how many claims have which verdict; those that were not run under ``not run``."""
    found = [outcome(claim.name) for claim in CLAIMS]
    count = Counter("not run" if one is None else one.verdict for one in found)
    return {verdict: count[verdict] for verdict in (*VERDICTS, "not run")}


def _summary(rows: list[tuple[Claim, Outcome | None]]) -> str:
    told = ", ".join(f"{number} {verdict}" for verdict, number in counts().items())
    lines = [f"{len(rows)} claims: {told}.\n", "| claim | verdict | source | seconds |",
             "| --- | --- | --- | --- |"]  # fmt: skip
    for claim, found in rows:
        verdict = "not run" if found is None else found.verdict
        seconds = "" if found is None else f"{found.seconds:.0f}"
        lines.append(f"| [{claim.name}](#{claim.name}) | {verdict} | {claim.source} | {seconds} |")
    return "\n".join(lines) + "\n\n"


def _section(claim: Claim, found: Outcome | None) -> str:
    lines = [f"## {claim.name}\n", f"*{claim.says}* ({claim.source}). Here: {claim.sizes}.\n"]
    if found is None:
        lines.append("Not run yet.\n")
    else:
        lines.append(f"**{found.verdict.capitalize()}**, in {found.seconds:.0f} s with "
                     f"{found.setting}.\n")  # fmt: skip
        lines += [_part(part) for part in found.parts]
        lines += _table(found)
        lines.append(f"\n![{claim.name}](images/claims/{claim.name}.svg)\n")
        lines.append(f"Sizes: {sizes(found)}. Again: `{command(claim)} --record`.\n")
    return "\n".join(lines) + "\n"


def _part(part: Part) -> str:
    mark = {True: "yes", False: "no", None: "open"}[part.holds]
    why = f" Why: {part.why}." if part.why and not part.holds else ""
    return f"- {mark}: {part.says}. Seen: {part.seen}.{why}"


def table(found: Outcome) -> tuple[Mapping[str, Any], ...]:
    """Return the rows that have a number of the paper beside ours."""
    return tuple(row for row in found.rows if "printed" in row)


def _table(found: Outcome) -> list[str]:
    rows = table(found)
    if not rows:
        return []
    lines = ["", "| " + " | ".join(rows[0]) + " |", "|" + " --- |" * len(rows[0])]
    return lines + ["| " + " | ".join(map(str, row.values())) + " |" for row in rows]


def command(claim: Claim) -> str:
    """Return the command that runs a claim again."""
    return f"mnemic reproduce {claim.name}"


def sizes(found: Outcome) -> str:
    """Return the sizes of a run on one line."""
    return _listed(found.sizes)


def _listed(told: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} ({_listed(value)})" if isinstance(value, Mapping) else f"{name} {value}"
        for name, value in told.items()
    )
