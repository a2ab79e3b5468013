"""The structural class of a rule, decided by derivatives and the shape of the link."""

from dataclasses import dataclass

from mnemic.compiler.error_signal import ErrorSignal
from mnemic.compiler.network import Network
from mnemic.compiler.problem import Problem
from mnemic.compiler.retention import Retained, told_range
from mnemic.compiler.rule import Applied, Fit, LeastSquares, Structure
from mnemic.dsl.memory import Diagonal

KEPT = "the feature map is known only by its kernel, so the keys are kept with their rows"
LAYERS = (
    "behind a kernel a layer is rows over kept keys: a link, O, an interval, or a kernel "
    "whose rows are divided by their sums would need the matrix itself"
)

FITS = {
    "mean": "the pairs themselves are kept, and each query takes their weighted mean",
    "linear": "the pairs themselves are kept, and each query solves a weighted regression of them",
    "interpolation": "the pairs themselves are kept, with a factor of their kernel matrix",
}

BY_ROW = "decay differs by value channel, so each row of a chunk's past steps fades by itself"
BY_CHANNEL = "momentum differs by channel, so each has weights of a chunk's past steps of its own"

RECURRENT = ("recurrent",)
BOTH = ("recurrent", "chunk")


@dataclass(frozen=True)
class Facts:
    """What the class depends on, all of it derived."""

    problem: Problem
    error: ErrorSignal
    retained: Retained
    method: Fit | LeastSquares | Applied
    rate_per: str
    momentum_per: str
    row_decay: bool
    anchor: int
    network: Network
    split: bool
    """Whether prediction and value are written apart, by keys of their own."""

    @property
    def sloped_by_value(self) -> bool:
        """Whether ∂e/∂ŷ differs from one value channel to the next by a coefficient."""
        per = {s.symbol: s.per for s in self.problem.scalars}
        return any(per.get(s) == "value" for s in self.error.slope.free_symbols)

    @property
    def linear(self) -> bool:
        """Whether the prediction is linear in W."""
        return self.network.linear

    @property
    def intervals(self) -> tuple[int, ...]:
        """For how many tokens the gradient sees each matrix unchanged."""
        return tuple(max(self.anchor, matrix.every) for matrix in self.network.matrices)


def classify(facts: Facts) -> Structure:
    """Name the class from the derivatives; ``docs/language.md`` lists the tests."""
    match facts.method:
        case Fit(kind=kind):
            return Structure("nonparametric", FITS[kind], BOTH)
        case Applied() as applied if facts.problem.kernels is not None:
            if is_layered(facts.network, applied) and not _rows_enough(facts, applied):
                return Structure("kernelised", KEPT, (), LAYERS)
    found = _of_matrix(facts)
    if facts.problem.kernels is None:
        return found
    reason = f"{KEPT}; of the rows: {found.reason}"
    return Structure("kernelised", reason, found.forms, found.missing, rows=found.kind)


def is_layered(network: Network, applied: Applied) -> bool:
    """Return whether a memory that takes steps has layers, intervals, an O or norms."""
    held = any(matrix.every > 1 for matrix in network.matrices)
    plain = applied.kind == "identity" and applied.normalize == "none"
    return len(network.matrices) > 1 or held or not plain


def _rows_enough(facts: Facts, applied: Applied) -> bool:
    """Return whether all that happens to the layers behind a kernel happens to their rows.

    Norms act on the other layers, which have entries.
    """
    kernels, retained = facts.problem.kernels, facts.retained
    others = [m for m in facts.network.matrices if not facts.network.sees_features(m.name)]
    plain = applied.kind == "identity" and (applied.normalize == "none" or bool(others))
    held = any(matrix.every > 1 for matrix in facts.network.matrices)
    linear = retained.mode == "dual" and retained.link.identity
    return plain and linear and not held and kernels is not None and not kernels.normalised


def _of_matrix(facts: Facts) -> Structure:
    """Name the class of a memory that is a matrix, or matrices of layers, with the reason."""
    if facts.retained.bounded:
        return Structure("sequential", "the link is not the identity", (), _unbounded(facts))
    match facts.method:
        case LeastSquares() as solution:
            return _second_order(solution)
        case Applied() as applied if is_layered(facts.network, applied):
            return _layered(facts, applied)
    identity = facts.retained.mode == "dual" and facts.retained.link.identity
    if facts.linear and identity:
        return _linear(facts)
    why = blocker(facts)
    if facts.anchor > 1 and facts.retained.mode != "multiplicative":
        reason = (
            f"{why}, but gradients are taken at the end of the last chunk of {facts.anchor}, "
            "so inside a chunk the dual is linear in them"
        )
        return Structure("frozen", reason, BOTH)
    return Structure("sequential", f"{why}, and every token's gradient sees it", RECURRENT)


