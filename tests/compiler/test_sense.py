"""What states no problem: infinite expressions, losses that are not real, or teach nothing."""

import re
from typing import Any

import pytest
import torch

from mnemic.compiler.derive import derive_spec
from mnemic.compiler.explain.explanation import warned
from mnemic.compiler.oracle.verify import verify
from mnemic.compiler.rule import Rule
from mnemic.dsl.load import load
from mnemic.errors import InvalidSpec
from mnemic.pipeline import compile

POSITIVE = {"retention": {"local": "kl", "constraint": "simplex"}}
"""A memory that begins at equal shares, not at zero."""


def rule(loss: str = "e**2/2", **more: Any) -> Rule:
    return derive_spec(load({"name": "mine", "bias": {"expr": loss}, **more}))


@pytest.mark.parametrize("loss", ["0*e", "e-e", "(e+v-y)**2", "heaviside(e)", "sign(e)"])
def test_a_loss_that_teaches_nothing_is_refused(loss: str) -> None:
    with pytest.raises(InvalidSpec, match="the memory would never learn") as told:
        rule(loss)
    assert told.value.issues[0].where == "bias.expr"
    assert told.value.issues[0].read == loss


@pytest.mark.parametrize("loss", ["sqrt(e)", "e**0.5", "e**(2/3)", "log(e)", "log(1-e**2)"])
def test_a_loss_that_is_not_real_is_refused(loss: str) -> None:
    with pytest.raises(InvalidSpec, match="the loss is not real everywhere: not where ŷ − v = "):
        rule(loss)


@pytest.mark.parametrize("loss", ["sqrt(e*e + 1)", "abs(e)**(2/3)", "sqrt(n)", "log(1 + n)"])
def test_a_real_loss_is_taken(loss: str) -> None:
    assert not any("not real" in line for line in warned(rule(loss)))


def test_a_power_that_may_be_any_number_needs_a_size() -> None:
    power = {"coefficients": {"p": "token"}}
    with pytest.raises(InvalidSpec, match="not real"):
        rule("e**p + e**2", **power)
    assert rule("abs(e)**p", **power)


def test_a_loss_of_predictions_that_is_not_real_everywhere_warns() -> None:
    (line,) = (z for z in warned(rule("-v*log(y)-(1-v)*log(1-y)", **POSITIVE)) if "not real" in z)
    assert "not where ŷ = 1.78, v = 0." in line
    sigmoids = rule("-v*log(sigmoid(y))-(1-v)*log(1-sigmoid(y))")
    assert not any("not real" in z for z in warned(sigmoids))
    divergence = rule("v*log(v) - v*log(sigmoid(y)) + sigmoid(y) - v")  # values are positive
    assert not any("not real" in z for z in warned(divergence))


@pytest.mark.parametrize(
    ("entries", "where"),
    [
        ({"loss": "e/(e-e)"}, "bias.expr"),
        ({"retention": {"decay": "1/(h-h)"}}, "retention.decay"),
        ({"features": {"expr": "x/(x-x)"}}, "features.expr"),
        ({"retention": {"local": {"bregman": "w**2/(w-w)"}}}, "retention.local.bregman"),
    ],
)
def test_expressions_that_come_to_infinities_are_refused(entries: Any, where: str) -> None:
    with pytest.raises(InvalidSpec, match="infinite or complex") as told:
        rule(**entries)
    assert told.value.issues[0].where == where


def test_a_loss_that_overflows_agrees_until_it_does() -> None:
    """exp(e)**e is exp(e²): real, and beyond float64 within tokens."""
    wrong = [check for check in verify(rule("exp(e)**e", optimizer={"rate": "token"}))
             if not check.passed]  # fmt: skip
    assert not wrong


