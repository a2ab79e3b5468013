"""What a generator of rare specs found: each against the interpreter, or refused by its name."""

from typing import Any

import pytest
import torch
from conformance import compiled, inputs, run
from test_own_expressions import conforms

from mnemic.compiler.derive import derive_spec
from mnemic.compiler.explain.stability import stability
from mnemic.compiler.oracle.verify import verify
from mnemic.dsl.load import load
from mnemic.errors import InvalidSpec

BY_KEY = {"a": {"from": "input", "per": "key"}, "b": {"expr": "a/2"}}
PHASE = {"decay": "channel", "phase": {"from": "input", "per": "key"}}


@pytest.mark.parametrize("order", ["before", "after"])
def test_levels_whose_rows_decay_before_the_step(order: str) -> None:
    conforms({"name": "drawn", "bias": "l2", "optimizer": {"rate": "token"},
              "retention": {"decay": {"from": "input", "per": "value"}, "order": order},
              "readout": {"levels": "token", "max_levels": 10}})  # fmt: skip


@pytest.mark.parametrize("rate", ["a*0.5", "b", "1 - alpha"])
def test_an_expression_of_coefficients_by_channel_is_one_too(rate: str) -> None:
    names = BY_KEY if rate != "1 - alpha" else {}
    spec = {"mnemic": 1, "name": "drawn", "bias": "l2", "coefficients": names,
            "retention": {"decay": "channel"}, "optimizer": {"rate": {"expr": rate}}}  # fmt: skip
    if rate == "a*0.5":
        spec["coefficients"] = {"a": BY_KEY["a"]}
    with pytest.raises(InvalidSpec, match=r"depends on '(a|alpha)', which has one value per key"):
        load(spec)
    load({**spec, "memory": "diagonal"})


def test_a_key_that_a_phase_does_not_turn_is_refused() -> None:
    spec = {"name": "drawn", "bias": "dot", "retention": PHASE, "keys": {"write": "1 - alpha"}}
    with pytest.raises(InvalidSpec, match="a key that is no multiple of k under a phase"):
        conforms(spec)
    conforms({**spec, "keys": {"write": "(1 - alpha)*k"}})


@pytest.mark.parametrize(
    ("kernel", "kind"), [("s*sigmoid(s)", "indefinite"), ("exp(s) - 1", "bounded")]
)
def test_signs_of_a_series_that_sympy_leaves_open(kernel: str, kind: str) -> None:
    axes = {"bias": "l2", "features": {"kernel": kernel}, "optimizer": {"rate": "token"}}
    spec: dict[str, Any] = {"mnemic": 1, "name": "drawn", **axes}
    assert stability(derive_spec(load(spec))).kind == kind


@pytest.mark.parametrize("link", ["softplus(a)", "sigmoid(a) - 1/2"])
def test_a_link_of_functions_that_sympy_lacks(link: str) -> None:
    conforms({"name": "drawn", "bias": "l2", "optimizer": {"rate": "token"},
              "retention": {"link": link, "view": "ftrl", "decay": "token"}})  # fmt: skip


def test_a_root_of_a_loss_that_is_flat_near_its_value() -> None:
    conforms({"name": "drawn", "bias": {"expr": "2*max(n-1, 0)**2/2"},
              "optimizer": {"method": "implicit", "rate": "token"}})  # fmt: skip


@pytest.mark.parametrize("bias", ["dot", "l2"])
def test_a_proximal_step_acts_at_chunk_ends_whether_or_not_the_gradient_sees_the_memory(
    bias: str,
) -> None:
    """A penalty whose slope has a constant, λ(log w + 1) beside log w, is no mere decay."""
    spec = {"name": "drawn", "bias": bias,
            "retention": {"decay": "token", "local": {"bregman": "w*log(w)-w"},
                          "global": {"entropy": 0.1}},
            "optimizer": {"rate": "token", "anchor": {"chunk": 4}}}  # fmt: skip
    conforms(spec)
    checks = verify(derive_spec(load(spec)))
    assert all(check.passed for check in checks), checks


BONUS = {"from": "parameter", "per": "key"}
EXPONENTIAL = {"from": "input", "activation": "exp"}


def summed(rate: Any, **readout: Any) -> dict[str, Any]:
    """Return a rule of plain sums that is read so."""
    return {"name": "drawn", "bias": "dot", "retention": {"decay": "token", "order": "after"},
            "optimizer": {"rate": rate}, "readout": readout}  # fmt: skip


@pytest.mark.few
@pytest.mark.parametrize("rate", ["token", EXPONENTIAL], ids=["sigmoid", "exp"])
@pytest.mark.parametrize("normalizer", ["none", "sum", "max1"])
def test_a_bonus_weighs_the_current_pair_in_what_it_is_divided_by(
    normalizer: str, rate: Any
) -> None:
    conforms(summed(rate, normalizer=normalizer, bonus=BONUS))


@pytest.mark.parametrize("bonus", [None, BONUS], ids=["plain", "bonus"])
def test_exponential_rates_are_read_before_the_write(bonus: Any) -> None:
    conforms(summed(EXPONENTIAL, memory="before", bonus=bonus))


@pytest.mark.few
@pytest.mark.parametrize("form", ["recurrent", "chunk"])
@pytest.mark.parametrize("normalizer", ["sum", "max1"])
@pytest.mark.parametrize("size", [-120.0, 120.0])
def test_a_bonus_beside_weights_that_no_float_holds(
    size: float, normalizer: str, form: str
) -> None:
    """Far below 0 the bonus alone is read, v (u∘k)·q over it; far above 0 the memory alone is."""
    spec = {
        **summed(EXPONENTIAL, normalizer=normalizer, bonus=BONUS),
        "features": {"expr": "exp(x)"},
    }
    case, drawn = compiled(spec), {}
    for name, x in inputs(case, 9).items():
        drawn[name] = x.float()
    drawn["log_eta"] = drawn["log_eta"] + size
    drawn["bonus"] = drawn["bonus"].abs() + 1
    found = run(case, drawn, form)
    assert all(torch.isfinite(x).all() for _, x in found.parts())
    memory_alone = run(case, {**drawn, "bonus": 0 * drawn["bonus"]}, form).out
    k, q = (torch.exp(drawn[name]) for name in "kq")
    own = (k * q * drawn["bonus"]).sum(-1, keepdim=True)
    divisor = own if normalizer == "sum" else own.clamp_min(1)
    expected = drawn["v"] * own / divisor if size < 0 else memory_alone
    torch.testing.assert_close(found.out, expected, rtol=2e-5, atol=2e-5)
