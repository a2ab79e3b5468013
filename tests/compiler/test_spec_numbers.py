"""Numbers of a spec put elsewhere, and parts of it taken away to come near another."""

from __future__ import annotations

import pytest
from packaged import rule_of
from pydantic import ValidationError

from mnemic.compiler.compare.removals import edits_towards, words_of_edits
from mnemic.compiler.compare.spec_numbers import numbers, put_number, words_of
from mnemic.compiler.compare.special import edited
from mnemic.dsl.memory import Linear
from mnemic.dsl.spec import Spec


def spec_of(name: str) -> Spec:
    return rule_of(name).problem.spec


def towards(outer: str, inner: str) -> list[tuple[str, ...]]:
    return list(edits_towards(rule_of(outer), rule_of(inner)))


def test_only_numbers_that_a_spec_tells_are_found() -> None:
    assert list(numbers("bias", spec_of("lp").bias)) == [("bias.p", 3.0)]
    assert list(numbers("bias", spec_of("gated-deltanet").bias)) == []


def test_a_number_is_put() -> None:
    spec = spec_of("elastic-net")
    edits = ("retention.global.elastic.l1=0", "retention.global.elastic.l2=0")
    for edit in edits:
        spec = put_number(spec, edit)
    assert words_of(edits) == ("l1 = 0", "l2 = 0")
    told = spec.model_dump(by_alias=True)["retention"]["global"]["elastic"]
    assert (told["l1"]["value"], told["l2"]["value"]) == (0.0, 0.0)


def test_a_number_out_of_range_is_refused() -> None:
    with pytest.raises(ValidationError):
        put_number(spec_of("polysketchformer"), "features.degree=0")


def test_numbers_go_where_the_other_has_them_or_where_they_are_plainer() -> None:
    assert ("bias.p=1", "retention.global.lq=2") not in towards("moneta-derived", "lp")
    assert towards("moneta-derived", "lq-stability")[0][-1] == "depth"
    assert {e[-1] for e in towards("moneta-derived", "lq-stability")} == {
        "depth", "bias.p=0", "bias.p=1", "bias.p=2",
    }  # fmt: skip
    assert ("features.degree=4",) in towards("polysketchformer", "polysketchformer-4")


def test_a_part_goes_where_the_other_lacks_it_and_nowhere_else() -> None:
    assert towards("titans", "titans-minus") == [()]
    assert towards("ttt-mlp", "ttt-linear") == [("depth",)]
    assert towards("ttt-mlp", "deltanet") == [("anchor", "norm", "residual", "depth")]
    assert towards("deltanet", "ttt-mlp") == []
    assert towards("f-divergence-chi2", "deltanet") == []
    assert towards("lion-mlp", "titans-minus") == []
    assert towards("atlas-plus", "atlas") == [("gate",)]
    assert towards("lact", "linear-attention") == [
        ("plain", "norms", "every", "anchor", "read", "gate", "depth"),
    ]


def test_a_network_of_one_matrix_without_more_is_a_matrix() -> None:
    spec = edited(spec_of("ttt-mlp"), ("norm", "residual", "depth"))
    assert isinstance(spec.memory, Linear)
    assert words_of_edits(("norm", "depth", "features.order=oo")) == (
        "no layer norm", "one layer", "order = ∞",
    )  # fmt: skip
