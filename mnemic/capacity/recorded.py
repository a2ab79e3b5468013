"""What packaged memories hold, as it was measured: it comes with the package.

``python scripts/capacities.py`` writes it anew.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from mnemic.dsl.hashing import spec_hash
from mnemic.dsl.spec import Spec
from mnemic.models.files import replacing

FILE: Final = Path(__file__).with_name("measured.json")
DIM, PAIRS, DRAWS = 16, 64, 4
"""Channels of the one head, the most pairs, and the draws of every measurement kept."""


@cache
def _read_file() -> Mapping[str, Any]:
    if not FILE.is_file():
        return {}
    found = json.loads(FILE.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def of(spec: Spec) -> dict[str, Any] | None:
    """Return what was measured of a spec as it is now; None where nothing was.

    Either what `Held.to_json` tells, or ``refused`` with the reason why it has no number.
    """
    found = _read_file().get(spec.name)
    return None if found is None or found["hash"] != spec_hash(spec) else dict(found)


def write(rows: Mapping[str, Any]) -> None:
    """Keep measurements by name, each with the hash of the spec that was measured."""
    lines = (f"{json.dumps(name)}: {json.dumps(rows[name])}" for name in sorted(rows))
    with replacing(FILE) as beside:
        beside.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
