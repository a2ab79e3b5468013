"""The JSON Schema of spaces, for editors: that of specs, with choices wherever values stand."""

from __future__ import annotations

from typing import Any, Final

from mnemic.dsl.schema import DIALECT
from mnemic.dsl.schema import schema as of_specs
from mnemic.dsl.spec import LANGUAGE
from mnemic.search.space.choices import KEPT
from mnemic.search.space.settings import SpaceEntry

IDENTITY: Final = f"urn:mnemic:space:{LANGUAGE}"

_RANGE: Final = {
    "type": "object",
    "properties": {
        "range": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
        "log": {"type": "boolean"},
        "step": {"type": "number", "exclusiveMinimum": 0},
    },
    "required": ["range"],
    "additionalProperties": False,
}


def schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a space as it is written."""
    specs, settings = of_specs(), SpaceEntry.model_json_schema(by_alias=True, mode="validation")
    opener = _Opener(specs.get("$defs", {}))
    properties = {
        name: given if name in KEPT or name == "extends" else opener.opened(opener.inside(given))
        for name, given in specs["properties"].items()
    }
    defined = {name: opener.inside(given) for name, given in specs.get("$defs", {}).items()}
    return {
        "$schema": DIALECT,
        "$id": IDENTITY,
        "title": "mnemic space",
        "type": "object",
        "properties": {**properties, "search": settings["properties"]["search"]},
        "required": ["name", "search"],
        "additionalProperties": False,
        "$defs": {**settings.get("$defs", {}), **defined, "Range": _RANGE},
    }


class _Opener:
    """Opens schemas, so that choices may stand where values do."""

    def __init__(self, defined: dict[str, Any]) -> None:
        self.defined = defined

    def inside(self, given: Any) -> Any:
        """Return the schema with every property and item within it opened to choices."""
        if isinstance(given, list):
            return [self.inside(item) for item in given]
        if not isinstance(given, dict):
            return given
        found = {key: self.inside(item) for key, item in given.items()}
        if isinstance(given.get("properties"), dict):
            found["properties"] = {
                name: item if name == "kind" else self.opened(self.inside(item))
                for name, item in given["properties"].items()
            }
        for key in ("items", "additionalProperties"):
            if isinstance(given.get(key), dict):
                found[key] = self.opened(self.inside(given[key]))
        return found

    def opened(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return a schema that allows what this one does, or a choice of it."""
        numbers = [{"$ref": "#/$defs/Range"}] if self.numeric(given) else []
        options = {"anyOf": [given, *numbers]}
        choose = {
            "type": "object",
            "properties": {"choose": {"type": "array", "minItems": 1, "items": options}},
            "required": ["choose"],
            "additionalProperties": False,
        }
        return {"anyOf": [given, choose, *numbers]}

    def numeric(self, given: dict[str, Any]) -> bool:
        """Return whether a number may stand here."""
        kinds = [given, *given.get("anyOf", [])]
        return any(kind.get("type") in ("number", "integer") for kind in kinds)