BELOW = {
    "bias.delta": ({"bias": {"kind": "huber", "delta": {"from": "input", "activation": "tanh"}}},
                   "comes to -1 for some values, and must be above 0: read 'tanh'"),
    "retention.decay": ({"retention": {"decay": {"expr": "1 - 2*eta"}},
                         "optimizer": {"rate": "token"}},
                        "comes to -1 for some values, and must be in (0, 1]: read '1 - 2*eta'"),
    "retention.constraint.scale": (
        {"retention": {"constraint": {
            "kind": "simplex", "scale": {"from": "parameter", "activation": "identity"}}}},
        "comes to -30 for some values, and must be above 0: read 'identity'"),
    "coefficients.lam": ({"bias": {"expr": "abs(lam)*e**2/2"},
                          "coefficients": {"lam": {"from": "input", "activation": "tanh"}}},
                         "coefficients of this name are never negative"),
}  # fmt: skip


@pytest.mark.parametrize("place", BELOW)
def test_a_coefficient_that_may_fall_below_its_range_is_refused(place: str) -> None:
    spec, message = BELOW[place]
    with pytest.raises(InvalidSpec) as told:
        derive_spec(load({"name": "mine", **spec}))
    assert str(told.value).startswith(f"{place}: ")
    assert message in str(told.value)


@pytest.mark.parametrize(
    ("decay", "least"),
    [
        ("sin(g)", "-0.989"),
        ("1 + g", "-29"),
        ("cos(g)", "-0.654"),
        ("1 - 2*exp(-((g - 1)**2))", "-1"),
    ],
)
def test_a_decay_is_looked_at_between_the_ends_too(decay: str, least: str) -> None:
    """cos(g) is above 0 at the least, the middle and the largest g that were once looked at."""
    with pytest.raises(InvalidSpec) as told:
        rule(retention={"decay": {"expr": decay}},
             coefficients={"g": {"from": "input", "activation": "identity"}})  # fmt: skip
    expected = f"retention.decay: comes to {least} for some values, and must be in (0, 1]"
    assert str(told.value).startswith(expected)


@pytest.mark.parametrize("decay", ["exp(g)", "where(g > 0.5, g, 0.5)"])
def test_a_decay_above_one_is_warned_of_with_its_range(decay: str) -> None:
    mine = rule(retention={"decay": {"expr": decay}},
                coefficients={"g": {"from": "input", "activation": "identity"}})  # fmt: skip
    assert any("Keep the decay in (0, 1]: an activation" in told for told in warned(mine))


def test_a_coefficient_within_its_range_is_taken() -> None:
    halved = {"retention": {"decay": {"expr": "1 - eta/2"}}, "optimizer": {"rate": "token"}}
    derive_spec(load({"name": "mine", **halved}))
    called_otherwise = {"size": {"from": "input", "activation": "tanh"}}
    derive_spec(load({"name": "mine", "bias": {"expr": "abs(size)*e**2/2"},
                      "coefficients": called_otherwise}))  # fmt: skip


@pytest.mark.some(2)
@pytest.mark.parametrize("loss", ["y**2/4", "y**2/2*sigmoid(v)", "log(cosh(y*v))"])
def test_a_memory_that_never_leaves_zero_is_told(loss: str) -> None:
    mine = rule(loss)
    assert any("The memory starts at zero, where this loss has no slope" in z for z in warned(mine))
    q, k, v = torch.randn(3, 1, 5, 1, 4, generator=torch.Generator().manual_seed(0))
    step = compile(
        {"mnemic": 1, "name": "mine", "bias": {"expr": loss}, "optimizer": {"rate": "token"}}
    )
    assert not step(q, k, v, eta=torch.full((1, 5, 1), 0.5))[0].any()


@pytest.mark.parametrize(
    ("loss", "more"),
    [
        ("e**2/2", {}),
        ("y**2/2 - y*v", {}),
        ("-y*v", {}),
        ("y**2/4", {"memory": {"kind": "mlp", "norm": False}}),
        ("y**2/4", {"retention": {"constraint": "simplex"}}),
    ],
)
def test_a_memory_that_leaves_zero_is_not(loss: str, more: dict[str, Any]) -> None:
    assert not any("starts at zero" in z for z in warned(rule(loss, **more)))


