"""Lines of an optimizer that acts entry by entry: its running averages, and its step."""

from collections.abc import Iterator
from typing import Any

import sympy as sp

from mnemic.compiler.explain import letters
from mnemic.compiler.explain.dialect import Dialect
from mnemic.compiler.problem import TIME
from mnemic.compiler.rule import Applied, Rule
from mnemic.compiler.running import GRADIENT, Running
from mnemic.dsl.methods import ELEMENTWISE

Lines = Iterator[tuple[str, str]]
FIRST_SIGN = 0xE000
"""Where characters for private use begin: stand-ins that sort behind every coefficient."""


def means(rule: Rule, d: Dialect) -> Lines:
    """Yield the averages, and the corrected ones: divided by the weight gathered so far."""
    for average in rule.applied.averages:
        yield average.equation, _moved(rule, d, average)
    corrected = [_corrected(d, a) for a in rule.applied.averages if a.corrected]
    if corrected:
        yield "means", d.sign(",  ", r",\quad ").join(corrected)


def _moved(rule: Rule, d: Dialect, average: Running) -> str:
    """Write how an average moves, ``S_t = θ S_{t−1} − (1 − θ) G_t``: of −G, shown in G."""
    kept = f"{d.of(average.letter)} = {d.factor(average.decay)}{d.of(average.letter, 't-1')}"
    entry = average.entry
    if entry == GRADIENT**2:
        sign, shown = "+", f"{d.of('G')}{d.times}{d.of('G')}"
    else:
        sign, shown = _signed(d, _written(rule.applied, entry, d))
    return f"{kept} {sign} {d.factor(average.share)}{shown}"


def step(rule: Rule, d: Dialect, before: str) -> str:
    """Return ± η step, entry by entry; ``before`` is what multiplies it."""
    sign, shown = _signed(d, _written(rule.applied, rule.applied.step, d))
    whole = d.wrapped(shown) if before and rule.applied.step.is_Add else shown
    return f"{sign} {before}{whole}"


def _signed(d: Dialect, shown: str) -> tuple[str, str]:
    """Split a shown term into its sign and the rest."""
    if shown.startswith(d.minus):
        return d.minus, shown.removeprefix(d.minus).strip()
    return "+", shown


def _written(applied: Applied, expr: Any, d: Dialect) -> str:
    """Write an expression of g and the averages with their letters, −G for g.

    The printer sees private-use characters, ordered as the quantities should be in a sum; their
    letters are substituted afterwards.
    """
    shown: dict[Any, str] = {GRADIENT: d.of("G")}
    for average in applied.averages:
        hat = f"{average.letter}^" if average.corrected else average.letter
        shown[average.after], shown[average.before] = d.of(hat), d.of(average.letter, "t-1")
    for symbol, value in applied.numbers:
        shown[symbol] = number(d, value)
    expr = expr.subs(GRADIENT, -GRADIENT)
    if not d.tex:  # the root of one letter has no parentheses
        for root in [p for p in expr.atoms(sp.Pow) if p.exp == sp.Rational(1, 2)]:
            if root.base.is_Symbol:
                taken = sp.Symbol(f"root of {root.base}", real=True)
                shown = {taken: f"√{shown[root.base]}", **shown}
                expr = expr.subs(root, taken)
    signs = {symbol: chr(FIRST_SIGN + i) for i, symbol in enumerate(shown)}
    plain = {symbol: sp.Symbol(sign, real=True) for symbol, sign in signs.items()}
    text = d.expr(expr.subs(plain, simultaneous=True))
    return text.translate({ord(sign): shown[symbol] for symbol, sign in signs.items()})


def number(d: Dialect, value: float) -> str:
    """Return a small number: ``1e−08``, ``10^{-8}``."""
    if not d.tex:
        return f"{value:g}".replace("-", "−")
    mantissa, _, power = f"{value:g}".partition("e")
    if not power:
        return mantissa
    ten = f"10^{{{int(power)}}}"
    return ten if mantissa == "1" else rf"{mantissa} \cdot {ten}"


def title(rule: Rule, d: Dialect) -> str:
    """Return the optimizer with its coefficients: ``Adam(θ = 0.9, β₂ = 0.99, ε = 1e−08)``."""
    applied, problem = rule.applied, rule.problem
    method = ELEMENTWISE[applied.kind]
    letter = letters.tex if d.tex else letters.letter
    told = [f"{letter(n)} = {d.expr(problem.value(n, sp.Integer(0)))}" for n in method.coefficients]
    told += [f"{letter(str(symbol))} = {number(d, value)}" for symbol, value in applied.numbers]
    name = d.sign(method.title, rf"\mathrm{{{method.title}}}")
    return f"{name}({', '.join(told)})"


def _corrected(d: Dialect, average: Running) -> str:
    """Write X over 1 − Πβ: over 1 − βᵗ where β is the same at every token."""
    below = _gathered(d, average.decay)
    over = _over(d, d.of(average.letter), below)
    return f"{d.of(average.letter + '^')} = {over}"


def _over(d: Dialect, above: str, below: str) -> str:
    return rf"\frac{{{above}}}{{{below}}}" if d.tex else f"{above}/({below})"


def _gathered(d: Dialect, decay: Any) -> str:
    shown = d.expr(decay)
    shown = shown if decay.is_Symbol else d.wrapped(shown)
    if not any(d.timed.get(s.name) or s == TIME for s in decay.free_symbols):
        return f"1 {d.minus} {shown}" + d.sign("ᵗ", "^t")
    at = shown.replace("_t", "_i").replace(",t}", ",i}").replace("ₜ", "ᵢ")
    return f"1 {d.minus} " + d.sign(f"Π_(i≤t) {at}", rf"\prod_{{i \le t}} {at}")
