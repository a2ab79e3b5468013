"""Cache maps: to find the map of all systems takes minutes."""

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from mnemic import pipeline
from mnemic.codegen import cache
from mnemic.codegen.generator import generator
from mnemic.dsl.hashing import spec_hash
from mnemic.dsl.spec import Spec
from mnemic.models.files import replacing
from mnemic.relations.graph import Map, build


def remembered(
    specs: Mapping[str, Spec], told: Callable[[str], None] = lambda name: None,
    refused: Callable[[str], None] = lambda reason: None,
) -> Map:  # fmt: skip
    """Return the map of specs, cached by their hashes and by the code that finds it.

    ``told`` is called with each name before its relations are searched, ``refused`` with the
    reason if the map could not be stored.
    """
    place = _place(specs)
    with suppress(OSError, ValueError, KeyError, TypeError):
        return Map.from_json(json.loads(place.read_text(encoding="utf-8")))
    found = build({name: pipeline.derive(spec) for name, spec in specs.items()}, told)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with replacing(place) as beside:
            beside.write_text(json.dumps(found.to_json()), encoding="utf-8")
    except OSError as error:
        refused(f"the map is not remembered: {error}")
    return found


def _place(specs: Mapping[str, Spec]) -> Path:
    key = hashlib.sha256("".join(f"{n} {spec_hash(s)}" for n, s in specs.items()).encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        key.update(source.read_bytes())
    return cache.root() / generator() / f"map-{key.hexdigest()[:32]}.json"
