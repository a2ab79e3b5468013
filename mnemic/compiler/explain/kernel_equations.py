"""Equations of a memory behind a kernel: κ, and the rows that stand for the matrix."""

from collections.abc import Iterator

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.explain.dialect import Dialect
from mnemic.compiler.explain.notation import acted
from mnemic.compiler.kernelised import folded, gate
from mnemic.compiler.kernels import Kernel
from mnemic.compiler.rule import Rule
from mnemic.compiler.symbolic import simplified


def kernels(rule: Rule, d: Dialect) -> Iterator[tuple[str, str]]:
    """Write κ(s) = φ(k)·φ(x) of a memory behind a kernel, or κ1 of predictions and κ2 of read-outs
    where they differ."""
    found = rule.kernels
    if found is None:
        return
    where = d.sign(",  s = k·x", r",\quad s = k \cdot x")
    share = _shared(rule, d)
    read = _kernel(d, found.read, d.sign("Σ_(i≤t)", r"\sum_{i \le t}"), share)
    if _one_kernel(rule):
        yield "kernel", f"{d.sign('κ', chr(92) + 'kappa')}(s) = {read}{where}"
        return
    predict = _kernel(d, found.predict, d.sign("Σ_(i<t)", r"\sum_{i<t}"), share)
    yield "kernel", f"{d.sign('κ₁', chr(92) + 'kappa_1')}(s) = {predict}{where}"
    yield "kernel", f"{d.sign('κ₂', chr(92) + 'kappa_2')}(s) = {read}{where}"


def _one_kernel(rule: Rule) -> bool:
    """Return whether predictions and read-outs sum with the same κ."""
    found = rule.kernels
    assert found is not None
    same = found.predict == found.read and not found.read.normalised
    return rule.error.constant or same


def _kernel(d: Dialect, kernel: Kernel, over: str, share: str) -> str:
    shown = d.expr(kernel.expr)
    return f"{shown} / {over} {share}{shown}" if kernel.normalised else shown


def _shared(rule: Rule, d: Dialect) -> str:
    """Write cᵢ, the coefficient of a row, where decay or momentum changes it at later tokens."""
    fades = rule.decay != 1 or rule.row_decay != 1 or rule.momentum is not None
    return d.of("c", "i") + " " if fades and rule.window == 1 else ""


def rows(rule: Rule, d: Dialect) -> Iterator[tuple[str, str]]:
    """Write W φ(x) as a sum over kept keys, and the row that a token adds."""
    key = d.of("k", "i")
    share = _shared(rule, d)
    total = d.sign("Σ_(i≤t)", r"\sum_{i \le t}")
    kappa = d.sign(f"κ({key}·x)", rf"\kappa({key} \cdot x)")
    if not _one_kernel(rule):
        total = d.sign("Σ_i", r"\sum_i")
        kappa += d.sign(
            ",  κ = κ₁ and i < t at a prediction; κ = κ₂ and i ≤ t at a read-out",
            r",\quad \kappa = \kappa_1,\ i < t \text{ at a prediction; }"
            r"\kappa = \kappa_2,\ i \le t \text{ at a read-out}",
        )
    row = d.of("u", "i")
    yield "rows", f"{d.of('W')} {d.call('phi', 'x')} = {total} {share}{row} {kappa}"
    if share:
        yield "rows", _share(rule, d)
    plain = folded(rule)
    if rule.window > 1:
        yield "rows", _of_window(rule, d)
        return
    size = plain.gain * plain.rate
    signal = sp.expand(-size * plain.error.signal)
    if plain.split:
        taken = gate(rule.problem, "erase") * plain.error.slope * sym.y
        signal = -size * (taken + gate(rule.problem, "write") * plain.error.offset)
    yield "rows", f"{d.of('u')} = {d.expr(signal)}"


def _of_window(rule: Rule, d: Dialect) -> str:
    """Write how tokens decay a row, from 0 on, and add steps to it while the window holds it."""
    row, arrow, more = d.of("u", "i"), d.sign("←", r"\leftarrow"), d.of("m", "i")
    weight = "" if rule.gamma is None else d.of("gamma", "i") + " "
    size = rule.rate if rule.momentum is not None else rule.gain * rule.rate
    step = f"{d.factor(simplified(size))}{weight}{d.of('e', 'i')}"
    while_ = d.sign(
        f" (the last term for i > t − {rule.window}; 0 at first)",
        rf"\ (\text{{the last term for }} i > t - {rule.window}; \text{{ 0 at first}})",
    )
    kept = acted(rule, d, rule.decay, rule.row_decay, row)
    if rule.momentum is None:
        return f"{row} {arrow} {kept} {d.minus} {step}{while_}"
    gathered = f"{more} {arrow} {d.factor(rule.momentum)}{more} {d.minus} {step}{while_}"
    both = d.sign(",  ", r",\quad ")
    return f"{gathered}{both}{row} {arrow} {kept} + {d.factor(rule.gain)}{more}"


def _share(rule: Rule, d: Dialect) -> str:
    """Write how the coefficient c of a row evolves from 1 at its own token."""
    share, arrow = d.of("c", "i"), d.sign("←", r"\leftarrow")
    begun = d.sign(" = 1 at t = i", r" = 1 \text{ at } t = i")
    kept = acted(rule, d, rule.decay, rule.row_decay, share)
    if rule.momentum is None:
        return f"{share}{begun}{d.sign(', then ', chr(92) + 'text{, then }')}{share} {arrow} {kept}"
    more = d.of("m", "i")
    left = f"{more} {arrow} {d.factor(rule.momentum)}{more}"
    both = f"{share} = {more}{begun}{d.sign(', then ', chr(92) + 'text{, then }')}{left}"
    return f"{both}{d.sign(',  ', ',' + chr(92) + 'quad ')}{share} {arrow} {kept} + {more}"
