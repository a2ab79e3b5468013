"""The regression over kept key–value pairs, derived from the problem that a spec states.

With e = c·(ŷ − v) the stationarity Σ w_i e_i = 0 of a constant fit is linear in the fit, whose
solution is the weighted mean. Any other loss would need a root per query, and is refused.
"""

from collections.abc import Iterator

import sympy as sp

from mnemic.compiler import similarity, steps
from mnemic.compiler import symbols as sym
from mnemic.compiler.error_signal import ErrorSignal
from mnemic.compiler.indices import places_of
from mnemic.compiler.problem import Problem
from mnemic.compiler.rule import Derived, Fit
from mnemic.compiler.symbolic import number
from mnemic.dsl.memory import Interpolation, Nonparametric


def derive(problem: Problem, error: ErrorSignal) -> Fit | None:
    """Derive the fit of a memory of kept pairs; ``None`` for any other memory.

    Raises ``Refused`` where the problem is not solved by one linear system.
    """
    memory = problem.spec.memory
    if problem.similarity is None:
        return None
    _check_loss(problem, error)
    _check_coefficients(problem)
    values = places_of(problem)
    if isinstance(memory, Interpolation):
        if problem.value("alpha") != 1:
            raise steps.Refused(
                "a decay changes every weight of the kernel matrix at every token, so that no "
                "factor of it can be carried on; leave retention.decay out",
                place="retention.decay",
            )
        if problem.spec.window != "all":
            raise steps.Refused(
                "the factor of a kernel matrix grows with its pairs and cannot forget the first: "
                "write window: all",
                place="window",
            )
        found = similarity.derive(problem.similarity, sp.Integer(1), values)
        return Fit("interpolation", found, number(memory.ridge))
    assert isinstance(memory, Nonparametric)
    if problem.spec.window == 1:
        raise steps.Refused(
            "a window of 1 holds the current pair alone, and its mean is v itself: write "
            "window: all, or the number of pairs to keep",
            place="window",
        )
    scale = 1 / sp.sqrt(sym.d_k) if memory.scale is None else number(memory.scale)
    found = similarity.derive(problem.similarity, scale, values)
    if memory.degree == 0:
        return Fit("mean", found, sp.Integer(0), problem.keys.get("carry"))
    return _linear(problem, found)


def _linear(problem: Problem, found: similarity.Similarity) -> Fit:
    ridge = problem.value("ridge")
    if found.sign == "any":
        raise steps.Refused(
            "the similarity {} can be negative, and least squares with negative "
            "weights has no minimum; use one that is never negative, such as exp(s)",
            problem.similarity,
            place="memory.similarity",
        )
    if ridge == 0:
        raise steps.Refused(
            "without a ridge the slope of the first tokens is not unique: write ridge: 0.1 or any "
            "number above 0",
            place="memory.ridge",
        )
    return Fit("linear", found, ridge, problem.keys.get("carry"))


def _check_coefficients(problem: Problem) -> None:
    named = sp.sympify(problem.similarity).free_symbols
    for scalar in problem.scalars:
        used = scalar.symbol in named or scalar.name == "alpha"
        if used and scalar.per != "head":
            raise steps.Refused(
                f"a pair has one weight, so {scalar.name} is one number a head; read one per "
                f"{scalar.per}"
            )


def _check_loss(problem: Problem, error: ErrorSignal) -> None:
    quadratic = error.affine and not error.constant and error.slope.is_number
    if not quadratic or sp.expand(error.offset + error.slope * sym.v) != 0:
        raise steps.Refused(
            "a fit over kept pairs is one linear system for a quadratic loss only; write bias: l2",
            place="bias",
        )
    if error.slope != 1:
        raise steps.Refused(
            "write the quadratic loss as bias: l2, with the factor 1/2", place="bias"
        )


def _ridged(fit: Fit) -> str:
    """Write what the ridge adds to a matrix."""
    shown = str(fit.ridge).replace("**", "^").replace("*", " ")
    return "" if fit.ridge == 0 else f" + ({shown}) I" if " " in shown else f" + {shown}·I"


def trail(fit: Fit) -> Iterator[Derived]:
    """Yield the lines that tell how the fit was found, step by step."""
    found = fit.similarity
    w = sp.Symbol("w", real=True)
    yield Derived("weight", sp.Eq(w, found.weight), "s and d² spelled out")
    if fit.carry is not None:
        carry = "k̃ᵢ ← k̃ᵢ − η ∂/∂k̃ᵢ ½(k̃ᵢᵀc)² = (I − η c cᵀ) k̃ᵢ"
        reason = "every token takes a step against what the keys before it have along its carry c"
        yield Derived("kept keys", carry, reason)
    if fit.kind == "interpolation":
        solution = f"y = Vᵀ (κ(K, K){_ridged(fit)})⁻¹ κ(K, q)"
        yield Derived("solution", solution, "by the kernel alone")
        return
    if found.logit is None:
        yield Derived("logit", "none", "the weight is no product of exponentials")
    else:
        reason = "log w, without what sees the query alone: it cancels"
        yield Derived("logit", found.logit, reason)
    if found.linear is not None:
        yield Derived("scale", found.linear.slope, "the logit is an inner product: ∂/∂(kᵀq)")
    solution = "Σ wᵢ eᵢ = 0: the weighted mean"
    if fit.kind == "linear":
        solution = (
            f"a = v̄ + Σ wᵢ ((kᵢ − k̄)ᵀx) vᵢ,  (Σ wᵢ (kᵢ − k̄)(kᵢ − k̄)ᵀ{_ridged(fit)}) x = q − k̄,  "
            "v̄ = Σ wᵢ vᵢ / Σ wᵢ,  k̄ = Σ wᵢ kᵢ / Σ wᵢ,  every wᵢ over the largest"
        )
    yield Derived("solution", solution, "stationarity of the fit")
