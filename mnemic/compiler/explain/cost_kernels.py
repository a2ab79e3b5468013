"""Costs of a memory behind a kernel: every read goes over all kept pairs, and they grow with T."""

from typing import Any

import sympy as sp

from mnemic.compiler.rule import Rule

T, K, V, C = sp.symbols("T d_k d_v c", positive=True)
N = sp.Symbol("n", positive=True, integer=True)


def kept_state(rule: Rule) -> Any:
    """Count keys, rows of the memory, momentum and anchor, and shares where sums need them."""
    inner = rule.problem.spec.optimizer.inner_steps  # they write to one key
    matrices = 1 + (rule.momentum is not None) + _anchored(rule)
    shares = 0
    if rule.kernels is not None and rule.kernels.normalised:
        fades = rule.decay != 1 or rule.momentum is not None or inner > 1
        shares = int(fades) + _anchored(rule)
        shares += rule.momentum is not None
    tail = (C - 1) * (V + int(rule.gamma == "token")) if rule.window > 1 else 0
    return N * T * (K + matrices * V + shares) / inner + tail


def kept_training(rule: Rule) -> Any:
    """Count FLOPs a token: a read takes two products over the pairs kept by then, half of all."""
    return _reads(rule) / 2


def kept_decoding(rule: Rule) -> Any:
    """Count the FLOPs of one token after T: the reads, and the rows that decay."""
    momentum = V if rule.momentum is not None else 0
    return _reads(rule) + kept_moved(rule) + N * T * momentum


def kept_moved(rule: Rule) -> Any:
    """Return how many numbers of earlier pairs change at every token."""
    if rule.kernels is None:
        return 0
    momentum = rule.momentum is not None
    rows = int(rule.decay != 1 or rule.row_decay != 1 or momentum) + int(momentum)
    return N * T * rows * V / rule.problem.spec.optimizer.inner_steps


def _reads(rule: Rule) -> Any:
    """Count the FLOPs of the read-out, and of a prediction for each key that has an error."""
    copies = 1 + (rule.momentum is not None)
    predictions: Any = 0
    if not rule.error.constant:
        predictions = C if rule.shared_rows else N
    seen = 1 if rule.anchor > 1 else copies
    return 2 * N * T * (K + copies * V) + predictions * 2 * N * T * (K + seen * V)


def _anchored(rule: Rule) -> int:
    sees = rule.anchor > 1 and not rule.error.constant
    return int(sees or rule.problem.spec.readout.memory == "anchor")
