"""Kinks of a generator, where ∇R jumps and no memory tells the dual that it came from; and losses
that jump, which no gradient sees."""

from typing import Any

import pytest
import sympy as sp

from mnemic import pipeline
from mnemic.compiler.explain import broken
from mnemic.compiler.explain.explanation import warned
from mnemic.compiler.jumps import jump
from mnemic.dsl.catalogue import names
from mnemic.errors import InvalidSpec

w, b = sp.Symbol("w", real=True), sp.Symbol("b", real=True)
LINE = (-sp.oo, sp.oo)


@pytest.mark.parametrize(
    ("function", "domain", "place"),
    [
        (2 * w + sp.sign(w), LINE, 0),
        (w + b * sp.sign(w - sp.Rational(1, 2)), LINE, sp.Rational(1, 2)),
        (w + sp.Piecewise((1, w > 1), (0, True)), LINE, 1),
        (w + sp.sign(w - 1) + sp.sign(w + 1), LINE, -1),
        (sp.log(w) + sp.sign(w), (0, sp.oo), None),  # at the end of its domain
        (w + sp.sign(w - 2), (-1, 1), None),  # beyond it
        (sp.Piecewise((2 * w, w > 0), (4 * w, True)), LINE, None),  # a bend
        (sp.sign(w) * sp.sqrt(sp.Abs(w)), LINE, None),  # steep, though no jump
        (w * sp.Abs(w), LINE, None),
    ],
    ids=str,
)
def test_a_jump_is_found_and_a_bend_is_none(function: Any, domain: Any, place: Any) -> None:
    assert jump(function, w, domain) == place


KINKED = {"local": {"bregman": "w**2 + abs(w)/3"}}


def test_a_memory_that_starts_from_its_own_gradient_has_no_kink() -> None:
    """Where the dual is kept a kink is a soft threshold; where W alone is, entries at zero had a
    dual of zero, whatever they came from."""
    spec: dict[str, Any] = {"name": "kink", "bias": "l2", "optimizer": {"rate": "token"}}
    for kept in ({}, {"decay": "token"}, {"view": "ftrl", "global": {"l2": 0.2}}):
        rule = pipeline.derive({**spec, "retention": {**KINKED, **kept}})
        assert rule.retained.mode == "dual"
    for more in ({"global": {"l2": 0.2}}, {"constraint": "ball"}):
        with pytest.raises(InvalidSpec, match=r"sign\(w\)/3 jumps at w = 0.* view: ftrl") as told:
            pipeline.derive({**spec, "retention": {**KINKED, **more}})
        assert told.value.issues[0].where == "retention.local.bregman"


@pytest.mark.parametrize(
    ("loss", "told"),
    [
        ("where(e > 1, e**2/2 + 1, e**2/2)", "ŷ − v = 1.00. No gradient"),
        ("heaviside(e - 1) + e**2/2", "ŷ − v = 1.00. No gradient"),
        ("where(n > 2, n, n**2)", "‖ŷ − v‖ = 2.00. No gradient"),
        ("where(y > 1/2, 1, 0) + e**2/2", "ŷ = 0.500, with v = 0.7. No gradient"),
        ("where(y > 1/2, v*y, y)", "ŷ = 0.500, with v = 0.7. No gradient"),
    ],
)
def test_a_loss_that_jumps_is_told(loss: str, told: str) -> None:
    rule = pipeline.derive({"name": "jumps", "bias": {"expr": loss}})
    said = broken.warning(rule)
    assert said is not None
    assert told in said
    assert said in warned(rule)


@pytest.mark.parametrize("loss", [
    "where(abs(e) > 1, abs(e) - 1/2, e**2/2)", "abs(e)**1.5", "log(abs(e) + 1)", "round(e)**2/2",
    "where(n > 1, n - 1/2, n**2/2)", "max(e, -3*e)", "relu(abs(e) - 0.1)**2",
])  # fmt: skip
def test_a_loss_that_bends_is_not(loss: str) -> None:
    assert broken.warning(pipeline.derive({"name": "bends", "bias": {"expr": loss}})) is None


def test_no_packaged_loss_jumps() -> None:
    assert [name for name in names() if broken.warning(pipeline.derive(name))] == []
