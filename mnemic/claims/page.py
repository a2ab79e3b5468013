"""The page of claims, docs/claims.md: each with its verdict, its parts and its picture."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from mnemic.claims.catalogue import CLAIMS
from mnemic.claims.claim import Claim
from mnemic.claims.outcome import VERDICTS, Outcome, Part
from mnemic.claims.recorded import outcome

HEAD = """# What the papers claim, reproduced

`mnemic reproduce` lists the claims, and `mnemic reproduce NAME` checks one: it compiles the systems
from their specs, runs them with the seeds and sizes that are given below, and applies a rule in the
code to the numbers. Each sentence of a claim is a line: *yes*, *no*, or *open* where the run does
not decide it. A claim *holds in part* if some of its sentences hold and others do not. ± is half of
the 95 % interval over seeds.

These rules were changed after we had seen numbers:

- *swaps*, *reachability* and *recall-trained*: a system that does not solve the task was counted as
  *no*, and is *open* now;
- *recall-trained* at 32 pairs: *open*, too, if some runs solve the task and others do not;
- *functions*: "much harder" means by a factor of 1.5;
- *switching*: softmax's bandwidth is chosen on the training stream, since a first run in which
  softmax came out worst;
- *needles*: only models that have learned the shorter texts are compared on longer ones.

`-o picture.svg` draws the outcome, `--record` keeps it in the package, and `--markdown` prints this
page from the outcomes that are kept. Where a paper has a table, its numbers stand beside ours;
where it has only a figure, what the paper says about it is checked.

"""

PLURAL: Final = {
    "holds": "hold",
    "holds in part": "hold in part",
    "does not hold": "do not hold",
}
"""The verb of a verdict on several claims."""


def page() -> str:
    """Return the page, from the outcomes that are kept."""
    rows = [(claim, outcome(claim.name)) for claim in CLAIMS]
    return HEAD + _summary(rows) + "".join(_section(claim, found) for claim, found in rows)


def counts() -> dict[str, int]:
    """Return how many claims have which verdict; those that were not run under ``not run``."""
    found = [outcome(claim.name) for claim in CLAIMS]
    count = Counter("not run" if one is None else one.verdict for one in found)
    return {verdict: count[verdict] for verdict in (*VERDICTS, "not run")}


def summary() -> str:
    """Return how many claims have which verdict, as one phrase; 'not run' only if some were not."""
    told = [
        f"{number} {verdict if number == 1 else PLURAL.get(verdict, verdict)}"
        for verdict, number in counts().items()
        if number or verdict in VERDICTS
    ]
    return f"{len(CLAIMS)} claims: {', '.join(told)}"


def _summary(rows: list[tuple[Claim, Outcome | None]]) -> str:
    lines = [f"{summary()}.\n", "| claim | verdict | source | seconds |",
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
