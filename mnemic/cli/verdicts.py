"""Verdicts on printed equations, found once and then read from disk."""

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from mnemic.audit import recorded
from mnemic.audit.entry import Equation, Paper
from mnemic.cli.facts import read_known, write_known
from mnemic.codegen import cache
from mnemic.codegen.generator import generator

Line = tuple[Paper, Equation]
Found = dict[str, Any]


def judged(lines: Iterable[Line], told: Callable[[str], None] = lambda line: None) -> list[Found]:
    """Return the verdict on each line as plain data; ``told`` hears of each before it is judged."""
    place = cache.root() / generator() / f"audit-{_sources()}.json"
    known = read_known(place)
    new: dict[str, Found] = {}
    found = []
    for paper, line in lines:
        key = recorded.key(paper, line)
        if key not in known and key not in new:
            told(f"{paper.id} {line.where}")
            from mnemic.audit.judge import judge

            new[key] = judge(paper, line).to_json()
        found.append(known[key] if key in known else new[key])
    if new:
        write_known(place, {**read_known(place), **new})
    return found


def _sources() -> str:
    """Return a hash of what judges, which the generator's own does not cover."""
    from mnemic import audit

    whole = hashlib.sha256()
    for path in sorted(Path(audit.__file__).parent.glob("*.py")):
        whole.update(path.read_bytes())
    return whole.hexdigest()[:16]
