"""Errors by formula: that of the dot loss, from its kernel, and the least of a linear memory."""

from collections.abc import Callable
from typing import Any

import numpy as np
import sympy as sp
from scipy.integrate import quad
from scipy.special import gammaln

from mnemic.codegen.support.sizes import eval_size
from mnemic.compiler import symbols as sym
from mnemic.compiler.rule import Linear, Moments, Rule


def hebbian(rule: Rule, dim: int, counts: tuple[int, ...]) -> tuple[float, ...] | None:
    """Return the error after n pairs of a memory that adds v φ(k)ᵀ and forgets nothing.

    Noise over signal is x = (n − 1) E[κ²]/κ(1)² over random unit keys, and the error after the best
    factor x/(1 + x). None for another rule, or a kernel that is no function of k·q alone.
    """
    kernel = _kernel(rule)
    if kernel is None or not _adds(rule):
        return None
    noise = mean_square(kernel, dim) / float(kernel(1.0)) ** 2
    return tuple((n - 1) * noise / (1 + (n - 1) * noise) for n in counts)


def least(size: int, counts: tuple[int, ...]) -> tuple[float, ...]:
    """Return the error that n random values leave to the best matrix over ``size`` features."""
    return tuple(max(0.0, 1 - size / n) for n in counts)


def features(signature: Any, rule: Rule, dim: int) -> int | None:
    """Return the number of features that the memory is linear in; None where it is not."""
    if rule.kernels is not None or not isinstance(rule, Linear | Moments):
        return None
    if rule.diagonal or getattr(rule.problem.spec.memory, "slots", None):
        return None
    return eval_size(signature.features, dim)


def mean_square(kernel: Callable[[float], float], dim: int) -> float:
    """Return E[κ(s)²] for s the inner product of two random unit vectors.

    >>> round(mean_square(lambda s: s, 16), 6)
    0.0625
    """
    log_norm = gammaln(dim / 2) - gammaln((dim - 1) / 2) - np.log(np.pi) / 2

    def weighed(s: float) -> float:
        density = np.exp(log_norm) * (1 - s * s) ** ((dim - 3) / 2)
        return float(kernel(s)) ** 2 * float(density)

    return float(quad(weighed, -1, 1, limit=200)[0])


def _adds(rule: Rule) -> bool:
    """Return whether each pair is written once, as v φ(k)ᵀ times one factor, and stays as it is."""
    spec = rule.problem.spec
    constant = all(s.per == "head" for s in rule.scalars)
    signal = rule.error.signal
    return (
        isinstance(rule, Linear) and constant and rule.decay == 1 and rule.row_decay == 1
        and rule.momentum is None and rule.window == 1 and not signal.has(sym.y)
        and spec.readout.normalizer == "none" and rule.retained.link.identity
        and not rule.diagonal and spec.keys.write is None
    )  # fmt: skip


def _kernel(rule: Rule) -> Callable[[float], float] | None:
    """Return φ(k)·φ(q) as a function of s = k·q, None where it is none."""
    if rule.kernels is not None:
        if rule.kernels.read.normalised:
            return None
        expr = rule.kernels.read.expr
    else:
        told = rule.problem.spec.features
        kind = getattr(told, "kind", "")
        if kind == "identity":
            expr = sym.s
        elif kind == "polynomial" and getattr(told, "mode", "") == "power":
            expr = sym.s ** getattr(told, "degree", 1)
        else:
            return None
    block = rule.problem.spec.block
    if expr.free_symbols - {sym.s} or block.qk_norm != "l2":
        return None
    expr = expr.subs(sym.s, (block.scale or 1) * sym.s)
    found: Callable[[float], float] = sp.lambdify(sym.s, expr, "numpy")
    return found
