"""Equations of a memory behind a kernel: κ, and the rows that stand for the matrix."""

from collections.abc import Iterator

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.explain.dialect import Dialect
from mnemic.compiler.kernelised import folded
from mnemic.compiler.kernels import Kernel
from mnemic.compiler.rule import Rule


def kernels(rule: Rule, d: Dialect) -> Iterator[tuple[str, str]]:
    """What φ(k)·φ(x) is: κ1 for predictions and κ2 for read-outs, where they differ."""
    found = rule.kernels
    assert found is not None
    where = d.sign(",  s = k·x", r",\quad s = k \cdot x")
    read = _kernel(d, found.read, d.sign("Σ_(i≤t)", r"\sum_{i \le t}"))
    same = found.predict == found.read and not found.read.normalised
    if rule.error.constant or same:
        yield "kernel", f"{d.sign('κ', chr(92) + 'kappa')}(s) = {read}{where}"
        return
    predict = _kernel(d, found.predict, d.sign("Σ_(i<t)", r"\sum_{i<t}"))
    yield "kernel", f"{d.sign('κ₁', chr(92) + 'kappa_1')}(s) = {predict}{where}"
    yield "kernel", f"{d.sign('κ₂', chr(92) + 'kappa_2')}(s) = {read}{where}"


def _kernel(d: Dialect, kernel: Kernel, over: str) -> str:
    shown = d.expr(kernel.expr)
    return f"{shown} / {over} {shown}" if kernel.normalised else shown


def rows(rule: Rule, d: Dialect) -> Iterator[tuple[str, str]]:
    """W φ(x) as a sum over kept keys, and the row that a token adds."""
    key = d.of("k", "i")
    fades = rule.decay != 1 or rule.row_decay != 1 or rule.momentum is not None
    share = d.of("c", "i") + " " if fades or rule.window > 1 else ""
    total = d.sign("Σ_(i≤t)", r"\sum_{i \le t}")
    kappa = d.sign(f"κ({key}·x)", rf"\kappa({key} \cdot x)")
    row = d.of("u", "i")
    yield "rows", f"{d.of('W')} {d.call('phi', 'x')} = {total} {share}{row} {kappa}"
    plain = folded(rule)
    if rule.window == 1 and not plain.split:
        value = rule.problem.keys["value"]
        signal = sp.expand(-plain.rate * plain.error.signal)
        yield "rows", f"{d.of('u')} = {d.expr(signal.subs(sym.v, value))}"
