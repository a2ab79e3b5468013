"""The entries of two specs that differ, by dotted path, each in its short spelling."""

import json
from dataclasses import asdict, dataclass
from typing import Any

from mnemic.dsl.coefficients import WORDS
from mnemic.dsl.spec import Spec

APART = {"mnemic", "name", "title", "source", "published", "notes", "extends"}
"""Entries that say nothing about the memory."""


@dataclass(frozen=True)
class Row:
    """One thing that differs: its name, and what A and B have."""

    name: str
    a: str
    b: str

    def to_json(self) -> dict[str, str]:
        """Return the row as plain data."""
        return asdict(self)


def axes(a: Spec, b: Spec) -> tuple[Row, ...]:
    """Return what differs between two specs."""
    return tuple(_rows("", _plain(a), _plain(b)))


def _plain(spec: Spec) -> dict[str, Any]:
    data: dict[str, Any] = spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {key: value for key, value in data.items() if key not in APART}


def _rows(path: str, a: Any, b: Any) -> list[Row]:
    if a == b:
        return []
    if _deep(a) and _deep(b) and a.get("kind") == b.get("kind"):
        found = []
        for key in [*a, *(k for k in b if k not in a)]:
            found += _rows(f"{path}.{key}".lstrip("."), a.get(key), b.get(key))
        return found
    return [Row(path, short(a), short(b))]


def _deep(data: Any) -> bool:
    return isinstance(data, dict) and not _coefficient(data)


def _coefficient(data: dict[str, Any]) -> bool:
    return "per" in data


def short(data: Any) -> str:
    """Return an entry as one would write it: a number, a word, or flow YAML.

    >>> short({"from": "input", "per": "head"})
    'token'
    """
    if data is None:
        return "none"
    if isinstance(data, dict):
        data = _shortened(data)
    if isinstance(data, str):
        return data
    if isinstance(data, float):
        return f"{data:g}"
    return _flow(data)


def _shortened(data: dict[str, Any]) -> Any:
    if set(data) == {"kind"}:
        return data["kind"]
    if not _coefficient(data):
        return data
    kept = {k: v for k, v in data.items() if v is not False and (k, v) != ("per", "head")}
    for single in ("value", "expr"):
        if set(kept) == {single}:
            return kept[single]
    return next((word for word, meaning in WORDS.items() if meaning == kept), kept)


def _flow(data: Any) -> str:
    if isinstance(data, dict):
        return "{" + ", ".join(f"{k}: {short(v)}" for k, v in data.items()) + "}"
    if isinstance(data, list):
        return "[" + ", ".join(map(short, data)) + "]"
    return json.dumps(data)
