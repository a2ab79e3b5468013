"""Rules behind a kernel: what they do not support, and their gates as part of the error.

One key is kept for each pair, and φ(k) is known only through κ. So a key that erases or writes is
φ(k) times a gate (DeltaFormer's α on the write and β on the erase), which multiplies the row.
"""

from dataclasses import replace
from typing import Any

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.error_signal import ErrorSignal, with_slope
from mnemic.compiler.problem import Problem
from mnemic.compiler.retention import Refused
from mnemic.compiler.rule import Rule

KEY = sp.Symbol("k", real=True)


def check(problem: Problem, error: ErrorSignal, gain: Any, per: dict[Any, str]) -> None:
    """Raise ``Refused`` for whatever needs more of φ than its kernel.

    Checked are the keys, the method, and what is undefined beside rows divided by their sums;
    ``per`` says over what each coefficient varies.
    """
    if problem.kernels is None:
        return
    for role in ("erase", "write"):
        _check_gate(gate(problem, role), role, per)
    if problem.keys["predict"] not in (KEY, sp.Symbol("predict", real=True)):
        raise Refused(
            "behind a kernel the key that predicts is k itself or a vector of its own (own): a "
            "kernel compares whole vectors, and has no features to scale",
            place="keys.predict",
        )
    _check_method(problem, error)
    if problem.kernels.normalised:
        _check_rows(problem, gain)


def _check_gate(found: Any, role: str, per: dict[Any, str]) -> None:
    if found.has(KEY) or not found.free_symbols <= per.keys():
        raise Refused(
            f"a kernel keeps one key for each pair, so what {role}s is k times a coefficient",
            place=f"keys.{role}",
        )
    if any(per[s] != "head" for s in found.free_symbols):
        raise Refused(
            f"behind a kernel features have no channels, so what {role}s has one gate a head",
            place=f"keys.{role}",
        )


def _check_method(problem: Problem, error: ErrorSignal) -> None:
    spec = problem.spec
    if spec.optimizer.method == "batch":
        raise Refused(
            "full-batch steps see the past as Σ φφᵀ, and a kernel has no finite features φ: use gd",
            place="optimizer.method",
        )
    if spec.retention.phase is not None:
        raise Refused(
            "a phase turns features, and a kernel has none: turn q and k instead, by block: "
            "{rotary: true}",
            place="retention.phase",
        )
    if spec.readout.normalizer != "none":
        raise Refused(
            "behind a kernel weights are divided by their sum in the kernel itself: "
            "features: {kernel: …, normalise: row}",
            place="readout.normalizer",
        )
    assert problem.kernels is not None
    if error.signal.has(sym.kappa) and problem.kernels.predict.normalised:
        raise Refused(
            "the step divides by ‖φ(k)‖², which is the kernel of k with itself; rows of weights "
            "that are divided by their sum are no kernel: use a plain gd step, or normalise: none",
            place="optimizer.method",
        )


def _check_rows(problem: Problem, gain: Any) -> None:
    spec = problem.spec
    if isinstance(spec.window, int) and spec.window > 1:
        raise Refused(
            "a window writes a key several times, so a row has several weights for one key, and "
            "how to sum them is undefined: use a window of 1, or normalise: none",
            place="window",
        )
    rate = problem.scalar("eta")
    if rate is not None and rate.logarithmic:
        raise Refused(
            "an exponential rate is kept as a logarithm beside a running maximum, which is not "
            "derived for rows of weights that are divided by their sum: use another activation, "
            "as softplus",
            place="optimizer.rate",
        )
    if getattr(spec.optimizer.momentum, "on", "gradient") == "write":
        raise Refused(
            "momentum on the write gives a key two coefficients, and which of them counts in a "
            "row's sum is undefined: use momentum on the gradient, or normalise: none",
            place="optimizer.momentum.on",
        )
    if gain != 1:
        raise Refused(
            "a global retention scales all that is kept, which cancels in rows of weights that are "
            "divided by their sum: leave it out, or normalise: none",
            place="retention.global",
        )


def gate(problem: Problem, role: str) -> Any:
    """Return what a role multiplies φ(k) with: 1 for the key itself."""
    return sp.cancel(problem.keys[role] / KEY)


def folded(rule: Rule) -> Rule:
    """Return the same rule with its gates inside the error, every role the plain key.

    The step is −η (g_e slope·ŷ + g_w offset) φ(k)ᵀ for an error that splits into prediction and
    value, else −η g e φ(k)ᵀ. For one that splits the rate goes inside too, so that a gate of 1/η
    cancels symbolically.
    """
    problem = rule.problem
    if problem.kernels is None:
        return rule
    erase, write = gate(problem, "erase"), gate(problem, "write")
    if erase == write == 1:
        return rule
    error, rate = rule.error, rule.rate
    if rule.split:
        signal = sp.expand(rate * (erase * error.slope * sym.y + write * error.offset))
        error, rate = with_slope(signal), sp.Integer(1)
    else:
        error = with_slope(write * error.signal, write * error.radial)
    keys = {**problem.keys, "erase": KEY, "write": KEY}
    return replace(
        rule,
        problem=replace(problem, keys=keys),
        error=error,
        rate=rate,
        split=rule.split and rule.momentum_on == "write",
    )
