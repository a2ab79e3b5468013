"""The page of the language: what the models say, with an example of everything that derives."""

from pathlib import Path
from typing import Any

import pytest

import mnemic
from mnemic.compiler.uncompiled import refuse
from mnemic.dsl.axis import Entry, Family
from mnemic.dsl.examples import EXAMPLES
from mnemic.dsl.load import load
from mnemic.dsl.reading import read_yaml
from mnemic.dsl.reference import example_of, page, sections
from mnemic.dsl.schema import schema
from mnemic.dsl.shape import Shape
from mnemic.dsl.spec import Spec

PAGE = Path(__file__).parents[2] / "docs" / "language.md"


def written(key: str, entry: type[Entry]) -> list[dict[str, Any]]:
    """The examples of a place as specs."""
    texts = example_of(key, entry).split("\n---\n")
    return [{"name": "mine", **read_yaml(text, key).data} for text in texts]


def test_the_page_is_what_the_models_say(pytestconfig: pytest.Config) -> None:
    if pytestconfig.getoption("--regenerate"):
        PAGE.write_text(page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page()


def test_every_kind_and_entry_has_an_example_and_no_other() -> None:
    places = [key for key, entry in sections() if not issubclass(entry, Family)]
    assert list(EXAMPLES) == sorted(EXAMPLES, key=places.index)
    assert set(EXAMPLES) == set(places)
    kinds = [entry for _, entry in sections() if issubclass(entry, Family)]
    assert [kind for kind in kinds if not vars(kind).get("example")] == []


@pytest.mark.parametrize(("key", "entry"), list(sections()))
def test_an_example_has_every_option(key: str, entry: type[Entry]) -> None:
    used = {name for spec in written(key, entry) for name in _options(spec, entry)}
    told = {f.alias or name for name, f in entry.model_fields.items() if name != "kind"}
    assert told <= used


def _options(spec: dict[str, Any], entry: type[Entry]) -> set[str]:
    """The options of all entries of one model in a spec as written."""
    found: set[str] = set()

    def look(shape: Shape, data: Any) -> None:
        if isinstance(data, dict):
            data = shape.long(data) if shape.entry else data
            shape = shape.of_kind(data.get("kind")) if shape.family else shape
            if shape.entry is entry:
                found.update(data)
            for name, inner in data.items():
                look(shape.at(name), inner)
        elif isinstance(data, list):
            for i, inner in enumerate(data):
                look(shape.at(i), inner)

    look(Shape(Spec), spec)
    return found


@pytest.mark.parametrize(("key", "entry"), list(sections()))
def test_an_example_derives(key: str, entry: type[Entry]) -> None:
    for spec in written(key, entry):
        rule = mnemic.derive(spec)
        refuse(rule)  # and compiles
        kind = key.partition(": ")
        if kind[2]:
            whole: Any = load(spec)
            for step in kind[0].split("."):
                whole = getattr(whole, "global_" if step == "global" else step)
            assert whole.word() == kind[2]


def test_the_schema_describes_every_property() -> None:
    described = schema()
    models = {"Spec": described, **described["$defs"]}
    bare = [
        f"{model}.{name}"
        for model, told in models.items()
        for name, option in told.get("properties", {}).items()
        if not option.get("description")
    ]
    assert bare == []


def test_the_schema_names_a_page_that_is_there() -> None:
    named = schema()["$comment"].split()[0]
    assert (Path(__file__).parents[2] / named).is_file()
    text = str(schema())
    assert ".md" not in text.replace(named, "").replace("docs/language.md", "")
