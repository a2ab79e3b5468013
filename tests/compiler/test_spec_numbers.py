"""Numbers of a spec put elsewhere: which there are, and what the spec is then."""

from __future__ import annotations

import pytest
from packaged import rule_of
from pydantic import ValidationError

from mnemic.compiler.compare.spec_numbers import edits_of, put_number, words_of


def test_only_numbers_that_a_spec_tells_are_edited() -> None:
    assert list(edits_of(rule_of("lp").problem.spec)) == [
        ("bias.p=0",), ("bias.p=1",), ("bias.p=2",),
    ]  # fmt: skip
    assert list(edits_of(rule_of("gated-deltanet").problem.spec)) == []


def test_a_number_is_put() -> None:
    spec = rule_of("elastic-net").problem.spec
    pairs = [edits for edits in edits_of(spec) if len(edits) == 2]
    (zeros,) = [edits for edits in pairs if all(edit.endswith("=0") for edit in edits)]
    for edit in zeros:
        spec = put_number(spec, edit)
    assert words_of(zeros) == ("l1 = 0", "l2 = 0")
    told = spec.model_dump(by_alias=True)["retention"]["global"]["elastic"]
    assert (told["l1"]["value"], told["l2"]["value"]) == (0.0, 0.0)


def test_a_number_out_of_range_is_refused() -> None:
    spec = rule_of("polysketchformer").problem.spec
    with pytest.raises(ValidationError):
        put_number(spec, "features.degree=0")
