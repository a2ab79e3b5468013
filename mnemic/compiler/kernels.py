"""A feature map that is known only through its kernel: φ(k)·φ(x) = κ(s) with s = k·x.

The memory W = Σ_i u_i φ(k_i)ᵀ is then kept as keys and rows, and W φ(x) = Σ_i u_i κ(k_i·x).
"""

from dataclasses import dataclass
from typing import Any

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.numbers import evaluated
from mnemic.compiler.symbolic import number, read
from mnemic.dsl.features import Exponential, Features
from mnemic.dsl.features import Kernel as KernelEntry

ORDER = 8
"""Up to which a power series is looked at."""

ROUNDING = 1e-9
"""What a coefficient of a power series that is zero may be off by."""


@dataclass(frozen=True)
class Kernel:
    """κ as an expression in s, and whether each row of weights is divided by its sum."""

    expr: Any
    normalised: bool = False

    @property
    def log(self) -> Any | None:
        """log κ where κ is an exponential, so that a row over its sum never overflows."""
        found = sp.expand_log(sp.log(self.expr))
        kept = any(part.has(sym.s) for part in found.atoms(sp.log))
        return None if kept or not found.is_real else found

    @property
    def positive(self) -> bool:
        """Whether κ is an inner product of features on every sphere.

        By Schoenberg's theorem that takes a power series without negative coefficients; it is
        looked at up to ``ORDER``. A kernel with kinks or steps has none.
        """
        if self.expr.has(sp.Abs, sp.Max, sp.Min, sp.sign, sp.Piecewise, sym.round):
            return False
        term = self.expr
        for _ in range(ORDER + 1):
            value = term.subs(sym.s, 0)
            if value.has(sp.oo, -sp.oo, sp.zoo, sp.nan):
                return False
            known = evaluated(value, {})  # what SymPy leaves as a relation has a sign all the same
            if not (value.is_nonnegative if known is None else known >= -ROUNDING):
                return False
            term = sp.diff(term, sym.s)
        return True

    @property
    def identity(self) -> bool:
        """Whether κ(s) = s."""
        return bool(self.expr == sym.s)


@dataclass(frozen=True)
class Kernels:
    """κ1, through which predictions see the memory, and κ2, through which it is read out.

    Over predictions a row runs over i < t, over read-outs over i ≤ t.
    """

    predict: Kernel
    read: Kernel

    @property
    def both(self) -> tuple[Kernel, Kernel]:
        """κ1 and κ2."""
        return (self.predict, self.read)

    @property
    def normalised(self) -> bool:
        """Whether either divides its rows by their sums."""
        return self.predict.normalised or self.read.normalised


def kernels_of(features: Features) -> Kernels | None:
    """Return κ1 and κ2 of features that have no finite map, ``None`` for those that have one."""
    if isinstance(features, Exponential):
        both = Kernel(sp.exp(number(features.scale) * sym.s))
        return Kernels(both, both)
    if not isinstance(features, KernelEntry):
        return None
    predict = _read(features.kernel, features.normalise)
    own = features.readout
    return Kernels(predict, predict if own is None else _read(own.kernel, own.normalise))


def _read(text: str, normalise: str) -> Kernel:
    return Kernel(read(text, {"s": sym.s}), normalise == "row")