@pytest.mark.parametrize("link", ["sin(a)/a", "(exp(a) - 1)/a", "a/(exp(a) - 1)", "1/a", "log(a)"])
def test_a_link_without_a_number_where_memories_begin_is_refused(link: str) -> None:
    with pytest.raises(InvalidSpec, match="is no number at a = 0, where memories begin") as told:
        rule(optimizer={"rate": "token"}, retention={"view": "ftrl", "link": link})
    assert told.value.issues[0].where == "retention.link"
    assert told.value.issues[0].read == link


@pytest.mark.parametrize(
    ("features", "told"),
    [("sin(x)/x", "with the limit 1"), ("abs(x)/x", "and a jump"), ("1/x", "infinite")],
)
def test_features_without_a_number_at_zero_warn(features: str, told: str) -> None:
    (line,) = (x for x in warned(rule(features={"expr": features})) if "at x = 0" in x)
    assert told in line
    assert not [x for x in warned(rule(features={"expr": "x + sin(x)"})) if "at x = 0" in x]


@pytest.mark.parametrize("features", ["sqrt(x)", "x**0.3", "log1p(sqrt(x))"])
def test_features_without_a_slope_at_zero_warn(features: str) -> None:
    cut = {"key": "relu", "query": "relu"}
    (line,) = (x for x in warned(rule(features={"expr": features}, block=cut)) if "x = 0" in x)
    assert "have no slope at x = 0 (infinite)" in line


@pytest.mark.parametrize("features", ["sqrt(abs(x))", "sqrt(relu(x))", "max(x, 0)**0.3", "x**3"])
def test_features_that_are_flat_at_zero_do_not(features: str) -> None:
    assert not [x for x in warned(rule(features={"expr": features})) if "at x = 0" in x]


def test_a_logarithm_that_x_makes_vanish_has_a_limit_and_no_jump() -> None:
    (line,) = (x for x in warned(rule(features={"expr": "x*log(abs(x))"})) if "at x = 0" in x)
    assert "with the limit 0" in line


PAIRS = {"weights": "similarity", "window": "all", "optimizer": "nonparametric"}

INTERPOLATED = {
    "memory": {"kind": "interpolation", "kernel": "1/d2"},
    "window": "all",
    "optimizer": "nonparametric",
}


def of_pairs(similarity: str) -> dict[str, Any]:
    """A memory of kept pairs, weighed so."""
    return {"memory": {"kind": "nonparametric", "similarity": similarity}, **PAIRS}


def of_layers(activation: str) -> dict[str, Any]:
    """A memory of two layers with an activation."""
    return {"memory": {"kind": "mlp", "activation": activation}, "optimizer": {"rate": 0.1}}


@pytest.mark.parametrize(("more", "told"), [
    (of_pairs("1/d2"), r"no number at d2 = 0 \(infinite\)"),
    (of_pairs("sin(d2)/d2"), "d2 = 0 .*with the limit 1"),
    (of_pairs("1/abs(s)"), r"no number at s = 0 \(infinite\)"),
    (INTERPOLATED, "d2 = 0"),
    (of_layers("sqrt(abs(x))"), r"no slope at x = 0 \(infinite\)"),
    (of_layers("abs(x)**1.5"), "a slope that has none itself at x = 0"),
    (of_layers("sqrt(relu(x))"), r"no slope at x = 0 \(infinite\)"),
    (of_layers("relu(x)**1.5"), "a slope that has none itself at x = 0"),
    (of_layers("sin(x)/x"), "is no number at x = 0 .*with the limit 1"),
])  # fmt: skip
def test_what_has_no_number_or_slope_at_zero_is_told(more: dict[str, Any], told: str) -> None:
    found = warned(rule(**more))
    assert [line for line in found if re.search(told, line)], found


@pytest.mark.parametrize("more", [
    of_pairs("1/(1 + d2)"), of_pairs("exp(-sqrt(d2))"), of_layers("silu"), of_layers("x*abs(x)"),
    of_layers("where(x > 0, x, 0.1*x)"), of_layers("sqrt(x**2 + 0.01)"),
])  # fmt: skip
def test_what_has_numbers_and_slopes_at_zero_is_not(more: dict[str, Any]) -> None:
    assert not any("= 0 (" in line for line in warned(rule(**more)))


