"""Verdicts on printed equations, found once and then read from disk."""

import hashlib
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from mnemic.audit import recorded
from mnemic.audit.entry import Equation, Paper
from mnemic.codegen import cache
from mnemic.codegen.generator import generator

Line = tuple[Paper, Equation]
Found = dict[str, Any]


def judged(lines: Iterable[Line], told: Callable[[str], None] = lambda line: None) -> list[Found]:
    """Return the verdict on each line as plain data; ``told`` hears of each before it is judged."""
    place = _place()
    known = _read(place)
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
        _keep(place, {**_read(place), **new})
    return found


def _place() -> Path:
    return cache.root() / generator() / f"audit-{_sources()}.json"


def _sources() -> str:
    """Return a hash of what judges, which the generator's own does not cover."""
    from mnemic import audit

    whole = hashlib.sha256()
    for path in sorted(Path(audit.__file__).parent.glob("*.py")):
        whole.update(path.read_bytes())
    return whole.hexdigest()[:16]


def _read(place: Path) -> dict[str, Found]:
    try:
        found = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _keep(place: Path, known: dict[str, Found]) -> None:
    """Write the verdicts whole or not at all; where they cannot be kept they are found again."""
    aside = place.with_suffix(f".{os.getpid()}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(json.dumps(known), encoding="utf-8")
        os.replace(aside, place)
    except OSError:
        aside.unlink(missing_ok=True)
