"""Derivations for people: golden texts, and the promises that other modules build on."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import sympy as sp
from packaged import rule_of

from mnemic import pipeline
from mnemic.compiler import symbols as sym
from mnemic.compiler.derive import derive_spec
from mnemic.compiler.explain import printing
from mnemic.compiler.explain.render import (
    equations,
    latex_of,
    to_json,
    to_latex,
    to_markdown,
    to_text,
)
from mnemic.compiler.explain.tex_lines import aligned
from mnemic.compiler.rule import Rule
from mnemic.dsl.spec import Spec

SPECS = sorted((Path(__file__).parents[2] / "specs").glob("*/*.yaml"))
GOLDEN = (
    "gated-deltanet", "titans-linear", "huber-norm", "elastic-net", "kl-simplex", "rwkv7-full",
    "rls", "ttt-linear", "longhorn", "swla", "mlstm", "titans", "atlas", "atlas-plus", "lact",
    "cms", "memora", "moneta", "omeganet", "deltaformer", "deltaformer-softmax",
)  # fmt: skip


def load(path: Path) -> Rule:
    return rule_of(path.stem)


def rule(**entries: Any) -> Rule:
    return derive_spec(Spec.model_validate({"name": "mine", **entries}))


@pytest.mark.few
@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_every_system_is_shown_in_every_way(path: Path) -> None:
    derived = load(path)
    text, latex, markdown = to_text(derived), to_latex(derived), to_markdown(derived)
    json.dumps(to_json(derived))
    assert text.isprintable() or "\n" in text
    assert not re.search(r"\b(None|nan|Symbol|Piecewise)\b", text)
    for equation in equations(derived):
        assert equation.text in text
        assert aligned(equation.latex) in latex
        assert equation.latex in markdown
    assert "**" not in text
    assert latex.count("{") == latex.count("}")
    assert all(ord(c) < 128 or c in "ŷ" for c in latex_of(derived))


@pytest.mark.some(11)
@pytest.mark.parametrize("name", GOLDEN)
def test_golden_derivations(name: str, golden: Any) -> None:
    (path,) = (p for p in SPECS if p.stem == name)
    golden.check(f"derivations/{name}.txt", to_text(load(path)))


def test_golden_latex_and_markdown(golden: Any) -> None:
    derived = load(next(p for p in SPECS if p.stem == "gated-deltanet"))
    golden.check("derivations/gated-deltanet.tex", to_latex(derived))
    golden.check("derivations/gated-deltanet.md", to_markdown(derived))


def test_equations_are_numbered_and_named() -> None:
    full = rule(
        bias="l2",
        retention={"view": "ftrl", "global": {"elastic": {"l1": 0.1, "l2": 1}}},
        optimizer={"method": "momentum", "momentum": "token", "rate": "token"},
    )
    found = equations(full)
    assert [e.number for e in found] == list(range(1, len(found) + 1))
    assert [e.name for e in found] == [
        "prediction", "error", "gradient", "momentum", "dual", "link", "read-out",
    ]  # fmt: skip


def test_absent_branches_are_absent() -> None:
    names = [e.name for e in equations(rule())]
    assert names == ["error", "gradient", "memory", "read-out"]


def test_predict_and_erase_keys_that_differ_have_no_loss() -> None:
    apart = rule(bias="l2", keys={"predict": "own"}, optimizer={"rate": "token"})
    assert "no loss has this gradient" in to_text(apart)
    assert "no loss has this gradient" not in to_text(rule(bias="l2"))


def test_approximations_are_named() -> None:
    derived = rule(
        bias={"kind": "lp", "p": 1, "smooth": 20},
        features={"kind": "taylor", "order": 2},
        optimizer={"rate": "token", "anchor": {"chunk": 8}},
    )
    text = to_text(derived)
    for words in ("chunk anchor", "smoothing: tanh(20·x)", "finite features: exp to order 2"):
        assert words in text


def test_coefficients_have_argument_shape_and_range() -> None:
    derived = rule(
        bias="l2",
        window=3,
        weights="window",
        retention={"decay": "channel"},
        optimizer={"rate": {"from": "input", "activation": "softplus"}},
    )
    rows = {row["name"]: row for row in to_json(derived)["coefficients"]}
    assert rows["alpha"]["argument"] == "log_alpha"
    assert rows["alpha"]["shape"] == "[B, T, H, D]"
    assert rows["gamma"]["shape"] == "[B, T, H, 3]"
    assert rows["eta"]["range"] == "(0, ∞)"


def test_an_error_of_the_prediction_and_the_residual_is_shown_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No simplifier, which takes seconds for each, is asked for a form in the residual alone."""
    monkeypatch.setattr(printing, "simplified", lambda _: pytest.fail("asked"))
    assert printing.text(2 * (sym.y - sym.v) * sp.tanh(sym.y)) == "tanh(ŷ)·(2·ŷ − 2·v)"
    plain = (sym.y - sym.v) * sp.exp(-((sym.y - sym.v) ** 2))
    assert printing.readable(plain) == sym.e * sp.exp(-(sym.e**2))


@pytest.mark.parametrize("local", ["l2", {"f-divergence": "(x - 1)**2"}])
@pytest.mark.parametrize(
    ("over", "each"), [("all", ""), ("rows", " of each row"), ("columns", " of each column")]
)
def test_which_sums_a_simplex_holds_is_said(local: Any, over: str, each: str) -> None:
    simplex = {"kind": "simplex", "scale": 2, "over": over}
    found = rule(bias="l2", retention={"local": local, "constraint": simplex})
    assert f",  ζ{each}: Σ W = 2\n" in to_text(found)
    assert (rf"\text{{{each.strip()}}}" in found._repr_latex_()) == bool(each)


def test_what_is_not_compiled_is_said() -> None:
    bounded = {"local": {"bregman": "log(cosh(w))"}}
    found = derive_spec(Spec.model_validate({"name": "mine", "bias": "l2", "retention": bounded}))
    text = to_text(found)
    assert found.structure.missing is not None
    assert f"not compiled: {found.structure.missing}" in text


def test_a_notebook_shows_the_equations() -> None:
    shown = rule(bias="l2")._repr_latex_()
    assert shown.startswith("$$")
    assert r"\tag{1}" in shown


@pytest.mark.parametrize("entries", [{"bias": "l2"}, {"memory": "mlp"}])
def test_a_rule_is_printed_as_its_derivation_and_named_in_a_line(entries: dict[str, Any]) -> None:
    found = rule(**entries)
    assert str(found) == to_text(found)
    assert "\nDerivation\n" in str(found)
    assert "\nRule\n" in str(found)
    assert repr(found) == f"{type(found).__name__}('mine', {found.structure.kind!r})"


@pytest.mark.parametrize("activation", ["max(x, 0.1*x)", "where(x > 0, x, exp(x) - 1)"])
def test_activations_by_cases_are_written_for_people(activation: str) -> None:
    """Not as SymPy prints them, nor with the names that nodes have inside."""
    rule = pipeline.derive({
        "name": "own", "memory": {"kind": "mlp", "activation": activation},
        "optimizer": {"rate": "token", "anchor": {"chunk": 4}},
    })  # fmt: skip
    for text in (to_text(rule), to_latex(rule)):
        assert not re.search(r"Piecewise|Max\(|d_[zh]\d|d\\_", text), text
    assert "∂z2|h2 = ∂h2|W1·" in to_text(rule)
    assert "σ(z) = " in to_text(rule)
    assert "z2 if" not in to_text(rule).partition("Rule")[2]