def test_a_loss_that_divides_by_a_value_of_zero_is_told() -> None:
    assert any("not real for every prediction" in x for x in warned(rule("y*log(y/v)", **POSITIVE)))


@pytest.mark.parametrize(
    ("loss", "place"),
    [
        ("e**2/v", "v = 0"), ("e**2*log(abs(v))", "v = 0"), ("e**2*sigmoid(1/v)", "v = 0"),
        ("atan(e/v)", "v = 0"), ("e**2/(abs(v) + abs(y))", "ŷ = v = 0"),
        ("e**2*log(v + 1)", "v = −1.3"),
    ],
)  # fmt: skip
def test_a_loss_without_a_slope_at_a_value_is_told(loss: str, place: str) -> None:
    """Else every output would be NaN from the first value that is padding."""
    assert any(f"slope of the loss is no number at {place}," in z for z in warned(rule(loss)))


def test_a_loss_is_looked_at_where_its_coefficients_may_be() -> None:
    """Small ones among them, of a gate in (0, 1), and no other than that which is fixed."""
    bounded = {"from": "input", "activation": "1 + sigmoid(x)"}
    for c, told in [("token", True), (bounded, False), (0.7, False)]:
        made = rule("e**2*abs(v)**(c - 0.6)", coefficients={"c": c})
        assert any("no number at v = 0," in z for z in warned(made)) is told, c


@pytest.mark.parametrize(
    ("loss", "block"),
    [
        ("e**2/(1 + abs(v))", {}), ("abs(e)*log(abs(e))", {}), ("e**2*v", {}), ("sqrt(n)", {}),
        ("e**2/v", {"value": "softplus"}), ("e**2*log(v + 1)", {"value": "relu"}),
    ],
)  # fmt: skip
def test_a_loss_with_a_slope_at_every_value_is_not(loss: str, block: dict[str, str]) -> None:
    assert not any("slope of the loss is no" in z for z in warned(rule(loss, block=block)))


@pytest.mark.parametrize("loss", [
    "y - v*log(y)", "-v*log(y)-(1-v)*log(1-y)", "sqrt(abs(y)) - v*y", "y*log(abs(y)) - y*v",
])  # fmt: skip
def test_a_loss_without_a_slope_where_a_memory_begins_is_refused(loss: str) -> None:
    """Else every output would be NaN: the first step is e(0, v)."""
    with pytest.raises(InvalidSpec, match="no slope at ŷ = 0") as told:
        rule(loss)
    assert (told.value.issues[0].where, told.value.issues[0].read) == ("bias.expr", loss)
    rule(loss.replace("y", "(1 + exp(y))"))
    rule(loss, **POSITIVE)  # starts elsewhere


POSITIVE_KEYS = {"block": {"key": "softplus", "query": "softplus"}}


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"features": {"expr": "sqrt(x)"}}, "features are no real number at x = −1.3"),
        ({"features": {"expr": "x**1.5"}}, "features are no real number at x = −1.3"),
        ({"features": {"kernel": "sqrt(s)"}}, r"kernel sqrt\(s\) is no real number at k·q = −1"),
        ({"features": {"kernel": "1/(1 - s)"}}, "is no real number at k·q = 1"),
        (
            {"features": {"kernel": "exp(s)", "readout": {"kernel": "log(2 + 3*s)"}}},
            "no real number at k·q = −1",
        ),
        (
            {"memory": {"kind": "mlp", "activation": "log(x)"}, "optimizer": {"rate": 0.1}},
            "activation is no real number at x = −1.3",
        ),
        ({"keys": {"write": "log(k)"}}, "keys.write is no real number at k = −1.3"),
        ({"keys": {"write": "1/k"}}, "keys.write is no real number at k = 0"),
        ({"keys": {"value": "sqrt(v)"}}, "keys.value is no real number at v = −1.3"),
        ({"block": {"key": "log(x)"}}, r"block's key log\(x\) is no real number at x = −1.3"),
        ({"block": {"value": "1/x"}}, "block's value 1/x is no real number at x = 0"),
        ({"retention": {"view": "ftrl", "link": "sqrt(a)"}}, "link is no real number at a = −1.3"),
        (
            {"optimizer": {"rate": {"from": "input", "activation": "sqrt(x)"}}},
            r"activation sqrt\(x\) of optimizer.rate is no real number at x = −1.3",
        ),
        (
            {"coefficients": {"a": "token"}, "optimizer": {"rate": {"expr": "sqrt(a - 1/2)"}}},
            r"optimizer.rate: sqrt\(a - 1/2\) is no real number at a = 9.36e−14",
        ),
    ],
)
def test_functions_that_are_not_real_where_they_are_asked_are_told(
    more: dict[str, Any], told: str
) -> None:
    found = warned(rule(**more))
    assert [z for z in found if re.search(told, z)], found


