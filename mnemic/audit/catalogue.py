"""The papers that the package audits, read from their files."""

from functools import cache
from pathlib import Path
from typing import Final

import yaml
from pydantic import ValidationError

from mnemic.audit.entry import Equation, Paper
from mnemic.dsl.spec import Published, Spec
from mnemic.errors import UsageError, nearest

FOLDER: Final = Path(__file__).parent / "papers"


@cache
def papers() -> dict[str, Paper]:
    """Return each paper by its name on the command line."""
    found = (read(path) for path in sorted(FOLDER.glob("*.yaml")))
    return {paper.id: paper for paper in found}


def read(path: Path) -> Paper:
    """Return the paper of a file; raise UsageError that names the place of what is wrong."""
    try:
        return Paper.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(step) for step in first["loc"])
        raise UsageError(f"{path.name}: {place}: {first['msg']}") from None


def of_spec(name: str) -> tuple[tuple[Paper, Equation], ...]:
    """Return the printed lines about a packaged spec, with their papers."""
    return tuple(
        (paper, line) for paper in papers().values() for line in paper.equations
        if name in line.specs
    )  # fmt: skip


def about(spec: Spec) -> tuple[tuple[Paper, Equation], ...]:
    """Return the papers' lines about a packaged spec, or those that the user's own spec quotes."""
    if found := of_spec(spec.name):
        return found
    own = Paper(id=spec.name, title=spec.title or spec.name, numbered=0, equations=())
    return tuple((own, _equation(entry)) for entry in spec.published)


def _equation(entry: Published) -> Equation:
    """Return a spec's own entry as a line to judge; without a problem it cannot be judged."""
    if entry.problem is None:
        why = "the entry states no problem"
        return Equation(where=entry.where, printed=entry.rule, note=entry.note, unjudged=why)
    return Equation(
        where=entry.where, printed=entry.rule, note=entry.note, rule=entry.rule,
        problem=entry.problem, corrected=entry.corrected,
    )  # fmt: skip


def chosen(words: tuple[str, ...]) -> tuple[tuple[Paper, Equation], ...]:
    """Return the lines of the named papers and about the named specs; all lines without names.

    Raises UsageError for a name that is neither, with the nearest one.
    """
    if not words:
        return tuple((paper, line) for paper in papers().values() for line in paper.equations)
    found: dict[int, tuple[Paper, Equation]] = {}
    for word in words:
        paper = papers().get(word)
        lines = tuple((paper, line) for line in paper.equations) if paper else of_spec(word)
        if not lines:
            _refuse(word)
        found |= {id(line): (paper, line) for paper, line in lines}
    return tuple(found.values())


def specs() -> tuple[str, ...]:
    """Return the names of all specs about which there is a printed line."""
    every = {name for paper in papers().values() for line in paper.equations for name in line.specs}
    return tuple(sorted(every))


def _refuse(word: str) -> None:
    near = nearest(word, (*papers(), *specs()))
    guess = f"did you mean '{near}'?" if near else f"papers: {', '.join(papers())}"
    raise UsageError(f"no paper and no printed equation's spec is called '{word[:80]}'; {guess}")
