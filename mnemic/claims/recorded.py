"""Outcomes that come with the package, so that their verdicts are told without running anything.

Each is what ``mnemic reproduce NAME --record`` wrote; ``docs/claims.md`` is made of them.
"""

import json
from pathlib import Path
from typing import Final

from mnemic.claims.outcome import Outcome
from mnemic.models.files import replacing

FOLDER: Final = Path(__file__).parent / "outcomes"


def outcome(name: str) -> Outcome | None:
    """Return the kept outcome of a claim; None where it has not been run."""
    path = FOLDER / f"{name}.json"
    if not path.is_file():
        return None
    return Outcome.from_json(json.loads(path.read_text(encoding="utf-8")))


def record(found: Outcome) -> Path:
    """Keep an outcome in the package, and return where."""
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{found.claim}.json"
    with replacing(path) as beside:
        text = json.dumps(found.to_json(), indent=1, ensure_ascii=False)
        beside.write_text(text + "\n", encoding="utf-8")
    return path
