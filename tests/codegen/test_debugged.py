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
            with pytest.raises(ValueError, match=f"{name}: read .*, at least {told.low:g} is"):
                case.operator(**_with(arguments, name, told.low - 0.5))
        if told.high < torch.inf:
            with pytest.raises(ValueError, match=f"{name}: read .*, at most {told.high:g} is"):
                case.operator(**_with(arguments, name, told.high + 0.5))


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
