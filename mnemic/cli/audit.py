"""``mnemic audit``: printed equations against the problems that their papers state."""

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from mnemic.audit.catalogue import about, chosen, papers, specs
from mnemic.audit.entry import Equation, Paper
from mnemic.audit.verdict import KINDS
from mnemic.cli.arguments import AsJson
from mnemic.cli.output import console, echo, print_json, raw
from mnemic.cli.verdicts import Found, judged
from mnemic.dsl.spec import Spec
from mnemic.errors import CheckFailed, UsageError


def _complete(incomplete: str) -> list[str]:
    return [word for word in (*papers(), *specs()) if word.startswith(incomplete)]


Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="PAPER|SPEC", show_default=False, autocompletion=_complete,
                   help="Papers, packaged specs, or YAML files; everything without one."),
]  # fmt: skip
Full = Annotated[
    bool, typer.Option("--full", help="Tell lines that agree in full, too.", show_default=False)
]
Table = Annotated[
    bool, typer.Option("--markdown", help="As a table in Markdown.", show_default=False)
]


def audit(
    words: Words = None, full: Full = False, markdown: Table = False, as_json: AsJson = False
) -> None:  # fmt: skip
    """Judge the equations that papers print against the problems that the papers state.

    A problem is a loss, a retention and a step as the paper has them; no spec is read. What solves
    it is found by automatic differentiation and numerical minimisers and compared with the printed
    line on short decimals; algebra then proves it where it can. Verdicts: agrees; agrees under a
    change of coefficients, which is found; differs, with the term, a corrected line that agrees and
    numbers to compute with; no rule, with what it is; not judged, with the reason. Exit code 4
    where an entry fails: a comparison that says nothing, a correction that does not agree.

    JSON: {"verdicts": [{"paper", "where", "verdict", "change", "term", "rule", "problem",
    "corrected", "witness", "by", "fails", ...}], "counts": {verdict: number}, "coverage":
    {paper: {"numbered", "covered", "uncovered"}}}.
    """
    lines = _lines(tuple(words or ()))
    with console(stderr=True).status("judging") as status:
        found = judged(lines, lambda line: status.update(f"judging {line}"))
    if as_json:
        print_json({"verdicts": found, "counts": _counts(found), "coverage": _coverage(lines)})
    elif markdown:
        raw(_table(found))
    else:
        for verdict in found:
            echo(describe(verdict, full=full))
        _summary(found, lines)
    if failed := [f"{v['paper']} {v['where']}" for v in found if v["fails"]]:
        if as_json:
            raise typer.Exit(CheckFailed.exit_code)
        raise CheckFailed(f"entries that fail: {'; '.join(failed)}")


def _lines(words: tuple[str, ...]) -> tuple[tuple[Paper, Equation], ...]:
    """Return the lines of papers and packaged specs, and of a spec of one's own by its path."""
    from mnemic import pipeline

    paths = [word for word in words if Path(word).suffix in (".yaml", ".yml") or "/" in word]
    own = [line for path in paths for line in _printed_by(pipeline.read(path))]
    named = tuple(word for word in words if word not in paths)
    return (*(chosen(named) if named or not paths else ()), *own)


def _printed_by(spec: Spec) -> tuple[tuple[Paper, Equation], ...]:
    """Return the lines about a spec of one's own.

    Raises:
        UsageError: it has none.
    """
    lines = about(spec)
    if not lines:
        raise UsageError(
            f"{spec.name}: has no printed line to judge; a line and what it is to solve stand in "
            'its file as published: [{where: "(3)", rule: "W = W + eta*v @ k.T", '
            'problem: "L = norm(W @ k - v)**2/2; W = W - eta*gradient(L, W)"}]'
        )
    return lines


def describe(verdict: Found, *, full: bool = False) -> str:
    """Return a verdict as text: one line where it agrees, all that is known where it does not."""
    head = f"{verdict['paper']} {verdict['where']}: {_headline(verdict)}"
    if verdict["verdict"] in ("no rule", "not judged"):
        return head
    lines = [head]
    differs = verdict["verdict"] == "differs"
    if full or differs:
        lines += _labelled(verdict, ("printed", "stated", "problem", "term", "corrected"))
    if differs and verdict["witness"] is not None:
        lines += _witness(verdict["witness"])
    lines += _labelled(verdict, ("slip", "note") if full or differs else ("slip",))
    lines += [f"    FAILS: {reason}" for reason in verdict["fails"]]
    return "\n".join(lines)


def _headline(verdict: Found) -> str:
    kind = verdict["verdict"]
    if kind == "agrees under":
        return f"agrees under {verdict['change']}"
    if kind in ("no rule", "not judged"):
        return f"{kind}: {verdict['reason']}"
    return f"{kind} (by algebra and numbers)" if verdict["by"] != "numbers" else str(kind)


def _labelled(verdict: Found, keys: tuple[str, ...]) -> list[str]:
    return [f"    {key}: {verdict[key]}" for key in keys if verdict[key]]


def _witness(seen: dict[str, Any]) -> list[str]:
    given = ", ".join(f"{name} = {value}" for name, value in seen["given"].items())
    return [f"    with {given}", f"    printed {seen['name']} = {seen['printed']}",
            f"    derived {seen['name']} = {seen['derived']}"]  # fmt: skip


def _counts(found: list[Found]) -> dict[str, int]:
    count = Counter(v["verdict"] for v in found)
    return {kind: count[kind] for kind in KINDS}


def _coverage(lines: tuple[tuple[Paper, Equation], ...]) -> dict[str, dict[str, Any]]:
    every = {paper.id: paper for paper, _ in lines if paper.numbered}
    return {
        name: {"numbered": paper.numbered, "covered": len(paper.covered),
               "uncovered": list(paper.uncovered)}
        for name, paper in every.items()
    }  # fmt: skip


def _summary(found: list[Found], lines: tuple[tuple[Paper, Equation], ...]) -> None:
    counted = ", ".join(f"{number} {kind}" for kind, number in _counts(found).items())
    echo(f"{len(found)} printed lines: {counted}")
    for name, seen in _coverage(lines).items():
        left = f", without {seen['uncovered']}" if seen["uncovered"] else ""
        echo(f"{name}: {seen['covered']} of {seen['numbered']} numbered equations{left}")


def _table(found: list[Found]) -> str:
    """Return the verdicts as a table, a paper after another."""
    rows = ["| paper | equation | verdict |", "| --- | --- | --- |"]
    for verdict in found:
        why = [_headline(verdict)]
        if verdict["verdict"] == "differs":
            why += [f"should be `{verdict['corrected']}`", verdict["note"] or ""]
        text = ". ".join(part for part in why if part).replace("|", "\\|")
        rows.append(
            f"| {verdict['paper']} | {verdict['where'].replace('|', chr(92) + '|')} | {text} |"
        )
    return "\n".join(rows)
