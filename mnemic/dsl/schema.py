"""The JSON Schema of the language, for editors."""

from typing import Any, Final

from mnemic.dsl.spec import LANGUAGE, Spec

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
IDENTITY: Final = f"urn:mnemic:spec:{LANGUAGE}"
PAGE: Final = "docs/language.md"
"""Where the repository tells the language."""


def schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a spec as it is written, short forms included.

    It covers words, keys, types and bounds; only ``check`` tests what may be combined. A spec that
    extends another may change a field of an inherited kind without repeating the kind, but the
    schema does not support that: there, write the kind out.
    """
    described = Spec.model_json_schema(by_alias=True, mode="validation")
    described["properties"] = {**described["properties"], "extends": _EXTENDS}
    return {
        "$schema": DIALECT,
        "$id": IDENTITY,
        "$comment": f"{PAGE} tells every entry, with examples that run",
        **described,
        "title": "mnemic spec",
    }


_EXTENDS: Final = {
    "type": "string",
    "minLength": 1,
    "title": "Extends",
    "description": "a base: the name of a packaged spec, or a path relative to this file",
}
