"""Changes of coefficients that turn a stated problem's solution into a printed line.

The line agrees with its problem under a change if there are numbers c′, positive where c are,
with which the problem's solution is the printed line for all data. They are found, never given:
for several draws of c the c′ are solved for by least squares over several draws of the data;
then each is recognised as a number times a product of powers of the c, or of 1 − c.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Any, Final

import numpy as np

Values = Mapping[str, Any]
Solution = Callable[[Mapping[str, float], int], np.ndarray]
"""What changed coefficients and a draw of the data give: the entries that are compared."""

COUNTS: Final = 10
NEAR: Final = 1e-8


@dataclass(frozen=True)
class Change:
    """New coefficients as texts in the old ones: ``{"eta": "2*eta"}``."""

    of: tuple[tuple[str, str], ...]

    def at(self, old: Mapping[str, float]) -> dict[str, float]:
        """Return the new coefficients; a state's scale where a text is of one."""
        from mnemic.compiler.published import evaluate
        from mnemic.dsl.expressions import parse

        ones = {name: 1.0 for name, _ in self.of if name not in old}
        seen = {**old, **ones}
        return {name: float(evaluate(parse(text, set(seen)).tree, seen)) for name, text in self.of}

    def __str__(self) -> str:
        return ", ".join(f"{name} → {text}" for name, text in self.of)


def find(
    names: Sequence[str], drawn: Sequence[Mapping[str, float]], misses: Sequence[Solution],
    states: frozenset[str] = frozenset(), weights: frozenset[str] = frozenset(),
) -> Change | None:  # fmt: skip
    """Return the change of the fewest coefficients that makes every miss zero; None for none.

    ``drawn`` holds several draws of the coefficients and ``misses`` the difference of both sides
    for each of them, as a function of changed coefficients and of a draw of the data. ``states``
    are the scales of states, which may be negative: a momentum may be kept with the other sign;
    ``weights`` those of all pairs' weights at once, which may not.
    """
    for few in _subsets(names):
        solved = []
        for coefficients, miss in zip(drawn, misses, strict=True):
            found = _solve(few, coefficients, miss, states)
            if found is None:
                break
            solved.append(found)
        else:
            texts = [_recognise([s[i] for s in solved], drawn, name) for i, name in enumerate(few)]
            if all(text is not None for text in texts):
                return Change(tuple(
                    (n, _scaled(str(t), n) if n in states | weights else str(t))
                    for n, t in zip(few, texts, strict=True)
                ))  # fmt: skip
    return None


def _scaled(factor: str, state: str) -> str:
    if factor.startswith("1/"):
        return f"{state}{factor[1:]}"
    return {"1": state, "-1": f"-{state}"}.get(factor, f"{factor}*{state}")


def _subsets(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for count in range(1, min(len(names), 3) + 1):
        yield from combinations(names, count)


def _solve(
    few: Sequence[str], drawn: Mapping[str, float], miss: Solution, signed: frozenset[str]
) -> list[float] | None:
    """Return the changed coefficients for one draw of all, or None where none make it zero."""
    from scipy.optimize import least_squares

    def whole(logs: np.ndarray, signs: Sequence[int]) -> np.ndarray:
        new = {n: float(s * np.exp(x)) for n, x, s in zip(few, logs, signs, strict=True)}
        return np.concatenate([miss({**drawn, **new}, seed) for seed in range(5)])

    for signs in _signs(few, signed):
        for shift in (0.0, 0.7, -0.7):
            start = [float(np.log(abs(drawn[n]) + 1e-12)) + shift for n in few]
            try:
                found = least_squares(whole, start, args=(signs,), xtol=1e-15, ftol=1e-15,
                                      gtol=1e-15, max_nfev=60)  # fmt: skip
            except (ValueError, FloatingPointError):
                continue
            if float(np.abs(found.fun).max()) < NEAR and float(np.abs(found.x).max()) < 12:
                return [float(s * np.exp(x)) for s, x in zip(signs, found.x, strict=True)]
    return None


def _signs(few: Sequence[str], signed: frozenset[str]) -> Iterator[tuple[int, ...]]:
    yield (1,) * len(few)
    turned = tuple(-1 if name in signed else 1 for name in few)
    if -1 in turned:
        yield turned


def _recognise(
    found: Sequence[float], drawn: Sequence[Mapping[str, float]], name: str
) -> str | None:
    """Return a number times a product of powers that gives what was found at every draw."""
    sign = -1 if found[0] < 0 else 1
    logs = np.log(np.abs(found))
    for features in _features(drawn[0], name):
        columns = [np.log([_value(f, d) for d in drawn]) for f in features]
        design = np.stack([np.ones(len(drawn)), *columns], axis=1)
        fitted, *_ = np.linalg.lstsq(design, logs, rcond=None)
        if float(np.abs(design @ fitted - logs).max()) < 1e-6:
            factor = Fraction(float(np.exp(fitted[0]))).limit_denominator(64)
            if abs(float(factor) - float(np.exp(fitted[0]))) < 1e-6:
                return _product(sign * factor, features, fitted[1:])
    return None


def _features(drawn: Mapping[str, float], name: str) -> Iterator[tuple[str, ...]]:
    """Yield what a product may hold: few factors first, the coefficient itself before others."""
    plain = sorted(drawn, key=lambda other: (other != name, other))
    every = (*plain, *(f"1 - {other}" for other in plain if 0 < drawn[other] < 1),
             *(f"1 + {other}" for other in plain),
             *(f"1 - {a}*{b}" for a, b in combinations(plain, 2)))  # fmt: skip
    for count in range(min(3, len(every)) + 1):
        yield from combinations(every, count)


def _value(feature: str, drawn: Mapping[str, float]) -> float:
    sign = feature[2:3]
    if sign not in "+-" or not sign:
        return abs(drawn[feature])
    product = float(np.prod([drawn[part] for part in feature[4:].split("*")]))
    return abs(1 - product) if sign == "-" else 1 + product


def _product(factor: Fraction, features: Sequence[str], powers: Sequence[float]) -> str:
    """Return the text of a product, with what has a negative power below the line."""
    above: list[str] = []
    below: list[str] = []
    for feature, power in zip(features, powers, strict=True):
        exponent = Fraction(float(power)).limit_denominator(4)
        if exponent == 0:
            continue
        text = f"({feature})" if " " in feature else feature
        raised = text if abs(exponent) == 1 else f"{text}**{abs(exponent)}"
        (above if exponent > 0 else below).append(raised)
    size = abs(factor)
    if size.numerator != 1 or not above:
        above.insert(0, str(size.numerator))
    if size.denominator != 1:
        below.insert(0, str(size.denominator))
    top = "*".join(above)
    bottom = f"({'*'.join(below)})" if len(below) > 1 else "".join(below)
    return ("-" if factor < 0 else "") + (f"{top}/{bottom}" if bottom else top)
