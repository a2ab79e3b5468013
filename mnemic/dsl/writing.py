"""A spec back to YAML, in its short form."""

import re
from collections.abc import Mapping
from typing import Any, Final

import yaml

from mnemic.dsl.axis import Entry, Family
from mnemic.dsl.coefficients import WORDS, Coefficient
from mnemic.dsl.keys import Key
from mnemic.dsl.optimizer import OptimizerEntry
from mnemic.dsl.retention import RetentionEntry
from mnemic.dsl.spec import LANGUAGE, Spec

SCHEMA_FILE: Final = "mnemic.schema.json"

_PLAIN: Final = re.compile(r"(?!(?:null|true|false|yes|no|on|off|y|n)$)[a-z][\w. -]*\w|[a-z]", re.I)


def to_yaml(spec: Spec, schema: str = SCHEMA_FILE) -> str:
    """Return the spec as YAML that loads to an equal spec; ``schema`` is for an editor.

    >>> print(to_yaml(Spec(name="mine"), "../mnemic.schema.json"), end="")
    # yaml-language-server: $schema=../mnemic.schema.json
    mnemic: 1
    name: mine
    """
    return f"# yaml-language-server: $schema={schema}\n{plain_yaml(spec)}"


def plain_yaml(spec: Spec) -> str:
    """Return the spec as YAML that loads to an equal spec, without a line for an editor."""
    return yaml.dump(short(spec), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=4096)


def short(spec: Spec) -> dict[str, Any]:
    """Return the spec as plain data in its short form, defaults left out."""
    return {"mnemic": LANGUAGE, **_fields(spec)}


def _short(value: Any) -> Any:
    """Return the shortest form of a value, as plain data."""
    match value:
        case Coefficient():
            return _coefficient(value)
        case Key():
            return "own" if value.own else value.expr
        case Family():
            return _kind(value)
        case OptimizerEntry():
            return _word(_fields(value), "method", value.method)
        case RetentionEntry():
            return _word(_fields(value), "local", None)
        case Entry():
            return _fields(value)
        case Mapping():
            return {key: _short(item) for key, item in value.items()}
        case tuple():
            return [_short(item) for item in value]
    return value


def _fields(entry: Entry) -> dict[str, Any]:
    """Return the fields that differ from their defaults, by the names that a spec uses."""
    return {
        field.alias or name: _short(getattr(entry, name))
        for name, field in type(entry).model_fields.items()
        if getattr(entry, name) != field.get_default(call_default_factory=True)
    }


def _kind(entry: Family) -> Any:
    """Return a kind's word, or a mapping whose kind is left out where a field tells it."""
    given = {name: value for name, value in _fields(entry).items() if name != "kind"}
    if not given:
        return entry.word()
    return given if entry.shorthand in given else {"kind": entry.word(), **given}


def _word(given: dict[str, Any], key: str, default: str | None) -> Any:
    """Return the word alone where nothing but ``key`` is given, else the mapping as it is."""
    word = given.get(key, default)
    return word if set(given) <= {key} and isinstance(word, str) else given


def _coefficient(coefficient: Coefficient) -> Any:
    given = _fields(coefficient)
    if set(given) == {"value"}:
        return given["value"]
    if set(given) == {"expr"} and given["expr"] not in WORDS:
        return given["expr"]
    return next((word for word, meaning in WORDS.items() if meaning == given), given)


class _Dumper(yaml.SafeDumper):
    """Quotes every string that YAML 1.1 or 1.2 might read as something else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _string(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    quoted = "|" if "\n" in text.rstrip("\n") else '"'
    style = None if _PLAIN.fullmatch(text) else quoted
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _string)
