"""Adam's lines: the running means of a gradient and of its square, and the step between them."""

from collections.abc import Iterator
from typing import Any

from mnemic.compiler.explain.dialect import Dialect
from mnemic.compiler.problem import TIME
from mnemic.compiler.rule import Rule

Lines = Iterator[tuple[str, str]]


def means(rule: Rule, d: Dialect) -> Lines:
    """S and s, and what they are once divided by the weight that they have gathered."""
    theta, beta = rule.momentum, rule.applied.squares
    g, corrected = d.of("G"), []
    if theta is not None:
        yield "momentum", f"{_kept(d, 'S', theta)} {d.minus} {_share(d, theta)}{g}"
        corrected.append(_corrected(d, "S", theta))
    if beta != 0:
        squared = f"{g}{d.times}{g}"
        yield "squares", f"{_kept(d, 's', beta)} + {_share(d, beta)}{squared}"
        corrected.append(_corrected(d, "s", beta))
    if corrected:
        yield "means", d.sign(",  ", r",\quad ").join(corrected)


def step(rule: Rule, d: Dialect, before: str) -> str:
    """± η Ŝ/(√ŝ + ε), entry by entry; ``before`` is what multiplies it."""
    s, g = d.of("s^"), d.of("G")
    root = d.sign(f"√{s}", rf"\sqrt{{{s}}}")
    if rule.applied.squares == 0:
        root = d.sign(f"|{g}|", rf"\left|{g}\right|")
    above = g if rule.momentum is None else d.of("S^")
    below = f"{root} + {epsilon(rule, d)}"
    quotient = d.sign(f"{above}/({below})", rf"\frac{{{above}}}{{{below}}}")
    return f"{d.minus if rule.momentum is None else '+'} {before}{quotient}"


def epsilon(rule: Rule, d: Dialect) -> str:
    """ε as a number: ``1e−08``, ``10^{-8}``."""
    if not d.tex:
        return f"{rule.applied.epsilon:g}".replace("-", "−")
    mantissa, _, power = f"{rule.applied.epsilon:g}".partition("e")
    if not power:
        return mantissa
    ten = f"10^{{{int(power)}}}"
    return ten if mantissa == "1" else rf"{mantissa} \cdot {ten}"


def _kept(d: Dialect, letter: str, decay: Any) -> str:
    """``S_t = θ S_{t−1}``."""
    return f"{d.of(letter)} = {d.factor(decay)}{d.of(letter, 't-1')}"


def _share(d: Dialect, decay: Any) -> str:
    """1 − θ as a factor."""
    return d.factor(1 - decay)


def _corrected(d: Dialect, letter: str, decay: Any) -> str:
    """X over 1 − Πβ: over 1 − βᵗ where β is the same at every token."""
    return f"{d.of(letter + '^')} = {_over(d, d.of(letter), _gathered(d, decay))}"


def _over(d: Dialect, above: str, below: str) -> str:
    return rf"\frac{{{above}}}{{{below}}}" if d.tex else f"{above}/({below})"


def _gathered(d: Dialect, decay: Any) -> str:
    shown = d.expr(decay)
    shown = shown if decay.is_Symbol else d.wrapped(shown)
    if not any(d.timed.get(s.name) or s == TIME for s in decay.free_symbols):
        return f"1 {d.minus} {shown}" + d.sign("ᵗ", "^t")
    at = shown.replace("_t", "_i").replace(",t}", ",i}").replace("ₜ", "ᵢ")
    return f"1 {d.minus} " + d.sign(f"Π_(i≤t) {at}", rf"\prod_{{i \le t}} {at}")
