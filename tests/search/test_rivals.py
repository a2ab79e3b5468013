"""What the best points are compared with: packaged specs within the budget, in the block."""

import pytest

from mnemic.dsl.catalogue import names
from mnemic.errors import InvalidSpec, UsageError
from mnemic.search.space.space import load_space
from mnemic.search.study import rivals as module
from mnemic.search.study.isolated import Answer, Failure
from mnemic.search.study.rivals import demand_names, rivals
from mnemic.search.study.work import Look

SEARCH = {
    "tasks": {"memorisation": "tiny"}, "model": {"dim": 8, "layers": 1},
    "rungs": [{"steps": 2}], "constraints": {"state_bytes": 100},
}  # fmt: skip


def space(*against: str, **block: object):
    told = {"mnemic": 1, "name": "s", "search": {**SEARCH, "confirm": {"against": list(against)}}}
    return load_space({**told, "block": block} if block else told)


def alone(*against: str):
    """A space that begins with no packaged spec."""
    told = {"start": [], "confirm": {"against": list(against)}}
    return load_space({"mnemic": 1, "name": "s", "search": {**SEARCH, **told}})


@pytest.fixture
def looked(monkeypatch):
    """In place of processes: gla has too large a state, dla cannot be built, two are one rule."""

    def isolated(function, spec, *arguments, **options):
        if spec.name == "dla":
            return Failure("memory", "out of memory")
        rule = "one" if spec.name in ("titans", "titans-mac") else spec.name
        return Answer(Look(rule, "affine", 1, 250 if spec.name == "gla" else 100, 1.0, None))

    monkeypatch.setattr(module, "isolated", isolated)


def test_all_are_those_within_the_budget(looked, tmp_path):
    lines: list[str] = []
    found = [spec.name for spec in rivals(space("all"), tmp_path, lines.append)]
    assert set(names()) - set(found) == {"gla", "dla", "titans-mac"}
    assert sorted(lines) == [
        "dla is left out: memory: out of memory",
        "gla is left out: state_bytes 2.5x of the budget",
        "titans-mac is left out: the same rule as titans in this block",
    ]


def test_one_that_is_named_is_taken_as_it_is_and_once(looked, tmp_path):
    found = [spec.name for spec in rivals(space("gla", "all"), tmp_path, lambda line: None)]
    assert found[0] == "gla"
    assert found.count("gla") == 1


def test_one_that_is_named_is_compared_with_for_those_of_its_rule(looked, tmp_path):
    found = [spec.name for spec in rivals(space("titans-mac", "all"), tmp_path, lambda line: None)]
    assert found[0] == "titans-mac"
    assert "titans" not in found


def test_those_that_the_block_contradicts_are_told(looked, tmp_path):
    lines: list[str] = []
    keyed = space("all", key="1")
    found = {spec.name for spec in rivals(keyed, tmp_path, lines.append)}
    assert "deltanet" not in found
    assert any(line.startswith("deltanet is left out: ") for line in lines)
    with pytest.raises(InvalidSpec, match="same key"):
        list(rivals(space("deltanet", key="1"), tmp_path, lines.append))


def test_two_of_one_name_are_refused(tmp_path):
    """Results are kept by name, and one would silently take the other's place."""
    own = tmp_path / "mine.yaml"
    own.write_text("mnemic: 1\nname: deltanet\nbias: {kind: huber, delta: 1}\n")
    with pytest.raises(
        UsageError, match=r"mine\.yaml: is called 'deltanet', as is a packaged spec"
    ):
        list(rivals(space(str(own), "all"), tmp_path, lambda line: None))
    second = tmp_path / "second.yaml"
    second.write_text("mnemic: 1\nname: deltanet\nbias: dot\n")
    with pytest.raises(UsageError, match=r"second\.yaml: is called 'deltanet', as is .*mine\.yaml"):
        demand_names(alone(str(own), str(second)))
    demand_names(alone(str(own), str(own), "gla"))


def test_another_name_is_refused():
    with pytest.raises(InvalidSpec, match=r"no packaged spec is called so: read 'al'"):
        space("al")
