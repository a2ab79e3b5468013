"""Verdicts that come with the package, so that `mnemic derive` need not judge again.

``verdicts.json`` is written by ``pytest tests/audit/test_recorded.py --regenerate`` and compared
with the judge by the same test. It is keyed by the whole entry: an entry that has changed since has
no verdict here.
"""

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any, Final

from mnemic.audit.catalogue import of_spec
from mnemic.audit.entry import Equation, Paper

FILE: Final = Path(__file__).parent / "verdicts.json"


def key(paper: Paper, line: Equation) -> str:
    """Return the name under which a line's verdict is kept: a digest of the whole entry."""
    return hashlib.sha256(f"{paper.id} {line.model_dump_json()}".encode()).hexdigest()[:32]


@cache
def _read_file() -> dict[str, dict[str, Any]]:
    found = json.loads(FILE.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def verdict(paper: Paper, line: Equation) -> dict[str, Any]:
    """Return a line's kept ``verdict`` and ``change``; both None where it has none."""
    return {"verdict": None, "change": None, **_read_file().get(key(paper, line), {})}


def about(name: str) -> list[dict[str, Any]]:
    """Return where each printed line about a packaged spec stands, and its verdict.

    Keys: ``paper``, ``where``, ``verdict``, ``change``, ``corrected``; no verdict is None.
    """
    return [
        {"paper": paper.id, "where": line.where, "corrected": line.corrected,
         **verdict(paper, line)}
        for paper, line in of_spec(name)
    ]  # fmt: skip


def describe_verdict(found: dict[str, Any]) -> str:
    """Return a kept verdict as one line of text."""
    kind = found["verdict"] or "not judged yet"
    more = f" {found['change']}" if found["change"] else ""
    right = f": should be {found['corrected']}" if kind == "differs" else ""
    return f"{found['paper']} {found['where']}: {kind}{more}{right}"