@pytest.mark.parametrize(
    "more",
    [
        {"features": {"expr": "sqrt(x)"}, **POSITIVE_KEYS},
        {"features": {"expr": "sqrt(abs(x))"}},
        {"features": {"kernel": "1/(2 - s)"}},
        {"keys": {"write": "sqrt(k)"}, **POSITIVE_KEYS},
        {"keys": {"write": "k/(abs(k) + 1)"}},
        {"keys": {"value": "log(v)"}, "block": {"value": "softplus"}},
        {"coefficients": {"a": "token"}, "optimizer": {"rate": {"expr": "sqrt(a)"}}},
        {"memory": {"kind": "mlp", "activation": "gelu"}, "optimizer": {"rate": 0.1}},
    ],
)
def test_functions_that_are_real_where_they_are_asked_are_not(more: dict[str, Any]) -> None:
    assert not any("no real number" in z for z in warned(rule(**more)))


def test_a_loss_of_towering_exponentials_is_told_soon() -> None:
    """exp(exp(10⁸)) has more digits than can be computed."""
    assert any("no rate is safe" in z for z in warned(rule("exp(exp(e))")))


@pytest.mark.parametrize(
    ("loss", "told"),
    [
        ("abs(e)*log(abs(e))", "(infinite)"), ("sqrt(abs(e))", "(infinite)"),
        ("sin(e)/e", "(0/0, with the limit 0)"),
        ("abs(e)", None), ("abs(e)**1.5", None), ("abs(e)*log(abs(e) + 0.1)", None),
    ],
)  # fmt: skip
def test_a_slope_that_is_no_number_where_predictions_meet_their_values_is_told(
    loss: str, told: str | None
) -> None:
    lines = [line for line in warned(rule(loss)) if "no slope at ŷ = v" in line]
    assert [told in line for line in lines] == [True] * (told is not None)


@pytest.mark.parametrize(
    ("link", "told"),
    [
        ({"expr": "a/nu**2", "power": 4}, True),
        ("sign(a)*sqrt(abs(a))/nu", True),
        ("sign(a)*log(nu)", True),
        ("a/nu", False),
        ("a/(nu**2 + 0.001)", False),
        ({"expr": "sign(a)*abs(a)**3/nu**2", "power": 4}, False),
    ],
)
def test_a_link_without_a_bound_where_a_memory_begins_is_told(link: Any, told: bool) -> None:
    """Where nothing is told a layer has finite gradients in float32; the first of the others, as
    Moneta states it, has not."""
    retention = {"view": "ftrl", "link": link, "decay": "token", "order": "before"}
    one = {"name": "mine", "bias": "l2", "retention": retention, "optimizer": {"rate": "token"}}
    known = [w for w in warned(derive_spec(load(one))) if "grows without bound" in w]
    assert bool(known) == told
    learned = derive_spec(load({**one, "memory": {"kind": "mlp", "residual": True}}))
    assert not any("grows without bound" in w for w in warned(learned))
    layer = compile(one).layer(dim=16)
    out = layer(torch.randn(2, 6, 16, generator=torch.Generator().manual_seed(0)))
    out.square().sum().backward()
    finite = all(bool(p.grad.isfinite().all()) for p in layer.parameters() if p.grad is not None)
    if not told:
        assert finite
    if link == {"expr": "a/nu**2", "power": 4}:
        assert not finite, "mended: the warning speaks of nothing now"
