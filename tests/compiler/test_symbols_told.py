"""Every symbol that a derivation prints is told: in it, by its coefficients, in the notation."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import sympy as sp
import torch
from packaged import NAMES, rule_of
from printed_specs import OWN

from mnemic.compiler.derive import derive_spec
from mnemic.compiler.explain import letters, printing
from mnemic.compiler.explain.equations import equations
from mnemic.compiler.explain.explanation import Explanation, explain, remarks, statement
from mnemic.compiler.explain.render import equation_text
from mnemic.compiler.oracle.interpret import interpret
from mnemic.compiler.oracle.reference_features import feature_map
from mnemic.compiler.rule import Rule
from mnemic.dsl.spec import Spec

NOTATION = Path(__file__).parents[2] / "docs" / "notation.md"
INDICES = {"ₜ": "t", "ᵢ": "i", "ⱼ": "j", "ᵣ": "r", "ₛ": "s"}
LETTER, MARKS, BELOW = "A-Za-zͰ-ΟΡΤ-Ͽℓ", "\u0300-\u036f", "₀-₉"
TOKEN = re.compile(rf"[{LETTER}](?:[{LETTER}{MARKS}0-9]|_(?=[{LETTER}]))*[{BELOW}]*")
"""A name: letters with hats, digits behind them, underscores within."""
SIDES = re.compile(r" = | ← |: ")
CLAUSES = re.compile(r",  |, then |;  |; ")
SPOKEN = {"if", "otherwise", "with"}
"""Words that SymPy expressions are joined with in print."""


def parts(text: str) -> Iterator[tuple[str, str]]:
    """Each name of a text with what follows it."""
    plain = unicodedata.normalize("NFD", text.replace("'s ", " "))
    for found in TOKEN.finditer(plain):
        yield found[0], plain[found.end() :]
    yield from ((INDICES[sign], "") for sign in plain if sign in INDICES)


def is_function(name: str, after: str) -> bool:
    plain = name.rstrip("₂")
    return after.startswith("(") and len(plain) > 1 and plain.islower() and hasattr(sp, plain)


def names(text: str, *, formula: bool) -> set[str]:
    """The symbols of a line: every name in a formula; in a sentence single letters, names with a
    digit, and words beside an operator."""
    found = set()
    for name, after in parts(text):
        if is_function(name, after) or (formula and name in SPOKEN):
            continue
        word = len(re.sub(f"[{MARKS}]", "", name)) > 1 and name.isalpha()
        if formula or not word or re.match(r"[·^/(ₜᵢᵣ]", after):
            found.add(name)
    return found


def defined(text: str) -> set[str]:
    """What the clauses of a line define: the names before ``=``, with a function its arguments."""
    found = {name for pair in re.findall(r"root\[(\w+) = .*?, (\w+) = ", text) for name in pair}
    for clause in CLAUSES.split(text):
        left, *right = SIDES.split(clause, maxsplit=1)
        if not right:
            continue
        for one in re.split(r", (?![^(]*\))", left):
            heads = [name for name, _ in parts(one.strip())][:1]
            called = re.match(rf"[{LETTER}{MARKS}{BELOW}]+\(", unicodedata.normalize("NFD", one))
            found |= {name for name, _ in parts(one)} if called else set(heads)
    return found


def circular(text: str) -> list[str]:
    """Clauses in which a name with its index is told by itself."""
    found = []
    for clause in CLAUSES.split(unicodedata.normalize("NFD", text)):
        left, equals, right = clause.partition(" = ")
        name = re.fullmatch(rf"[{LETTER}{MARKS}0-9{BELOW}]+[ₜᵢ]?", left)
        if equals and name and re.search(rf"(?<!\w){re.escape(left)}(?![\w^ₜᵢ₋])", right):
            found.append(clause)
    return found


@dataclass
class Table:
    """The letters of the notation: those of one row, and patterns of numbered ones."""

    single: set[str] = field(default_factory=set)
    numbered: set[str] = field(default_factory=set)


@cache
def notation() -> Table:
    """The first column of the page; a letter in two rows has two meanings, so it tells nothing."""
    rows = [line for line in NOTATION.read_text().splitlines() if line.startswith("| ")][2:]
    counts: Counter[str] = Counter()
    table = Table()
    for row in rows:
        cell = row.split("|")[1]
        here = {name for name, _ in parts(cell)}
        counts.update(here)
        if "…" in cell:
            table.numbered |= {name.rstrip("0123456789") for name in here}
    table.single = {name for name, count in counts.items() if count == 1}
    return table


def lines(rule: Rule, told: Explanation) -> Iterator[tuple[str, bool]]:
    """The printed equations and steps; whether a line is a formula alone."""
    timed = printing.steps_of(rule)
    for step in told.steps:
        if step.title != "class":
            yield equation_text(step.equation, timed), isinstance(step.equation, sp.Basic)
    yield from ((line.text, False) for line in told.equations)
    for one in told.arguments:
        if one.argument is None:
            yield f"{letters.letter(one.name)} = {printing.text(one.value, timed)}", True


def untold(rule: Rule) -> dict[str, str]:
    """Symbols without a meaning, each with a line that prints it."""
    told, table = explain(rule), notation()
    shown = [*lines(rule, told)]
    known = table.single.union(*(defined(text) for text, _ in shown))
    known |= {letters.letter(one.name) for one in told.arguments}
    known |= {found[1] for line in told.remarks if (found := re.match(r"(\w+) is ", line))}
    known |= {name for line in told.remarks for name in defined(line.partition(": ")[2])}
    each = (re.search(r"has (.*) of its own", line) for line in told.remarks)
    known |= {name for found in each if found for name, _ in parts(found[1])}
    found = {}
    for text, formula in shown:
        for name in names(text, formula=formula):
            bare = name.rstrip("₀")
            many = re.fullmatch(r"(\w+?)\d+", name)
            indexed = "_" in name and known.issuperset(name.split("_"))
            numbered = many is not None and many[1] in table.numbered
            bound = re.search(rf"[ΣΠ]_\(?{re.escape(name)}\b|tokens {re.escape(name)} with", text)
            if not (bare in known or indexed or numbered or bound):
                found[name] = text
    return found


def mine(**axes: Any) -> Rule:
    return derive_spec(Spec.model_validate({"name": "mine", **axes}))


def text_of(rule: Rule, name: str) -> list[str]:
    return [line.text for line in equations(rule) if line.name == name]


@pytest.mark.few
@pytest.mark.parametrize("name", NAMES)
def test_every_printed_symbol_is_told(name: str) -> None:
    assert untold(rule_of(name)) == {}


SIMPLEX = {"local": "kl", "constraint": {"kind": "simplex", "scale": 2.0}}
BEFORE = {"decay": "token", "order": "before"}
MIXED: dict[str, dict[str, Any]] = {
    **OWN,
    "norm": {"bias": {"expr": "n**4/4"}},
    "root": {"bias": {"expr": "e**4/4"}, "optimizer": {"method": "implicit", "rate": "token"}},
    "adam": {"bias": "l2", "optimizer": {"method": "adam"}},
    "adagrad": {"bias": "l2", "optimizer": {"method": "adagrad"}},
    "write key of a window": {"bias": "dot", "window": 3, "keys": {"write": "own"}},
    "keys of layers": {"bias": "l2", "memory": {"kind": "mlp"}, "keys": {"predict": "own"}},
    "layers, before": {"bias": "l2", "memory": {"kind": "mlp"}, "retention": {**SIMPLEX, **BEFORE}},
    "ball, before": {"bias": "l2", "retention": {"constraint": {"kind": "ball"}, **BEFORE}},
    "phase": {"bias": "l2", "retention": {"phase": {"from": "input"}}, "features": "elu"},
    "stated link": {"bias": "l2", "retention": {"link": "sign(a)*sqrt(abs(a))", "view": "ftrl"}},
}


@pytest.mark.some(8)
@pytest.mark.parametrize("name", MIXED)
def test_every_symbol_of_a_spec_of_ones_own_is_told(name: str) -> None:
    assert untold(mine(**MIXED[name])) == {}


@pytest.mark.few
@pytest.mark.parametrize("name", NAMES)
def test_no_line_tells_a_symbol_by_itself(name: str) -> None:
    rule = rule_of(name)
    assert [c for text, _ in lines(rule, explain(rule)) for c in circular(text)] == []


@pytest.mark.parametrize(
    ("features", "told"),
    [
        ("elu", "φ(x) = {1 + x if x > 0; exp(min(0, x)) otherwise}"),
        ({"expr": "x**2 + 1"}, "φ(x) = 1 + x²"),
        ({"kind": "polynomial", "degree": 3, "mode": "power"}, "φ(x)·φ(y) = (x·y)^3"),
        ({"kind": "taylor", "order": 2}, "φ(x)·φ(y) = 1 + (x·y) + 1/2 (x·y)^2"),
        ("softmax", "φ(x) = softmax(x)"),
    ],
)
def test_a_finite_feature_map_is_told(features: Any, told: str) -> None:
    rule = mine(bias="l2", features=features)
    (step,) = [step for step in rule.steps if step.title == "features"]
    assert equation_text(step.equation, {}) == told
    assert untold(rule) == {}


@pytest.mark.parametrize("name", NAMES)
def test_phi_is_told_where_it_is_printed(name: str) -> None:
    rule = rule_of(name)
    told = any(step.title == "features" for step in rule.steps) or text_of(rule, "kernel")
    turned = any("φ(xₜ) = " in line for line in remarks(rule))
    used = any("φ(" in line.text for line in equations(rule))
    assert bool(told) or turned or not used


@pytest.mark.parametrize(("kind", "nu"), [("dpfp", 1), ("dpfp", 2), ("cosine", 1)])
def test_formulas_of_features_are_those_of_the_maps(kind: str, nu: int) -> None:
    """ρ ∘ roll(ρ, j) and max(x, 0) by the angle π (t − 1)/2M, by hand beside the map."""
    entry = {"kind": kind} | ({"nu": nu} if kind == "dpfp" else {"length": 8})
    rule = mine(bias="l2", features=entry)
    (step,) = [step for step in rule.steps if step.title == "features"]
    x, t = torch.tensor([0.3, -1.2, 0.5], dtype=torch.float64), 5
    if kind == "dpfp":
        rho = torch.cat([x, -x]).clamp(min=0)
        hand = torch.cat([rho * rho.roll(j) for j in range(1, nu + 1)])
        assert step.equation.startswith("φ(x) = [ρ ∘ roll(ρ, 1)")
        assert f"roll(ρ, {nu})" in step.equation
        assert ("…" in step.equation) == (nu > 1)
    else:
        angle = torch.tensor(torch.pi * (t - 1) / 16, dtype=torch.float64)
        hand = torch.cat([x.clamp(min=0) * angle.cos(), x.clamp(min=0) * angle.sin()])
        assert "cos(π (t − 1)/16)" in step.equation
    torch.testing.assert_close(feature_map(rule.problem, x, torch.tensor(t - 1)), hand)


def test_order_before_behind_a_link_sees_the_link_of_the_decayed_dual() -> None:
    """ŷₜ = link(αₜ Aₜ₋₁) kₜ, by hand beside the interpreter."""
    simplex = {"kind": "simplex", "scale": 2.0}
    retention = {"local": "kl", "constraint": simplex, "decay": "token", "order": "before"}
    rule = mine(bias="l2", retention=retention, optimizer={"method": "gd", "rate": "token"})
    assert text_of(rule, "prediction") == ["ŷₜ = link(αₜ Aₜ₋₁) kₜ"]
    draw = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 1, 4, 1, 3, dtype=torch.float64, generator=draw) / 2
    alpha, eta = torch.rand(2, 1, 4, 1, dtype=torch.float64, generator=draw)
    y, _ = interpret(rule, q, k, v, {"log_alpha": alpha.log(), "eta": eta})
    link = lambda dual: 2 * torch.softmax(dual.flatten(), 0).view_as(dual)  # noqa: E731
    dual = torch.zeros(3, 3, dtype=torch.float64)
    for t in range(4):
        a, error = alpha[0, t, 0], link(alpha[0, t, 0] * dual) @ k[0, t, 0] - v[0, t, 0]
        dual = a * dual - eta[0, t, 0] * torch.outer(error, k[0, t, 0])
        torch.testing.assert_close(link(dual) @ q[0, t, 0], y[0, t, 0])


def test_order_before_beside_a_penalty_sees_no_part_of_it() -> None:
    """ŷₜ = αₜ Wₜ₋₁ kₜ, by hand beside the interpreter: the threshold comes with a step."""
    retention = {"global": {"elastic": {"l1": 0.1, "l2": 0}}, "decay": "token", "order": "before"}
    rule = mine(bias="l2", retention=retention, optimizer={"rate": "token"})
    assert text_of(rule, "prediction") == ["ŷₜ = αₜ Wₜ₋₁ kₜ"]
    q, k, v, alpha, eta = _drawn()
    y, _ = interpret(rule, q, k, v, {"log_alpha": alpha.log(), "eta": eta})
    w = torch.zeros(3, 3, dtype=torch.float64)
    for t in range(4):
        a, rate = alpha[0, t, 0], eta[0, t, 0]
        dual = a * w - rate * torch.outer(a * w @ k[0, t, 0] - v[0, t, 0], k[0, t, 0])
        w = torch.nn.functional.softshrink(dual, float(rate) / 10)
        torch.testing.assert_close(w @ q[0, t, 0], y[0, t, 0])
    local = {**retention, "local": {"bregman": "w**4/4 + w**2/2"}}
    rule = mine(bias="l2", retention=local, optimizer={"rate": "token"})
    assert text_of(rule, "prediction") == ["ŷₜ = (∇R)⁻¹(αₜ ∇R(Wₜ₋₁)) kₜ"]


def test_rows_over_their_sum_are_summed_with_what_is_left_of_them() -> None:
    """κ = exp(s) / Σ cᵢ exp(s), by hand beside the interpreter; αₜ cancels in a prediction."""
    rule = mine(
        bias="l2", features={"kernel": "exp(s)", "normalise": "row"}, optimizer={"rate": "token"},
        retention={"decay": "token", "order": "before"},
    )  # fmt: skip
    assert text_of(rule, "prediction") == ["ŷₜ = Wₜ₋₁ φ(kₜ)"]
    assert text_of(rule, "kernel")[1] == "κ₂(s) = exp(s) / Σ_(i≤t) cᵢ exp(s),  s = k·x"
    q, k, v, alpha, eta = _drawn()
    y, _ = interpret(rule, q, k, v, {"log_alpha": alpha.log(), "eta": eta})
    left, rows = torch.zeros(0, dtype=torch.float64), torch.zeros(0, 3, dtype=torch.float64)

    def read(x: torch.Tensor) -> torch.Tensor:
        weights = left * (k[0, : len(left), 0] @ x).exp()
        return weights @ rows / weights.sum() if len(left) else torch.zeros_like(x)

    for t in range(4):
        row = eta[0, t, 0] * (v[0, t, 0] - read(k[0, t, 0]))
        left, rows = torch.cat([alpha[0, t, 0] * left, left.new_ones(1)]), torch.vstack([rows, row])
        torch.testing.assert_close(read(q[0, t, 0]), y[0, t, 0])


def _drawn() -> tuple[torch.Tensor, ...]:
    draw = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 1, 4, 1, 3, dtype=torch.float64, generator=draw) / 2
    alpha, eta = torch.rand(2, 1, 4, 1, dtype=torch.float64, generator=draw)
    return q, k, v, alpha, eta


@pytest.mark.parametrize(
    ("retention", "told"),
    [
        ({"decay": "token"}, ", decay αₜ after the gradient,"),
        ({"decay": 0.5, "order": "before"}, ", decay 1/2 before the gradient,"),
        ({"decay": "1 - 1/(t + 2)"}, ", decay 1 − 1/(2 + t) after the gradient,"),
        ({}, "kept near Wₜ₋₁ by l2, by gradient steps"),
    ],
)
def test_the_problem_tells_the_decay(retention: dict[str, Any], told: str) -> None:
    assert told in statement(mine(bias="l2", retention=retention))


def test_tokens_count_from_one_in_the_rule() -> None:
    rule = mine(bias="l2", retention={"decay": "1 - 1/(t + 2)"})
    assert text_of(rule, "memory") == ["Wₜ = t/(1 + t) Wₜ₋₁ − Gₜ"]


def test_coefficients_of_keys_and_values_of_a_window_are_those_of_its_tokens() -> None:
    keys = {"write": "a*k", "value": "b*v"}
    coefficients = {name: {"from": "input"} for name in "ab"}
    rule = mine(bias="l2", window=2, keys=keys, coefficients=coefficients)
    (error,), (gradient,) = text_of(rule, "error"), text_of(rule, "gradient")
    assert error == "eᵢ = ŷᵢ − vᵢ,  vᵢ ← (bᵢ ∘ vᵢ)"
    assert "aᵢ ∘ kᵢ" in gradient
    assert "aₜ" not in gradient


@pytest.mark.parametrize("name", ["deltaformer-round", "deltaformer-softmax"])
def test_rows_say_which_kernel_they_are_seen_by(name: str) -> None:
    (sums, _) = text_of(rule_of(name), "rows")
    assert "κ = κ₁ and i < t at a prediction" in sums
    assert "κ = κ₂ and i ≤ t at a read-out" in sums


def test_the_problem_tells_weights_that_fade() -> None:
    """γ weighs a token by all that came after it: Hₜ = γₜ Hₜ₋₁ + …."""
    assert "Σ_(i≤t) Π_(j=i+1..t) γⱼ ℓ(W; kᵢ, vᵢ)" in statement(rule_of("mesa"))


def test_a_phase_turns_the_features() -> None:
    """φ(xₜ) = [f(xₜ) cos Ωₜ, f(xₜ) sin Ωₜ], by hand beside the interpreter."""
    rule = mine(bias="dot", features="elu", retention={"phase": {"from": "input", "per": "key"}})
    assert any("[f(xₜ) cos Ωₜ, f(xₜ) sin Ωₜ], Ωₜ = Ωₜ₋₁ + ωₜ" in line for line in remarks(rule))
    draw = torch.Generator().manual_seed(0)
    q, k, v, phase = torch.randn(4, 1, 4, 1, 3, dtype=torch.float64, generator=draw) / 2
    y, _ = interpret(rule, q, k, v, {"phase": phase})
    turn = phase[0, :, 0].cumsum(0)
    f = lambda x: 1 + torch.nn.functional.elu(x[0, :, 0])  # noqa: E731
    phi = lambda x: torch.cat([f(x) * turn.cos(), f(x) * turn.sin()], -1)  # noqa: E731
    hand = torch.tril(phi(q) @ phi(k).T) @ v[0, :, 0]
    torch.testing.assert_close(hand, y[0, :, 0])


def test_a_row_of_layers_begins_with_its_step_and_fades_with_its_matrix() -> None:
    """uᵢ = −ηᵢ δ2ᵢ, then α of every later token; δ2 from W1 at the start, where W2 = 0."""
    optimizer = {"method": "gd", "rate": "token", "anchor": {"chunk": 8}}
    axes: dict[str, Any] = {"features": "exponential", "memory": "mlp", "optimizer": optimizer}
    rule = mine(bias="dot", retention={"decay": "token"}, **axes)
    (row,) = text_of(rule, "rows")
    assert row.endswith("uᵢ = −ηₜ δ2ᵢ at t = i, then as W2ₜ")
    draw = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 1, 4, 1, 3, dtype=torch.float64, generator=draw) / 2
    alpha, eta = torch.rand(2, 1, 4, 1, dtype=torch.float64, generator=draw)
    w = torch.randn(1, 3, 12, dtype=torch.float64, generator=draw)
    given = {"log_alpha": alpha.log(), "eta": eta}
    _, state = interpret(rule, q, k, v, given, params={"W1": w})
    delta = (-v[0, :, 0] @ w[0]) / 2  # the slope of GELU at 0
    left = torch.stack([alpha[0, i + 1 :, 0].prod() for i in range(4)])
    torch.testing.assert_close(state["W2"][0, 0].mT, (-eta[0, :, 0] * left)[:, None] * delta)
