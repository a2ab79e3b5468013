"""What is looked at by numbers takes a bounded number of points, however many coefficients."""

from typing import Any

import pytest
import sympy as sp

from mnemic.compiler import sense
from mnemic.compiler import symbols as sym
from mnemic.compiler.convexity import SIZES
from mnemic.compiler.derive import derive_spec
from mnemic.compiler.explain import placing
from mnemic.compiler.inverse import invert
from mnemic.compiler.points import MOST, points
from mnemic.compiler.steepness import bound
from mnemic.dsl.load import load

MANY = [f"c{i}" for i in range(7)]


def test_a_loss_of_many_coefficients_is_looked_at_in_few_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at: list[Any] = []

    def real(function: Any, at: Any) -> bool:
        looked_at.append(at)
        return False

    monkeypatch.setattr(sense, "_complex", real)
    terms = " + ".join(f"{name}*sqrt(1 + ({i} + 1)*e**2)" for i, name in enumerate(MANY))
    derive_spec(load({"name": "many", "bias": {"expr": terms},
                      "coefficients": dict.fromkeys(MANY, "token")}))  # fmt: skip
    assert 0 < len(looked_at) <= 2 * len(SIZES) * MOST


def test_a_sample_of_points_has_every_end() -> None:
    found = [*points([[0.0, 1.0, 2.0]] * 12)]
    assert len(found) == MOST
    assert {(0.0,) * 12, (1.0,) * 12, (2.0,) * 12} <= set(found)
    assert all({p[i] for p in found} == {0.0, 1.0, 2.0} for i in range(12))
    assert found == [*points([[0.0, 1.0, 2.0]] * 12)]


def test_the_values_of_many_coefficients_end() -> None:
    found = [*placing._sampled([[0.0, 0.5, 1.0]] * 14)]
    assert 0 < len(found) <= placing.MOST_POINTS


def test_a_steep_loss_without_a_jump_is_bounded() -> None:
    steep = sp.tanh(150 * sym.y)
    slope = sp.diff(steep, sym.y)
    assert bound(steep, slope, sp.Integer(0)) == pytest.approx(150, rel=1e-3)


@pytest.mark.parametrize("text", ["w + exp(w)", "2*w - exp(-w)/3", "w + log(w)", "w**2 + tanh(w)"])
def test_no_closed_form_is_sought_where_none_is_elementary(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("SymPy was asked, which may take minutes")

    monkeypatch.setattr(sp, "solve", never)
    slope = sp.sympify(text, locals={"w": sym.w})
    assert invert(slope, (sp.Integer(0), sp.oo)) is None
