"""How a spec is shown: `print` gives YAML that loads to it, `repr` what is not as by default."""

from __future__ import annotations

import pytest
import yaml
from tiers import first_only

import mnemic
from mnemic.dsl import bias, catalogue
from mnemic.dsl.spec import Spec


@pytest.mark.parametrize("name", first_only(catalogue.names(), "titans", "moneta"))
def test_what_is_printed_loads_to_the_same_spec(name: str) -> None:
    spec = mnemic.load(name)
    assert mnemic.load(yaml.safe_load(str(spec))) == spec


def test_what_is_left_out_is_not_shown() -> None:
    assert repr(Spec(name="mine")) == "Spec(name='mine')"
    assert repr(Spec.model_validate({"name": "mine", "bias": "l2", "window": 4})) == (
        "Spec(name='mine', bias=L2(), window=4)"
    )
    assert repr(bias.Lp(p=2.5)) == "Lp(p=2.5)"


def test_what_is_only_about_a_spec_is_not_shown() -> None:
    spec = Spec.model_validate({
        "name": "mine", "notes": "Read me.", "source": {"paper": "One", "where": "(1)"},
        "published": [{"where": "(1)", "rule": "W = W"}],
    })  # fmt: skip
    assert repr(spec) == "Spec(name='mine')"
    assert "Read me." in str(spec)
