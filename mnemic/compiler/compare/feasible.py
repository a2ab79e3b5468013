"""A quick test, before algebra looks, whether any coefficients of one form can make it another."""

import random
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import sympy as sp
from scipy.optimize import least_squares

from mnemic.compiler.compare.entry_form import HOLDERS, Form

SAMPLES = 5
"""Draws of states, values and queries; the keys stay, for coefficients may depend on ‖k‖²."""
STARTS = 16
"""Points from which coefficients are sought."""
AGAIN = 4
"""Starts that have to end at the same least miss for the others to be left out."""
CLOSE = 1e-7
"""The largest difference of entries that counts as none."""


def feasible(a: Form, b: Form, *, scaled: bool) -> bool:
    """Return False where no coefficients of ``b`` were found that give the entries of ``a``.

    The coefficients of ``a``, and all data, are random numbers; those of ``b`` (and, if ``scaled``,
    a factor on its values) are sought by least squares from several starts. A rule that cannot be
    evaluated in numbers counts as feasible: the test only saves work.
    """
    try:
        with np.errstate(all="ignore"):
            return _fits(a, b, scaled)
    except (TypeError, ValueError, ArithmeticError, NameError, KeyError, SyntaxError):
        return True


def _fits(a: Form, b: Form, scaled: bool) -> bool:
    data = sorted((a.data | b.data) - set(HOLDERS), key=str)
    given = sorted(a.parameters | b.parameters, key=str)
    source, count = random.Random(0), len(b.coefficients)
    draws = [_draws(source, s) for s in data]
    rest = [_number(source, s) for s in given]
    mine = [_number(source, s) for s in a.coefficients]
    wanted = _entries(a, tuple(data), tuple(given))(mine, draws, rest)
    evaluate = _entries(b, tuple(data), tuple(given))
    values = [i for i, s in enumerate(data) if str(s).startswith("v_")] if scaled else []

    def misses(x: Any) -> Any:
        seen = list(draws)
        for i in values:
            seen[i] = seen[i] * x[count]
        return np.nan_to_num(
            evaluate(x[:count], seen, rest) - wanted, nan=1e3, posinf=1e3, neginf=-1e3
        ).clip(-1e6, 1e6)

    free = count + bool(values)
    if free == 0:
        return _nothing(misses(np.zeros(0)))
    return _reaches_nothing(misses, free)


def _draws(source: random.Random, symbol: Any) -> Any:
    """Numbers of a symbol of the data, one a sample; those of keys are all alike."""
    if str(symbol).startswith("k"):
        return np.full(SAMPLES, _number(source, symbol))
    return np.array([_number(source, symbol) for _ in range(SAMPLES)])


@lru_cache(maxsize=4096)
def _entries(form: Form, data: tuple[Any, ...], given: tuple[Any, ...]) -> Callable[..., Any]:
    """The entries of a form as a function of coefficients, data and parameters."""
    symbols = [*form.coefficients, *data, *given]
    entries = form.entries()
    function = sp.lambdify(symbols, entries, modules=["scipy", "numpy"], cse=True)

    def evaluate(coefficients: Any, seen: Any, rest: Any) -> Any:
        found = function(*coefficients, *seen, *rest)
        return np.concatenate([np.broadcast_to(x, SAMPLES) for x in found]).astype(float)

    return evaluate


def _number(source: random.Random, symbol: Any) -> float:
    size = source.uniform(0.2, 0.95)
    return size if symbol.is_nonnegative else size * source.choice((1, -1))


def _reaches_nothing(misses: Callable[[Any], Any], free: int) -> bool:
    """Whether least squares ends where nothing is missed, from one of several starts.

    Gives up early where ``AGAIN`` starts have led to the same least miss.
    """
    costs: list[float] = []
    for start in range(STARTS):
        at = np.random.default_rng(start).uniform(0.1, 1.2, free)
        found = least_squares(misses, at, max_nfev=40)
        if _nothing(found.fun):
            return True
        costs.append(float(found.cost))
        if sum(cost <= min(costs) * (1 + 1e-6) for cost in costs) >= AGAIN:
            return False
    return False


def _nothing(differences: Any) -> bool:
    return bool(np.abs(differences).max(initial=0.0) < CLOSE)
