"""The table of the packaged specs, and what the first tier's share of them covers."""

import json

import pytest
from packaged import CORE, FACTS, NAMES, TABLE, available, facts, operations
from tiers import CHANGED


def test_its_rows_of_some_specs_are_what_is_derived(request: pytest.FixtureRequest) -> None:
    """Of every fifth spec of its core, and of those whose code has changed."""
    if request.config.getoption("--regenerate"):
        pytest.skip("the table is being written anew")
    kept = json.loads(TABLE.read_text(encoding="utf-8"))
    for name in {*CORE[::5], *request.config.stash[CHANGED]}:
        assert json.loads(json.dumps(facts(name))) == kept[name], name


@pytest.mark.full
def test_the_table_is_what_is_derived(request: pytest.FixtureRequest) -> None:
    """``--regenerate`` writes it anew, a line a spec."""
    derived = {name: facts(name) for name in NAMES}
    if request.config.getoption("--regenerate"):
        lines = [f"{json.dumps(name)}: {json.dumps(row)}" for name, row in derived.items()]
        TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    assert json.loads(TABLE.read_text(encoding="utf-8")) == derived


def test_the_first_tier_has_every_kind_of_rule() -> None:
    """The compiler's own classes, how steps are taken, links, hybrids, states."""
    every = {trait for name in available() for trait in FACTS[name]["traits"]}
    assert {trait for name in CORE for trait in FACTS[name]["traits"]} == every


def test_the_first_tier_has_every_operation() -> None:
    every = {op for name in available() for op in operations(name)}
    assert {op for name in CORE for op in operations(name)} == every


def test_each_spec_of_the_first_tier_is_there() -> None:
    assert sorted({*CORE}) == [*CORE]
    assert {*CORE} <= {*available()}
