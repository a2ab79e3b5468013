"""The facts that come with the package are what is derived, and spare the first list."""

import pytest
from packaged import CORE, NAMES, rule_of
from tiers import CHANGED

from mnemic.cli import facts
from mnemic.dsl.catalogue import find, names
from mnemic.dsl.load import load
from mnemic.dsl.reading import read_yaml


def test_facts_of_some_specs_are_what_is_derived(request: pytest.FixtureRequest) -> None:
    """Of every fifth spec of its core, and of those whose code has changed."""
    if request.config.getoption("--regenerate"):
        pytest.skip("the file is being written anew")
    specs = sorted({*CORE[::5], *request.config.stash[CHANGED]})
    derived = facts.packaged_facts({name: rule_of(name) for name in specs})
    kept = facts.PACKAGED.read_text(encoding="utf-8").splitlines()
    lines = {line.partition(":")[0]: line.rstrip(",") for line in kept}
    for line in derived.splitlines()[1:-1]:
        assert lines[line.partition(":")[0]] == line.rstrip(",")


@pytest.mark.full
def test_the_packaged_facts_are_what_is_derived(request: pytest.FixtureRequest) -> None:
    """Derive every packaged spec and compare; ``--regenerate`` writes the file anew."""
    derived = facts.packaged_facts({name: rule_of(name) for name in NAMES})
    if request.config.getoption("--regenerate"):
        facts.PACKAGED.write_text(derived, encoding="utf-8")
    assert facts.PACKAGED.read_text(encoding="utf-8") == derived


@pytest.mark.usefixtures("cache")
def test_the_first_list_derives_nothing(mnemic, monkeypatch):
    monkeypatch.setattr("mnemic.pipeline.derive", None)
    assert len(mnemic("list", "--json").json["specs"]) == len(names())


@pytest.mark.usefixtures("cache")
def test_an_edited_spec_is_derived_again():
    """A spec of a packaged name that says something else has the facts of what it says."""
    told = read_yaml(find("deltanet").read_text(encoding="utf-8"), "deltanet").data
    asked = []
    edited = facts.gathered({"deltanet": load(told | {"bias": "dot"})}, asked.append)
    assert asked == ["deltanet"]
    assert edited["deltanet"]["class"] == "additive"
    plain = facts.gathered({"deltanet": load(told)}, asked.append)
    assert plain["deltanet"]["class"] == "affine"
    assert asked == ["deltanet"]