def _layered(facts: Facts, applied: Applied) -> Structure:
    """Name the class of memories of layers, or behind an O, intervals or norms not linear in W."""
    blocker = _obstacle(facts, applied)
    still = min(facts.intervals)
    if still > 1 and _trails_by_channel(facts):
        return Structure("sequential", f"{blocker}, and {BY_CHANNEL}", RECURRENT)
    if still > 1 and facts.row_decay:
        return Structure("sequential", f"{blocker}, and {BY_ROW}", RECURRENT)
    if still > 1:
        reason = (
            f"{blocker}, but the gradient sees a memory that stands still for {still} tokens, "
            "so inside a chunk the steps are known before any of them is taken"
        )
        return Structure("frozen", reason, BOTH)
    return Structure("sequential", f"{blocker}, and every token's gradient sees it", RECURRENT)


def _obstacle(facts: Facts, applied: Applied) -> str:
    names = ", ".join(matrix.name for matrix in facts.network.matrices)
    if not facts.linear:
        return f"the prediction is not linear in the memory ({names})"
    if applied.kind != "identity":
        return f"the step passes through O ({applied.kind}), which is not linear"
    if applied.normalize != "none":
        return "the memory is scaled back to its first norms"
    return "the memory is held between its updates"


def blocker(facts: Facts) -> str:
    """Say why the memory itself is not linear in its steps."""
    if not facts.linear:
        return "a norm or a residual follows the matrix"
    if facts.retained.mode == "multiplicative":
        return "the f-divergence multiplies the memory"
    if facts.retained.mode == "prox":
        return "the retention acts on W itself at every step (∇R∘link is not affine)"
    return "the link is not the identity"


def _trails_by_channel(facts: Facts) -> bool:
    """Return whether a chunk's momentum needs coefficients of past steps for every channel."""
    return facts.momentum_per != "head" and not isinstance(facts.problem.spec.memory, Diagonal)


def _linear(facts: Facts) -> Structure:
    error = facts.error
    if _trails_by_channel(facts):
        return Structure("sequential", BY_CHANNEL, RECURRENT)
    if error.constant:
        reason = "∂e/∂ŷ = 0: the error does not see the memory, so writes add up"
        return Structure("additive", reason, BOTH)
    apart = facts.split or facts.problem.spec.readout.levels is not None
    if facts.row_decay or facts.rate_per == "value" or (facts.sloped_by_value and apart):
        if isinstance(facts.problem.spec.memory, Diagonal) and not error.uses_norm:
            pass
        else:
            reason = (
                "decay, rate or slope differ by value channel, so each has a triangular system of "
                "its own"
            )
            return Structure("sequential", reason, RECURRENT)
    if isinstance(facts.problem.spec.memory, Diagonal) and error.uses_norm:
        reason = "the loss couples the channels of a diagonal memory"
        return Structure("sequential", reason, RECURRENT)
    if facts.anchor > 1:
        reason = f"gradients are taken at the end of the last chunk of {facts.anchor}"
        return Structure("frozen", reason, BOTH)
    if (
        error.affine
        and facts.sloped_by_value
        and not isinstance(facts.problem.spec.memory, Diagonal)
    ):
        reason = (
            f"∂e/∂ŷ = {error.slope} differs by value channel, so each has a triangular system of "
            "its own: they are solved side by side, by forward substitution"
        )
        return Structure("residual", reason, BOTH)
    if error.affine:
        reason = f"∂e/∂ŷ = {error.slope} whatever the prediction: W_t is affine in W_(t-1)"
        return Structure("affine", reason, BOTH)
    reason = (
        "e is not affine in ŷ, but W is linear in the errors: a triangular system in the "
        "residuals of a chunk, solved by forward substitution"
    )
    return Structure("residual", reason, BOTH)


def _unbounded(facts: Facts) -> str:
    """Say why a retention whose dual has a bounded range is not compiled, and what is."""
    retained = facts.retained
    divergence = retained.mode == "multiplicative"
    what, mend = ("f′", "x**2/2 to f") if divergence else ("R′", "w**2/2 to the generator")
    shown = told_range(retained.link.slope, retained.link.domain)
    return (
        f"{what} of this retention stays within {shown}, but every step adds −η∇ℓ to the dual, "
        "which leaves that range: beyond it no memory inside the domain minimises the problem. "
        "It is derived but not compiled (to hold the dual inside would be "
        "another problem): put the memory on a simplex, whose multiplier keeps it inside, or add "
        f"{mend}"
    )


def _second_order(solution: LeastSquares) -> Structure:
    if solution.steps:
        reason = f"{solution.steps} full-batch steps on a quadratic loss see the past in H and U"
        return Structure("second-order", reason, BOTH)
    reason = "the exact minimiser of a quadratic loss over the past, from running moments"
    if solution.iterations:
        reason += (
            "; token by token by a Cholesky factor, a chunk by conjugate gradients to a relative "
            f"residual of {solution.tolerance:g}"
        )
    return Structure("second-order", reason, BOTH)
