"""``MNEMIC_DEBUG`` finds every number that a rule cannot work with, by its name, before it runs."""

from typing import Any

import pytest
import torch
from conformance import compiled, inputs

SPECS = ("gated-deltanet", "titans-linear", "mlstm", "dfw", "mesa", "longhorn", "gsa", "gateloop",
         "log-linear", "deltaproduct", "rwkv6", "huber-coordinate")  # fmt: skip
T = 3


@pytest.fixture(autouse=True)
def debugging(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that cost time."""
    monkeypatch.setenv("MNEMIC_DEBUG", "1")


def _with(arguments: dict[str, Any], name: str, value: float) -> dict[str, Any]:
    changed = arguments[name].clone()
    changed[(0, 1, *[0] * (changed.ndim - 2))] = value
    return {**arguments, name: changed}


@pytest.mark.parametrize("spec", SPECS)
def test_every_argument_is_finite_and_in_its_range(spec: str) -> None:
    case = compiled(spec)
    arguments = inputs(case, T)
    case.operator(**arguments)
    for name in arguments:
        for value, told in ((torch.inf, "read inf, a finite number is needed"),
                            (-torch.inf, "read -inf, a finite number is needed"),
                            (torch.nan, "holds NaN")):  # fmt: skip
            with pytest.raises(ValueError, match=f"^{spec}: {name}: {told}"):
                case.operator(**_with(arguments, name, value))
    for name, told in case.generated.coefficients.items():
        if told.low > -torch.inf:
            words = f"{'above' if told.above else 'at least'} {told.low:g}"
            with pytest.raises(ValueError, match=f"{name}: read .*, {words} is allowed"):
                case.operator(**_with(arguments, name, told.low - 0.5 * (not told.above)))
        if told.high < torch.inf:
            words = f"{'below' if told.below else 'at most'} {told.high:g}"
            with pytest.raises(ValueError, match=f"{name}: read .*, {words} is allowed"):
                case.operator(**_with(arguments, name, told.high + 0.5 * (not told.below)))


TOKEN = {"from": "input", "activation": "sigmoid"}

RANGES: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "scales of a simplex, one a matrix": (
        {"memory": {"kind": "mlp", "depth": 2, "norm": False},
         "retention": {"constraint": {"kind": "simplex", "scale": "learned"}}},
        {"scale1": "(0, inf]", "scale2": "(0, inf]"},
    ),
    "an expression of one coefficient": (
        {"retention": {"decay": {"expr": "1 - a/8"}}, "coefficients": {"a": TOKEN}},
        {"a": "[0, 8)"},
    ),
    "one coefficient in two places": (
        {"retention": {"decay": {"expr": "1 - eta/2"}},
         "optimizer": {"method": "momentum", "rate": "token", "momentum": {"expr": "1 - eta"}}},
        {"eta": "[0, 1]"},
    ),
    "an expression that turns": (
        {"retention": {"decay": {"expr": "1 - a**2/4"}},
         "coefficients": {"a": {"from": "input", "activation": "tanh"}}},
        {"a": "(-2, 2)"},
    ),
    "a logarithm": (
        {"retention": {"decay": "token"}, "optimizer": {"rate": {"expr": "1 - alpha"}}},
        {"log_alpha": "[-inf, 0]"},
    ),
    "weights that forget": (
        {"weights": {"kind": "geometric", "gamma": "token"}, "optimizer": "exact",
         "bias": "l2", "window": "all", "retention": {"global": {"l2": 0.1}}},
        {"log_gamma": "[-inf, 0]"},
    ),
    "means of Adam": (
        {"bias": "l2", "optimizer": {"method": "adam", "momentum": "token", "beta2": "token"}},
        {"theta": "[0, 1)", "beta2": "[0, 1)"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RANGES)
def test_ranges_follow_from_where_a_coefficient_acts(name: str) -> None:
    spec, ranges = RANGES[name]
    case = compiled({"name": "ranges", **spec})
    told = {n: str(c).rpartition(" in ")[2] for n, c in case.generated.coefficients.items()}
    assert {n: told[n] for n in ranges} == ranges
    case.operator(**inputs(case, T))


def test_what_is_masked_is_not_looked_at() -> None:
    case = compiled("gated-deltanet")
    wrong = _with(inputs(case, T), "eta", -1.0)
    mask = torch.ones(wrong["q"].shape[:2], dtype=torch.bool)
    mask[0, 1] = False
    case.operator(**wrong, mask=mask)
    with pytest.raises(ValueError, match=r"eta: read -1, at least 0 is allowed \(rate of the step"):
        case.operator(**wrong, mask=torch.ones_like(mask))


def test_states_and_starts_are_finite() -> None:
    case = compiled("gated-deltanet")
    arguments = inputs(case, T)
    _, state = case.operator(**arguments, output_final_state=True)
    with pytest.raises(ValueError, match=r"initial_state\['W'\]: read inf, a finite number"):
        case.operator(**arguments, initial_state={"W": state["W"] + torch.inf})
    deep = compiled("titans")
    arguments = inputs(deep, T)
    params = {p.name: torch.full((1,), torch.nan) for p in deep.signature.params}
    with pytest.raises(ValueError, match=r"params\['W1'\]: holds NaN"):
        deep.generated(**arguments, params=params)


@pytest.mark.parametrize("form", ["recurrent", "chunk"])
@pytest.mark.parametrize("spec", ["lp", "q-omega"])
def test_a_rule_that_diverges_says_from_which_token(spec: str, form: str) -> None:
    case = compiled(spec)
    arguments = inputs(case, 12, dtype=torch.float32)
    arguments["v"][1:] *= 1e6
    told = rf"^{spec}: the output is not finite from token \d+ on \(row 1, head \d\)"
    with pytest.raises(ValueError, match=told) as raised:
        case.operator(**arguments, form=form)
    assert "range of float32" in str(raised.value)
    arguments["v"][1:] /= 1e6
    case.operator(**arguments, form=form)
