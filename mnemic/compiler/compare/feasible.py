"""A quick test, before algebra looks, whether any coefficients of one form can make it another."""

import random
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import sympy as sp

from mnemic.compiler.compare.entry_form import HOLDERS, Form

SAMPLES = 5
"""Draws of states, values and queries; the keys stay, for coefficients may depend on ‖k‖²."""
STARTS = 12
"""Points from which coefficients are sought."""
STEPS, NUDGE, STUCK = 40, 1e-7, 1e9
"""Steps from a start, the difference that slopes are taken over, a damping that moves nothing."""
CLOSE = 1e-7
"""The largest difference of entries that counts as none."""


def feasible(a: Form, b: Form, *, scaled: bool) -> bool:
    """Return False where no coefficients of ``b`` were found that give the entries of ``a``.

    The coefficients of ``a``, and all data, are random numbers; those of ``b`` (and, if ``scaled``,
    a factor on its values) are sought by least squares from several starts. A rule that cannot be
    evaluated in numbers counts as feasible: the test only saves work.
    """
    if not _plausible(a, b, scaled):
        return False
    try:
        with np.errstate(all="ignore"):
            return _fits(a, b, scaled)
    except (TypeError, ValueError, ArithmeticError, NameError, KeyError, SyntaxError):
        return True


def _plausible(a: Form, b: Form, scaled: bool) -> bool:
    """Return whether each entry of ``b`` has all the products of data of the same entry of ``a``.

    Coefficients can remove a product of data, but not add one. Factors that are entries of keys
    are left out, since a coefficient may stand for them.
    """
    data, open_b = a.data | b.data, {*b.coefficients}
    moving = frozenset(s for s in data if not str(s).startswith("k"))
    scale = {s for s in data if str(s).startswith("v_")} if scaled else set()
    for one, other in zip(a.entries(), b.entries(), strict=True):
        if one == other:
            continue
        if not other.free_symbols & (open_b | scale):
            if one.is_polynomial() and other.is_polynomial():
                return False
            continue
        mine, theirs = _products(one, moving), _products(other, moving)
        if mine is not None and theirs is not None and not mine <= theirs:
            return False
    return True


@lru_cache(maxsize=8192)
def _products(entry: Any, data: frozenset[Any]) -> frozenset[Any] | None:
    """Return the products of data in a polynomial entry; None where it is no polynomial."""
    used = data & entry.free_symbols
    if not used:
        return frozenset((sp.Integer(1),)) if entry != 0 else frozenset()
    divided = any(p.exp.is_negative for p in entry.atoms(sp.Pow))
    if divided or not entry.is_polynomial(*used):
        return None
    terms = sp.Add.make_args(entry)
    return frozenset(term.as_independent(*used, as_Add=False)[1] for term in terms)


def _fits(a: Form, b: Form, scaled: bool) -> bool:
    data = sorted((a.data | b.data) - set(HOLDERS), key=str)
    given = sorted(a.parameters | b.parameters, key=str)
    source, count = random.Random(0), len(b.coefficients)
    draws = [_draws(source, s) for s in data]
    rest = [_number(source, s) for s in given]
    mine = [_number(source, s) for s in a.coefficients]
    wanted = _entries(a, tuple(data), tuple(given))(mine, draws, rest, 1)
    evaluate = _entries(b, tuple(data), tuple(given))
    values = [i for i, s in enumerate(data) if str(s).startswith("v_")] if scaled else []

    def misses(x: Any) -> Any:
        """Return what each row of coefficients misses of the entries wanted, a row each."""
        seen = list(draws)
        for i in values:
            seen[i] = seen[i] * x[:, count, None]
        found = evaluate([c[:, None] for c in x.T[:count]], seen, rest, len(x))
        return np.nan_to_num(found - wanted, nan=1e3, posinf=1e3, neginf=-1e3).clip(-1e6, 1e6)

    free = count + bool(values)
    if free == 0:
        return _nothing(misses(np.zeros((1, 0))))
    return _reaches_nothing(misses, free)


def _draws(source: random.Random, symbol: Any) -> Any:
    """Draw numbers for a symbol of the data, one a sample; those of a key are all alike."""
    if str(symbol).startswith("k"):
        return np.full(SAMPLES, _number(source, symbol))
    return np.array([_number(source, symbol) for _ in range(SAMPLES)])


@lru_cache(maxsize=4096)
def _entries(form: Form, data: tuple[Any, ...], given: tuple[Any, ...]) -> Callable[..., Any]:
    """Return a form's entries as a function of coefficients, data and parameters."""
    import scipy  # SymPy's own message does not name the package as one that is not installed

    symbols = [*form.coefficients, *data, *given]
    entries = form.entries()
    function = sp.lambdify(symbols, entries, modules=[scipy.__name__, "numpy"], cse=True)

    def evaluate(coefficients: Any, seen: Any, rest: Any, rows: int) -> Any:
        found = function(*coefficients, *seen, *rest)
        parts = [np.broadcast_to(x, (rows, SAMPLES)) for x in found]
        return np.concatenate(parts, 1).astype(float)

    return evaluate


def _number(source: random.Random, symbol: Any) -> float:
    size = source.uniform(0.2, 0.95)
    return size if symbol.is_nonnegative else size * source.choice((1, -1))


def _reaches_nothing(misses: Callable[[Any], Any], free: int) -> bool:
    """Return whether least squares from one of several starts ends where nothing is missed.

    All starts go at once, by steps of Levenberg and Marquardt with slopes from differences.
    """
    at = np.random.default_rng(0).uniform(0.1, 1.2, (STARTS, free))
    missed, damping = misses(at), np.full(STARTS, 1e-2)
    for _ in range(STEPS):
        if _nothing(missed):
            return True
        nudged = at[:, None] + NUDGE * np.eye(free)
        moved = misses(nudged.reshape(-1, free)).reshape(STARTS, free, -1)
        slopes = (moved - missed[:, None]) / NUDGE
        square = slopes @ slopes.transpose(0, 2, 1)
        held = np.einsum("sii->si", square)
        held += damping[:, None] * (held + 1e-12)
        step = np.linalg.solve(square, (slopes @ missed[:, :, None]))[..., 0]
        tried = at - step
        left = misses(tried)
        better = (left**2).sum(1) < (missed**2).sum(1)
        at, missed = np.where(better[:, None], tried, at), np.where(better[:, None], left, missed)
        damping = np.where(better, damping / 5, damping * 8)
        if (damping > STUCK).all():
            break
    return _nothing(missed)


def _nothing(differences: Any) -> bool:
    return bool((np.abs(differences).max(1, initial=0.0) < CLOSE).any())
