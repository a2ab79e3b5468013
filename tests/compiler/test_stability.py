"""The bound on a step, against the spectral radius of the recurrence that it speaks of."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import sympy as sp
import torch
from tiers import first_only

from mnemic.compiler import symbols as sym
from mnemic.compiler.derive import derive_spec
from mnemic.compiler.explain.contraction import limit
from mnemic.compiler.explain.key_sizes import key_size
from mnemic.compiler.explain.stability import stability
from mnemic.compiler.oracle.interpret import interpret
from mnemic.compiler.oracle.reference_features import feature_map
from mnemic.compiler.rule import Rule
from mnemic.dsl import catalogue
from mnemic.dsl.bias import Dot
from mnemic.dsl.load import load
from mnemic.dsl.spec import Spec


def rule(**entries: Any) -> Rule:
    return derive_spec(Spec.model_validate({"name": "mine", "bias": "l2", **entries}))


def test_the_delta_rule_contracts_below_two() -> None:
    found = stability(rule(optimizer={"rate": "token"}))
    assert found.bound == sp.Lt(sym.coefficient("eta") * sym.kappa, 2)
    assert found.inside is True
    assert "ηₜ·‖φ‖² < 2" in found.sentence


def test_heavy_ball_momentum_has_its_own_bound() -> None:
    momentum = {"method": "momentum", "momentum": "token", "rate": "token"}
    theta = sym.coefficient("theta")
    assert sp.expand(limit(rule(optimizer=momentum)) - 2 * (1 + theta)) == 0


@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize(("alpha", "theta"), [(1, 0), (0.6, 0), (1, 0.5), (0.8, 0.9)])
def test_the_bound_is_where_the_spectral_radius_reaches_one(
    order: str, alpha: float, theta: float
) -> None:
    """Along a key that repeats, (A, S) goes by a 2 × 2 matrix; κ = 1."""
    method = {"method": "momentum", "momentum": "token", "rate": "token"}
    found = stability(rule(retention={"decay": "token", "order": order}, optimizer=method))
    assert found.bound is not None
    point = {sym.coefficient("alpha"): alpha, sym.coefficient("theta"): theta, sym.kappa: 1}
    eta = sym.coefficient("eta")
    edge = float(sp.solve((found.bound.lhs - found.bound.rhs).subs(point), eta)[0])
    seen = alpha if order == "before" else 1

    def radius(rate: float) -> float:
        step = -rate * seen
        matrix = sp.Matrix([[alpha + step, theta], [step, theta]])
        return max(abs(complex(value)) for value in matrix.eigenvals())

    assert radius(edge) == pytest.approx(1, abs=1e-6)
    assert radius(edge * 0.999) < 1 < radius(edge * 1.001)


@pytest.mark.parametrize("decay", ["value", "outer"])
def test_rows_that_fade_before_the_step_hold_larger_steps(decay: str) -> None:
    """The step as stated, W -> Diag(a)W - eta d/dW |Diag(a)W k - v|^2/2, differentiated."""
    rows = {"from": "input", "per": "value"}
    outer = {"decay": "outer", "row_decay": rows}
    entries = outer if decay == "outer" else {"decay": rows}
    found = stability(
        rule(
            retention={**entries, "order": "before"},
            optimizer={"rate": {"from": "input", "activation": "1.9*sigmoid(x)"}},
        )
    )
    assert (found.place, found.warning) == ("inside", None)
    assert found.bound is not None
    fades = {sym.coefficient("alpha"): 0.5, sym.coefficient("beta"): 0.6, sym.kappa: 1}
    kept = 0.3 if decay == "outer" else 0.5
    eta = sym.coefficient("eta")
    edge = float(sp.solve((found.bound.lhs - found.bound.rhs).subs(fades), eta)[0])
    key = torch.tensor([0.6, 0.8], dtype=torch.float64)

    def radius(rate: float) -> float:
        def step(memory: torch.Tensor) -> torch.Tensor:
            faded = kept * memory
            error = faded @ key - 0.7
            return faded - rate * error[:, None] * key

        start = torch.zeros(1, 2, dtype=torch.float64)
        jacobian = torch.autograd.functional.jacobian(step, start).reshape(2, 2)
        return float(torch.linalg.eigvals(jacobian).abs().max())

    assert radius(edge) == pytest.approx(1, abs=1e-9)
    assert radius(0.99 * edge) < 1 < radius(1.01 * edge)


def test_a_loss_whose_curvature_grows_asks_for_a_normalised_rate() -> None:
    cubic = rule(bias={"kind": "lp", "p": 3}, optimizer={"rate": "token"})
    assert stability(cubic).kind == "unbounded"
    assert "normalized: true" in stability(cubic).warning
    tamed = rule(
        bias={"kind": "lp", "p": 3}, optimizer={"rate": {"from": "input", "normalized": True}}
    )
    assert stability(tamed).kind == "always"
    assert stability(tamed).warning is None


@pytest.mark.parametrize(
    ("loss", "size"),
    [("e**2*(1+v**2)/2", 1.0), ("e**2*v**2/2", math.sqrt(2)), ("e**2/2 + log(1+exp(y*v))", 2.0),
     ("log(cosh(e*(1+v**2)))", math.sqrt(math.sqrt(2) - 1)), ("e**2*exp(v/2)/2", 2 * math.log(2))],
)  # fmt: skip
def test_a_curvature_that_grows_with_the_value_names_the_size_that_is_safe(
    loss: str, size: float
) -> None:
    """ℓ″ at its steepest is 2 at that size, and the rate is at most 1: 1 + v², v², 1 + v²/4,
    (1 + v²)², exp(v/2)."""
    found = stability(rule(bias={"expr": loss}, optimizer={"rate": "token"}))
    assert (found.kind, found.place) == ("unbounded", "outside")
    assert found.warning is not None
    assert "grows with the value v" in found.warning
    (told,) = re.findall(r"under \|v\| = ([\d.]+);", found.warning)
    assert float(told) == pytest.approx(size, rel=2e-2)


@pytest.mark.parametrize("loss", ["e**4", "e**2/2 + v**2*e", "log(1+exp(y)) - y*v", "exp(e)-e"])
def test_what_grows_with_the_error_alone_is_told_as_that(loss: str) -> None:
    told = stability(rule(bias={"expr": loss}, optimizer={"rate": "token"})).sentence
    assert "value v" not in told


def test_a_kink_is_no_growth() -> None:
    signs = rule(bias={"kind": "lp", "p": 1}, optimizer={"rate": "token"})
    assert stability(signs).kind == "kink"
    assert stability(signs).bound is None
    robust = stability(rule(bias={"kind": "robust", "Delta": 0.1}, optimizer={"rate": "token"}))
    assert robust.bound == sp.Lt(sym.coefficient("eta") * sym.kappa, 2)


JUMPS = {
    "max(abs(e) - 0.5, 0)": (0.5, lambda e: torch.relu(e.abs() - 0.5)),
    "where(e < -2, -3*e - 4, e**2/2)": (-2.0, lambda e: torch.where(e < -2, -3 * e - 4, e**2 / 2)),
}


@pytest.mark.parametrize("loss", JUMPS)
def test_a_jump_of_the_error_signal_is_told_where_it_is(loss: str) -> None:
    """Two memories on its two sides part or pass one another in a step, two around ŷ = v do not."""
    found = stability(rule(bias={"expr": loss}, optimizer={"rate": "token"}))
    place, written = JUMPS[loss]
    shown = sp.nsimplify(place)
    assert f"jumps at ŷ − v = {str(shown).replace('-', '−')}:" in found.sentence
    for middle, apart in ((place, True), (0.0, False)):
        e = torch.tensor([middle - 1e-6, middle + 1e-6], dtype=torch.float64, requires_grad=True)
        (slopes,) = torch.autograd.grad(written(e).sum(), e)
        moved = e.detach() - 0.1 * slopes
        assert bool((moved[1] - moved[0]).abs() > 2e-6) == apart


def test_a_jump_at_a_learned_place_has_no_number() -> None:
    told = rule(
        bias={"expr": "max(abs(e) - c, 0)"}, coefficients={"c": "learned"},
        optimizer={"rate": "token"},
    )  # fmt: skip
    assert "jumps at an error that its coefficients tell:" in stability(told).sentence


def test_activations_are_checked_against_the_bound() -> None:
    loose = rule(optimizer={"rate": {"from": "input", "activation": "softplus"}})
    assert stability(loose).inside is False
    assert stability(loose).warning is not None
    wide = rule(optimizer={"rate": {"from": "input", "activation": "2*sigmoid(x)"}})
    assert stability(wide).inside is True


def test_windows_add_up() -> None:
    def windowed(activation: str) -> Rule:
        gamma = {"from": "input", "activation": activation}
        return rule(window=4, weights={"kind": "window", "gamma": gamma})

    assert stability(windowed("sigmoid(x)/2")).inside is True
    assert stability(windowed("sigmoid")).inside is False


def test_steps_without_a_size_are_always_stable() -> None:
    assert stability(rule(bias="dot")).kind == "always"
    ridge = {"view": "ftrl", "global": {"l2": 0.5}}
    assert stability(rule(window="all", retention=ridge, optimizer="exact")).kind == "always"
    implicit = stability(rule(optimizer={"method": "implicit", "rate": "token"}))
    assert implicit.inside is True


def test_a_link_scales_the_bound_by_its_slope() -> None:
    sigmoid = rule(
        retention={"local": {"bregman": "w*log(w) + (1-w)*log(1-w)"}}, optimizer={"rate": "token"}
    )
    assert stability(sigmoid).bound == sp.Lt(sym.coefficient("eta") * sym.kappa / 4, 2)


# -- where a rule stands ----------------------------------------------------------------------

PLACES = {
    "inside": {"optimizer": {"rate": 1.9}},
    "on": {"optimizer": {"rate": 2}},
    "outside": {"optimizer": {"rate": 2.1}},
    "unknown": {"optimizer": {"rate": "token"}, "block": {"qk_norm": "none"}},
}


@pytest.mark.parametrize("place", PLACES)
def test_the_place(place: str) -> None:
    found = stability(rule(**PLACES[place]))
    assert found.place == place
    assert (found.warning is not None) == (place == "outside")


def test_the_warning_gives_numbers_bound_and_mend() -> None:
    found = stability(rule(optimizer={"rate": {"from": "input", "activation": "8*sigmoid(x)"}}))
    assert found.read == ("ηₜ in (0, 8)", "‖φ‖² ≤ 1 (unit keys)")
    assert found.warning == (
        "Outside the stable range: with ηₜ in (0, 8); ‖φ‖² ≤ 1 (unit keys): ηₜ·‖φ‖² may reach 8, "
        "where the bound is 2. Nearest mend: optimizer.rate: {from: input, activation: "
        "2*sigmoid(x)}."
    )
    fixed = stability(rule(window=4)).warning
    assert fixed is not None
    assert fixed.endswith("4·‖φ‖² is 4, where the bound is 2. Nearest mend: a rate under 0.5.")


MENDED: list[dict[str, Any]] = [
    {"optimizer": {"rate": {"from": "input", "activation": "softplus"}}},
    {"features": "elu", "optimizer": {"rate": "token"}},
    {"features": {"kind": "polynomial", "degree": 3}, "optimizer": {"rate": "token"}},
    {"bias": {"expr": "log(cosh(3*e))"}, "optimizer": {"rate": "token"}},
    {"window": 4, "weights": "token", "optimizer": {"rate": "token"}},
    {"retention": {"decay": "token"}, "optimizer": {"rate": {"from": "parameter",
                                                              "activation": "exp"}}},
]  # fmt: skip


@pytest.mark.parametrize("entries", MENDED, ids=str)
def test_the_mend_mends(entries: dict[str, Any]) -> None:
    told = stability(rule(**entries)).warning
    assert told is not None
    activation = told.rpartition("activation: ")[2].removesuffix("}.")
    optimizer = {**entries["optimizer"], "rate": {"from": "input", "activation": activation}}
    assert stability(rule(**{**entries, "optimizer": optimizer})).place == "inside"


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"retention": {"decay": {"from": "input", "activation": "2*sigmoid(x)"}}}, "decay αₜ"),
        ({"bias": "dot", "retention": {"decay": "1 + lam"}, "coefficients": {"lam": "token"}},
         "decay 1 + λₜ"),
        ({"optimizer": {"method": "momentum", "rate": "token", "momentum":
                        {"from": "input", "activation": "2*sigmoid(x)"}}}, "momentum θₜ"),
    ],
)  # fmt: skip
def test_what_grows_without_an_error(entries: dict[str, Any], words: str) -> None:
    found = stability(rule(**entries))
    assert (found.kind, found.place) == ("growing", "outside")
    assert f"{words} reaches 2: above 1 in size the memory grows" in str(found.warning)


def test_a_rate_below_zero_climbs() -> None:
    found = stability(rule(optimizer={"rate": {"from": "input", "activation": "tanh"}}))
    assert "a step below zero climbs" in str(found.warning)


def test_curvature_that_depends_on_a_coefficient() -> None:
    """c log cosh(e/c) has ℓ″ = 1/c at most."""
    loss = {"expr": "c*log(cosh(e/c))"}
    sharp = {"c": {"from": "parameter", "activation": "sigmoid(x)/8"}}
    broad = {"c": {"from": "parameter", "activation": "2 + softplus(x)"}}
    rate = {"rate": "token"}
    assert stability(rule(bias=loss, coefficients=sharp, optimizer=rate)).place == "outside"
    assert stability(rule(bias=loss, coefficients=broad, optimizer=rate)).place == "inside"


def test_keys_that_point_apart() -> None:
    """p·k may be negative, where a step grows whatever the rate."""
    apart = rule(keys={"predict": "own"}, optimizer={"rate": "token"})
    assert stability(apart).place == "unknown"
    gated = {"keys": {"erase": {"expr": "b*k"}}, "coefficients": {"b": {"from": "input"}}}
    assert stability(rule(**gated)).place == "inside"


def test_full_batch_steps_are_held_against_the_prefix() -> None:
    batch = {"method": "batch", "inner_steps": 2, "from": "origin"}
    safe = rule(window="all", optimizer={**batch, "rate": {"expr": "1/(t + 1)"}})
    assert stability(safe).place == "inside"
    assert stability(rule(window="all", optimizer={**batch, "rate": 1})).place == "outside"


@pytest.mark.some(8)
@pytest.mark.few
@pytest.mark.parametrize("name", catalogue.names())
def test_default_activations_stay_inside(name: str) -> None:
    """No packaged spec warns, unless loss, kernel or step have no bound, and its notes say so."""
    spec = load(name)
    found = stability(derive_spec(spec))
    if found.warning is not None:
        assert found.kind in ("unbounded", "indefinite", "open")
        assert spec.notes is not None
        assert "`check`" in spec.notes
        assert "warn" in spec.notes


def test_a_deep_memory_has_a_bound_of_its_own_jacobian() -> None:
    deep = {"kind": "mlp", "depth": 2}
    slow = {"rate": "token", "anchor": {"chunk": 4}}
    found = stability(rule(memory=deep, optimizer=slow))
    assert (found.kind, found.place) == ("open", "unknown")
    assert "while 4·ηₜ·‖∂M/∂W‖² < 2" in found.sentence
    assert "10.44·ηₜ may reach 10.44" in str(found.warning), "where a layer starts"
    slower = {**slow, "rate": {"from": "input", "activation": "sigmoid(x)/8"}}
    assert stability(rule(memory=deep, optimizer=slower)).warning is None
    cubic = stability(rule(memory=deep, bias={"kind": "lp", "p": 3}, optimizer=slow))
    assert (cubic.kind, cubic.place) == ("unbounded", "outside")
    assert "Keep the rate small" in str(cubic.warning)


ELEMENTWISE: tuple[Any, ...] = (
    "elu", {"expr": "x*sigmoid(x)"}, {"expr": "exp(x)"}, {"expr": "x**3"}, {"expr": "tanh(4*x)"},
)  # fmt: skip
MAPS: tuple[Any, ...] = (
    "softmax", "taylor", "cosine", {"kind": "dpfp", "nu": 2}, {"kind": "polynomial", "degree": 3},
    {"kind": "polynomial", "degree": 2, "mode": "power"},
)  # fmt: skip


@pytest.mark.some(8)
@pytest.mark.parametrize("features", [*ELEMENTWISE, *MAPS], ids=str)
@pytest.mark.parametrize("size", [2, 5])
def test_features_of_unit_keys(features: Any, size: int) -> None:
    """Their largest size, against the best of many keys, climbed by gradient."""
    one = rule(features=features, block={"key_dim": size})
    x = torch.randn(100, size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    best = 0.0
    weights = list(one.problem.spec.features.coefficients())
    largest = [torch.tensor(2 / math.factorial(i)) for i, _ in enumerate(weights)]
    for _ in range(150):
        x = (x / x.norm(dim=1, keepdim=True)).requires_grad_()
        phi = feature_map(one.problem, x, torch.zeros(1), largest).square().sum(-1)
        best = max(best, float(phi.detach().max()))
        slope = torch.autograd.grad(phi.sum(), x)[0]
        x = x.detach() + 0.05 * torch.nn.functional.normalize(slope, dim=1)
    found = key_size(one).high
    assert best <= found * (1 + 1e-9)
    if features in ELEMENTWISE or str(features).startswith(("taylor", "{'kind': 'poly")):
        assert found <= (1.02 if size == 5 else 1.3) * best


# -- the bound against what happens ----------------------------------------------------------

RULES: dict[str, dict[str, Any]] = {
    "l2": {},
    "huber": {"bias": {"kind": "huber", "delta": 0.1}},
    "huber-norm": {"bias": {"kind": "huber", "delta": 0.1, "over": "norm"}},
    "log-cosh": {"bias": {"expr": "log(cosh(e))"}},
    "own": {"bias": {"expr": "sqrt(1 + 4*e**2)"}},
    "arctangent": {"bias": {"expr": "e*atan(e)"}},
    "decay": {"retention": {"decay": 0.9}},
    "decay after": {"retention": {"decay": 0.7, "order": "after"}},
    "ridge": {"retention": {"global": {"l2": 0.1}}},
    "momentum": {"momentum": 0.5},
    "momentum and decay": {"momentum": 0.8, "retention": {"decay": 0.9, "order": "after"}},
    "window": {"window": 3},
    "anchor": {"anchor": {"chunk": 8}},
    "anchor and decay": {"anchor": {"chunk": 4}, "retention": {"decay": 0.99, "order": "after"}},
    "window under gates": {"window": 3, "weights": {"kind": "token", "gamma": 0.25}},
    "polynomial": {"features": {"kind": "polynomial", "degree": 2, "a": [1, 1, 0.5]}},
    "a polynomial's own": {"features": {"kind": "polynomial", "degree": 2, "a": [0, 0.3, 2]}},
    "sigmoid link": {"retention": {"local": {"bregman": "w*log(w) + (1-w)*log(1-w)"}}},
    "a constant link": {"retention": {"local": {"bregman": "w**2/100"}}},
    "a link found as a root": {"retention": {"local": {"bregman": "w**2/20 - log(cosh(w))/10**4"}}},
}


@pytest.mark.some(3)
@pytest.mark.parametrize(
    "name", first_only(RULES, "huber-norm", "own", "decay after", "momentum", "window",
                       "anchor and decay", "a polynomial's own", "sigmoid link")
)  # fmt: skip
def test_just_inside_contracts_and_just_outside_grows(name: str) -> None:
    """One key again and again: the steps of what is read die out, or do not."""
    entries = dict(RULES[name])
    method = {name: entries.pop(name) for name in ("momentum", "anchor") if name in entries}
    method |= {"method": "momentum"} if "momentum" in method else {}
    probe = rule(**entries, optimizer={**method, "rate": "learned"})
    edge = _edge(probe)
    for factor, place in ((0.93, "inside"), (1.07, "outside")):
        one = rule(**entries, optimizer={**method, "rate": edge * factor})
        assert stability(one).place == place
        moved = _steps(one, rule(**entries))
        moved = moved.unflatten(0, (-1, one.anchor)).amax(1)
        assert (moved[-5:].max() < 1e-3 * moved[:20].max()) == (place == "inside")
        assert (moved[-5:].max() > 3 * moved[5:10].max()) == (place == "outside")


def _edge(probe: Rule) -> float:
    """The rate at which the bound is met, on unit keys."""
    eta = sym.coefficient("eta")
    bound = stability(probe).bound
    assert bound is not None
    at = bound.subs(sym.kappa, key_size(probe).high)
    return float(sp.nsolve(at.lhs - at.rhs, eta, 1))


def _steps(one: Rule, untouched: Rule) -> torch.Tensor:
    """|y_t − y_{t−1}| over tokens with the same key and a value near what is read at the start."""
    k = torch.tensor([0.6, -0.8, 0.0], dtype=torch.float64).expand(1, 200 * one.anchor, 1, 3)
    dot = derive_spec(untouched.problem.spec.model_copy(update={"bias": Dot()}))
    start = interpret(dot, k[:, :1], k[:, :1], torch.zeros_like(k[:, :1]), {})[0]
    v = start[:, :1] + 1e-4 * torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    y, _ = interpret(one, k, k, v.expand_as(k), {})
    y = torch.cat([start[:, :1], y], 1)
    return (y[:, 1:] - y[:, :-1]).abs().amax((0, 2, 3))


@pytest.mark.parametrize(
    ("activation", "grows"),
    [("where(x > 1, x, x**3)", True), ("where(x > 1, 1, x)", False), ("max(x, 0.1*x)", True)],
)
def test_an_activation_by_cases_is_judged_by_its_case_far_out(activation: str, grows: bool) -> None:
    memory = {"kind": "mlp", "activation": activation}
    told = rule(bias="dot", memory=memory, retention={"decay": "token"})
    assert ("grows with the other layers" in (stability(told).warning or "")) == grows


@pytest.mark.parametrize(("block", "channels"), [({}, 64), ({"key_dim": 16}, 16)])
def test_a_bound_that_grows_with_the_channels_says_how_many_there_are(
    block: dict[str, int], channels: int
) -> None:
    one = rule(features={"expr": "log(1 + exp(x))"}, block=block)
    most = channels * math.log1p(math.exp(channels**-0.5)) ** 2
    told = f"‖φ‖² ≤ {most:.4g} (features of unit keys, {channels} channels)"
    assert key_size(one).words == told
