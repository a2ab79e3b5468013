"""The JSON Schema: what loads validates, what is misspelt does not."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import jsonschema
import pytest

from mnemic.dsl import catalogue
from mnemic.dsl.axis import refresh
from mnemic.dsl.bias import Bias
from mnemic.dsl.load import load
from mnemic.dsl.reading import read_file
from mnemic.dsl.schema import schema
from mnemic.dsl.writing import short
from mnemic.errors import InvalidSpec


def validator() -> Any:
    return jsonschema.Draft202012Validator(schema())


def valid(**spec: Any) -> bool:
    return bool(validator().is_valid({"name": "x", **spec}))


def test_the_schema_is_a_schema() -> None:
    described = schema()
    jsonschema.Draft202012Validator.check_schema(described)
    assert described["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert described["$id"] == "urn:mnemic:spec:1"
    assert described["title"] == "mnemic spec"
    assert described["required"] == ["name"]
    assert "Huber's loss" in described["$defs"]["Huber"]["description"]


def test_every_packaged_spec_validates_as_written_and_in_short_form() -> None:
    check = validator()
    for name in catalogue.names():
        check.validate(read_file(catalogue.find(name)).data)
        check.validate(short(load(name)))


@pytest.mark.parametrize(
    "spec",
    [
        {"bias": "l2", "memory": "diagonal", "features": "elu", "weights": "token"},
        {"optimizer": "muon", "retention": "kl", "window": "all", "keys": {"predict": "own"}},
        {"bias": {"expr": "e**4"}, "features": {"kernel": "s"}, "window": 4},
        {"retention": {"local": {"f-divergence": "chi2"}, "global": {"l2": 0.5}, "decay": "token"}},
        {"retention": {"global": {"elastic": {"l1": 1, "l2": "learned"}}, "constraint": "ball"}},
        {"memory": {"chain": ["linear", {"kind": "mlp"}], "every": [1, 4]}},
        {"optimizer": {"rate": {"normalized": True}, "anchor": "token"}, "extends": "deltanet"},
        {"retention": {"decay": {"from": "input", "per": "key", "init": 0.9}}},
    ],
)
def test_short_forms(spec: dict[str, Any]) -> None:
    assert valid(**spec)


@pytest.mark.parametrize(
    "spec",
    [
        {"bias": "hubber"},
        {"bias": "lp"},
        {"bias": {"p": 3}},
        {"bias": {"kind": "huber", "delte": 1}},
        {"bais": "l2"},
        {"retention": "kll"},
        {"retention": "bregman"},
        {"retention": {"dekay": 1}},
        {"retention": {"global_": "none"}},
        {"optimizer": "mon"},
        {"optimizer": {"anchor": "tokn"}},
        {"window": 0},
        {"window": "some"},
        {"memory": {"chain": ["lineer"], "every": [1]}},
        {"mnemic": 2},
        {"features": {"kind": "read", "kernel": "s"}},
        {"retention": {"decay": {"form": "input"}}},
    ],
)
def test_what_is_misspelt(spec: dict[str, Any]) -> None:
    assert not valid(**spec)
    with pytest.raises(InvalidSpec):
        load({"name": "x", **spec})


@pytest.fixture
def mine() -> Iterator[type[Bias]]:
    """A loss of one class, defined at run time, and gone after the test."""

    class Mine(Bias):
        """A fourth power."""

        kind: Literal["mine"] = "mine"

        @property
        def text(self) -> str:
            """e⁴/4."""
            return "e**4/4"

    refresh()
    yield Mine
    del Bias.registry["mine"]
    refresh()


def test_a_new_loss_is_one_class(mine: type[Bias]) -> None:
    spec = load({"name": "x", "bias": "mine"})
    assert isinstance(spec.bias, mine)
    assert spec.bias.text == "e**4/4"
    assert valid(bias="mine")
    assert schema()["$defs"]["Mine"]["description"] == "A fourth power."
    with pytest.raises(InvalidSpec, match="mine; did you mean 'mine'"):
        load({"name": "x", "bias": "mime"})


def test_and_is_gone() -> None:
    assert not valid(bias="mine")
    with pytest.raises(InvalidSpec, match="read 'mine'"):
        load({"name": "x", "bias": "mine"})


def test_the_schema_beside_the_specs_is_this_one() -> None:
    """``mnemic schema -o specs/schema.json`` writes what the editor's line of each spec names."""
    folder = Path(__file__).parents[2] / "specs"
    assert json.loads((folder / "schema.json").read_text(encoding="utf-8")) == schema()
    for path in folder.rglob("*.yaml"):
        first = path.read_text(encoding="utf-8").splitlines()[0]
        assert first == "# yaml-language-server: $schema=../schema.json", path
