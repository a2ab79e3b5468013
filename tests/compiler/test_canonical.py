"""Canonical forms: equal for equal rules, and the interpreter's own numbers when evaluated."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sympy as sp
import torch

from mnemic.compiler.compare.canonical import canonical, rule_hash, same
from mnemic.compiler.compare.entry_form import Form
from mnemic.compiler.derive import derive_spec
from mnemic.compiler.oracle.interpret import interpret
from mnemic.compiler.rule import KeyValuePairs, Layers, Levels, Rule
from mnemic.dsl.load import load
from mnemic.dsl.spec import Spec

SPECS = sorted((Path(__file__).parents[2] / "specs").glob("*/*.yaml"))
TOKENS = 3


def rule(**entries: Any) -> Rule:
    return derive_spec(Spec.model_validate({"name": "mine", **entries}))


DELTA = {"bias": "l2", "optimizer": {"rate": "token"}}
SPELLED = [
    {**DELTA, "bias": {"expr": "(y - v)**2/2"}},
    {**DELTA, "bias": {"expr": "e*e/2 + v**2"}},
    {**DELTA, "optimizer": {"rate": "b"}, "coefficients": {"b": "token"}},
    {**DELTA, "optimizer": {"rate": {"from": "input", "activation": "2*sigmoid(x)"}}},
    {**DELTA, "optimizer": {"rate": "learned"}},
    {**DELTA, "features": {"expr": "2*x - x"}},
    {**DELTA, "features": {"kind": "polynomial", "degree": 1, "mode": "power"}},
    {**DELTA, "retention": {"local": {"bregman": "w*w/2 + 7"}}},
    {**DELTA, "optimizer": {"rate": "token", "anchor": {"chunk": 1}}},
]


@pytest.mark.parametrize("entries", SPELLED)
def test_the_same_rule_spelled_otherwise_has_the_same_hash(entries: dict[str, Any]) -> None:
    assert rule_hash(rule(**entries)) == rule_hash(rule(**DELTA))


@pytest.mark.parametrize(
    "entries",
    [
        {**DELTA, "bias": "dot"},
        {**DELTA, "retention": {"decay": "token"}},
        {**DELTA, "retention": {"local": {"bregman": "w**2"}}},
        {**DELTA, "optimizer": {"rate": "token", "anchor": {"chunk": 4}}},
        {**DELTA, "features": "relu"},
        {**DELTA, "readout": {"memory": "before"}},
    ],
)
def test_another_rule_has_another_hash(entries: dict[str, Any]) -> None:
    assert rule_hash(rule(**entries)) != rule_hash(rule(**DELTA))


def test_the_order_of_decay_is_no_difference_for_the_dot_loss() -> None:
    before, after = ({"decay": "channel", "order": order} for order in ("before", "after"))
    assert rule_hash(rule(retention=before)) == rule_hash(rule(retention=after))
    squared = [rule(retention=r, **DELTA) for r in (before, after)]
    assert rule_hash(squared[0]) != rule_hash(squared[1])


def test_cases_are_written_one_way() -> None:
    swapped = {"expr": "where(abs(e) > d, d*(abs(e) - d/2), e**2/2)"}
    huber = rule(bias={"kind": "huber", "delta": "token"}, optimizer={"rate": "token"})
    other = rule(bias=swapped, coefficients={"d": "token"}, optimizer={"rate": "token"})
    assert rule_hash(huber) == rule_hash(other)


def test_a_form_that_algebra_does_not_settle_is_settled_by_numbers() -> None:
    plain = rule(bias={"expr": "log(cosh(e))"})
    long = rule(bias={"expr": "log((exp(e) + exp(-e))/2)"})
    found = same(canonical(plain), canonical(long))
    assert found
    assert found.how in ("algebra", "random numbers")
    assert not same(canonical(plain), canonical(rule(bias={"expr": "log(cosh(2*e))"})))


DEEP: dict[str, Any] = {
    **DELTA, "memory": {"kind": "mlp", "activation": "silu"}, "retention": {"decay": "token"},
}  # fmt: skip
MUON = {"method": "muon", "rate": "token"}


@pytest.mark.parametrize(
    "entries",
    [
        {**DEEP, "memory": {"kind": "mlp", "activation": "x*sigmoid(x)"}},
        {**DEEP, "memory": {"kind": "mlp", "activation": "x/(1 + exp(-x))"}},
        {**DEEP, "memory": {"kind": "mlp", "activation": "x*(1 + tanh(x/2))/2"}},
        {**DEEP, "memory": {"chain": [{"kind": "mlp", "activation": "silu"}], "every": [1]}},
        {**DEEP, "bias": {"expr": "e**2/2"}},
        {**DEEP, "optimizer": {"rate": "b", "rate_at": "outside"}, "coefficients": {"b": "token"}},
        {**DEEP, "optimizer": {"rate": "token", "ns_steps": 3}},
    ],
)
def test_the_same_deep_rule_spelled_otherwise_is_the_same(entries: dict[str, Any]) -> None:
    one, other = canonical(rule(**entries)), canonical(rule(**DEEP))
    if one.coefficients == other.coefficients:
        assert same(one, other)
    assert rule_hash(rule(**entries)) == rule_hash(rule(**DEEP))


@pytest.mark.some(6)
@pytest.mark.parametrize(
    "entries",
    [
        {**DEEP, "memory": {"kind": "mlp", "activation": "gelu"}},
        {**DEEP, "memory": {"kind": "mlp", "activation": "x*sigmoid(2*x)"}},
        {**DEEP, "memory": {"kind": "mlp", "activation": "silu", "depth": 3}},
        {**DEEP, "memory": {"kind": "mlp", "activation": "silu", "expansion": 2}},
        {**DEEP, "memory": {"kind": "mlp", "activation": "silu", "norm": True}},
        {**DEEP, "memory": {"kind": "mlp", "activation": "silu", "residual": False}},
        {**DEEP, "memory": {"kind": "glu", "activation": "silu"}},
        {**DEEP, "memory": "linear"},
        {**DEEP, "bias": "dot"},
        {**DEEP, "features": {"kind": "polynomial", "degree": 2}},
        {**DEEP, "retention": {"decay": "token", "normalize": "rows"}},
        {**DEEP, "optimizer": {"rate": "token", "anchor": {"chunk": 4}}},
        {**DEEP, "optimizer": {"rate": "token", "every": 4}},
        {**DEEP, "optimizer": MUON},
        {**DEEP, "readout": {"memory": "before"}},
        {**DEEP, "retention": {"decay": "token", "global": {"elastic": {"l1": 0.1, "l2": 0.1}}}},
    ],
)
def test_another_deep_rule_is_another(entries: dict[str, Any]) -> None:
    assert rule_hash(rule(**entries)) != rule_hash(rule(**DEEP))
    assert not same(canonical(rule(**entries)), canonical(rule(**DEEP)))


def test_where_o_stands_and_how_long_it_iterates_are_told() -> None:
    variants = (
        MUON, {**MUON, "rate_at": "outside"}, {**MUON, "ns_steps": 3}, {**MUON, "every": 4},
        {**MUON, "every": 4, "momentum": "token"}, {**MUON, "momentum": "token"},
    )  # fmt: skip
    hashes = {rule_hash(rule(**{**DEEP, "optimizer": o})) for o in variants}
    assert len(hashes) == len(variants)


def test_what_is_never_read_is_no_state() -> None:
    one_step = rule(
        bias="l2",
        window="all",
        optimizer={"method": "batch", "inner_steps": 1, "from": "origin", "rate": 1},
    )
    assert [state.name for state in canonical(one_step).states] == ["W"]
    assert rule_hash(one_step) == rule_hash(rule())


def test_the_hash_does_not_depend_on_the_process() -> None:
    entries = {"bias": {"kind": "huber", "delta": "token"}, "retention": {"decay": "channel"}}
    text = (
        "from mnemic.dsl.spec import Spec\n"
        "from mnemic.compiler.derive import derive_spec\n"
        "from mnemic.compiler.compare.canonical import rule_hash\n"
        f"print(rule_hash(derive_spec(Spec.model_validate({{'name': 'a', **{entries}}}))))"
    )
    found = subprocess.run(
        [sys.executable, "-c", text],
        env={"PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == rule_hash(rule(**entries))


@pytest.mark.some(4)
@pytest.mark.few
@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_the_form_evaluated_is_the_interpreter(path: Path) -> None:
    """One head, two channels, three tokens: every entry against the float64 oracle."""
    derived = derive_spec(load(path))
    spec = derived.problem.spec
    terms = derived.structure.missing is not None or isinstance(derived, Layers | KeyValuePairs)
    if terms or derived.anchor > 1:
        pytest.skip("given by its terms, or by more than one step")
    if isinstance(derived, Levels):
        pytest.skip("a tag tells how levels are weighed")
    if spec.features.word() not in ("identity", "elu", "relu"):
        pytest.skip("the form has features of its own size")
    if derived.retained.mode == "multiplicative" or derived.retained.link.normaliser == "root":
        pytest.skip("a root stands in the form as a place holder")
    inputs = Inputs(derived)
    out, _ = interpret(derived, inputs.q, inputs.k, inputs.v, inputs.arguments)
    torch.testing.assert_close(run(canonical(derived), inputs), out[0, :, 0], rtol=0, atol=1e-9)


class Inputs:
    """Random arguments of the operator, and the same by the names of a form."""

    def __init__(self, derived: Rule) -> None:
        seed = torch.Generator().manual_seed(7)
        self.rule, self.micro = derived, derived.problem.spec.optimizer.micro_steps
        many = (1, TOKENS, self.micro, 1, 2) if self.micro > 1 else (1, TOKENS, 1, 2)
        draw = lambda *shape: torch.rand(*shape, generator=seed, dtype=torch.float64)  # noqa: E731
        self.q, self.k = draw(1, TOKENS, 1, 2) - 0.4, draw(*many) - 0.3
        complex_numbers = derived.diagonal and derived.phase
        self.v = draw(*many[:-1], 4 if complex_numbers else 2) - 0.5
        self.arguments: dict[str, torch.Tensor] = {}
        for scalar in derived.scalars:
            if scalar.argument is not None:
                value = 0.1 + 0.8 * draw(*self._shape(scalar.name, scalar.per))
                log = scalar.logarithmic
                self.arguments[scalar.argument] = value.log() if log else value
        for role in ("predict", "erase", "write"):
            if sp.Symbol(role, real=True) in derived.problem.keys[role].free_symbols:
                entry = getattr(derived.problem.spec.keys, role)
                if entry is not None and entry.own:
                    self.arguments[role] = draw(*many) - 0.4

    def _shape(self, name: str, per: str) -> tuple[int, ...]:
        if name == "gamma" and self.rule.gamma == "window" and self.rule.window > 1:
            return (1, TOKENS, 1, self.rule.window)
        steps = (self.micro,) if self.micro > 1 and name in ("eta", "delta") else ()
        return (1, TOKENS, *steps, 1, *((2,) if per != "head" else ()))

    def value(self, name: str, t: int) -> float:
        """A symbol of the form at token t; ``k_0__1`` is of the key before."""
        name, _, mark = name.partition("__")
        base, _, index = name.rpartition("_")
        lag = int(mark or 0)
        if not index.isdigit():
            base, index = name, ""
        if base in ("k", "q", "v", "predict", "erase", "write"):
            source = {"k": self.k, "q": self.q, "v": self.v}.get(base)
            source = self.arguments[base] if source is None else source
            return self._entry(source, t, lag, int(index))
        return self._coefficient(base, index, t, lag)

    def _entry(self, source: torch.Tensor, t: int, lag: int, index: int) -> float:
        if self.micro > 1 and source.ndim == 5:
            return float(source[0, t, lag, 0, index])
        return float(source[0, t - lag, 0, index]) if t >= lag else 0.0

    def _coefficient(self, base: str, index: str, t: int, lag: int) -> float:
        scalar = self.rule.problem.scalar(base)
        assert scalar is not None
        assert scalar.argument is not None
        source = self.arguments[scalar.argument]
        source = source.exp() if scalar.logarithmic else source
        if base == "gamma" and self.rule.gamma == "window" and self.rule.window > 1:
            return float(source[0, t, 0, -1 - lag])
        row = source[0, t]
        if self.micro > 1 and base in ("eta", "delta"):
            row = row[lag]
        return float(row[0, int(index)] if index else row[0])


def run(form: Form, inputs: Inputs) -> torch.Tensor:
    """The form's read-outs, token by token, from its own start."""
    features = inputs.rule.problem.features
    carried = {
        symbol: float(state.start) if state.name != "H" or i in (0, 3) else 0.0
        for state in form.states
        for i, symbol in enumerate(state.symbols)
    }
    functions, rows = dict(form.functions), []
    for t in range(TOKENS):
        at: dict[Any, Any] = {**carried, **dict.fromkeys(form.parameters, 0.0)}
        at |= {sp.Symbol("t", nonnegative=True): float(t), sp.Symbol("H", positive=True): 1.0}
        at |= {s: inputs.value(str(s), t) for s in (*form.inputs, *form.coefficients)}
        for symbol in form.inputs:
            if str(symbol)[0] in "kq":
                at[symbol] = number(features, {sp.Symbol("x", real=True): at[symbol]})
        for whole in form.wholes:
            values = [number(a, at) for a in whole.arguments]
            names = dict(zip(sp.symbols("hold0:9", real=True), values, strict=False))
            at[whole.symbol] = number(functions[whole.function], {**at, **names})
        rows.append([number(e, at) for e in form.output])
        after = [number(e, at) for state in form.states for e in state.after]
        carried = dict(zip(carried, after, strict=True))
    return torch.tensor(rows, dtype=torch.float64)


def number(expr: Any, at: dict[Any, Any]) -> float:
    return float(sp.sympify(expr).subs(at).doit())


def test_a_hash_is_the_same_in_every_process() -> None:
    """Coefficients that a sign tells apart, and no name, stand in one order whatever sets are."""
    program = (
        "from mnemic.compiler.compare.canonical import rule_hash;"
        "from mnemic.pipeline import derive;"
        "print(rule_hash(derive('rwkv7-full')))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("0", "1")
    }  # fmt: skip
    assert len(found) == 1
