"""Measure what every packaged memory holds, and keep it in the package for the site.

    python scripts/capacities.py            # all specs: some minutes
    python scripts/capacities.py gla rls    # these anew, the others as they are kept

Each is what ``mnemic capacity NAME --dim 16 --pairs 64 --draws 4`` measures.
"""

import json
import sys
from typing import Any

from mnemic import pipeline
from mnemic.capacity import held
from mnemic.capacity.recorded import DIM, DRAWS, FILE, PAIRS, write
from mnemic.dsl.catalogue import names
from mnemic.dsl.hashing import spec_hash
from mnemic.errors import MnemicError


def measured(name: str) -> dict[str, Any]:
    """Return a memory's row, or why it has none."""
    spec = pipeline.read(name)
    try:
        found = held(pipeline.compile(spec), DIM, PAIRS, DRAWS).to_json()
    except MnemicError as refused:
        return {"hash": spec_hash(spec), "refused": str(refused)}
    rounded = {key: _rounded(value) for key, value in found.items()}
    return {"hash": spec_hash(spec), **rounded}


def _rounded(value: Any) -> Any:
    return [round(x, 4) for x in value] if isinstance(value, (list, tuple)) else value


def main(chosen: list[str]) -> None:
    """Measure the chosen specs, all of them for none."""
    kept = json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {}
    rows = {name: row for name, row in kept.items() if chosen and name in names()}
    for name in chosen or names():
        rows[name] = measured(name)
        print(name, rows[name].get("held", rows[name].get("refused")), flush=True)
        write(rows)


if __name__ == "__main__":
    main(sys.argv[1:])
