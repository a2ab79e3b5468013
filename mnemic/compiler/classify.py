"""The structural class of a rule, decided by derivatives and the shape of the link."""

from dataclasses import dataclass

from mnemic.compiler.error_signal import ErrorSignal
from mnemic.compiler.problem import Problem
from mnemic.compiler.retention import Retained
from mnemic.compiler.rule import Moments, Structure
from mnemic.dsl.memory import Diagonal, Linear, Memory, Mlp

UNBOUNDED_STEPS = (
    "this retention's dual lives in a bounded range, which steps leave, and beyond it no memory "
    "minimises the problem: it is derived but not compiled; put the memory on a simplex, or add "
    "w**2/2 to the generator"
)

KEPT = "the feature map is known only by its kernel, so the keys are kept with their rows"

RECURRENT = ("recurrent",)
BOTH = ("recurrent", "chunk")


@dataclass(frozen=True)
class Facts:
    """What the class depends on, all of it derived."""

    problem: Problem
    error: ErrorSignal
    retained: Retained
    moments: Moments | None
    rate_per: str
    row_decay: bool
    anchor: int

    @property
    def linear(self) -> bool:
        """Whether the prediction is linear in W."""
        return _layers(self.problem.spec.memory) == 1 and not self.headed

    @property
    def headed(self) -> bool:
        """Whether a norm or a residual follows the matrix."""
        memory = self.problem.spec.memory
        return bool(getattr(memory, "residual", False) or getattr(memory, "norm", False))


def _layers(memory: Memory) -> int:
    match memory:
        case Linear() | Diagonal():
            return 1
        case Mlp(depth=depth):
            return depth
        case _:
            return 2


def not_compiled(problem: Problem) -> Structure | None:
    """The class and the one sentence for what a later release compiles."""
    spec = problem.spec
    if type(spec.memory).word() in ("nonparametric", "interpolation"):
        return Structure(
            "nonparametric",
            "the memory is the kept pairs themselves",
            (),
            "memories that keep the pairs are derived but not compiled yet",
        )
    if not spec.features.finite and _layers(spec.memory) > 1:
        return Structure(
            "kernelised",
            KEPT,
            (),
            "deep memories behind a kernel are derived but not compiled yet",
        )
    if spec.optimizer.method in ("muon", "adam") or spec.optimizer.every > 1:
        return Structure(
            "frozen" if spec.optimizer.anchor.chunk > 1 else "sequential",
            f"the optimizer '{spec.optimizer.method}' is not linear in the gradient",
            (),
            "optimizers that are not linear in the gradient are derived but not compiled yet",
        )
    if _layers(spec.memory) > 1:
        return Structure(
            "frozen" if spec.optimizer.anchor.chunk > 1 else "sequential",
            "the prediction is not linear in the memory",
            (),
            "deep memories are derived but not compiled yet",
        )
    if spec.retention.normalize != "none":
        return Structure(
            "sequential",
            "the memory is renormalised",
            (),
            "renormalised memories are derived but not compiled yet",
        )
    return None


def classify(facts: Facts) -> Structure:
    """Name the class from the derivatives; ``language.md`` lists the tests."""
    missing = not_compiled(facts.problem)
    if missing is not None:
        return missing
    found = _of_matrix(facts)
    if facts.problem.kernels is None:
        return found
    reason = f"{KEPT}; of the rows: {found.reason}"
    return Structure("kernelised", reason, found.forms, found.missing, rows=found.kind)


def _of_matrix(facts: Facts) -> Structure:
    """The class of the memory as a matrix."""
    if facts.retained.bounded:
        return Structure("sequential", "the link is not the identity", (), UNBOUNDED_STEPS)
    if facts.moments is not None:
        return _second_order(facts.moments, facts.problem)
    identity = facts.retained.mode == "dual" and facts.retained.link.identity
    if facts.linear and identity:
        return _linear(facts)
    blocker = _blocker(facts)
    if facts.anchor > 1 and facts.retained.mode != "multiplicative":
        reason = (
            f"{blocker}, but gradients are taken at the end of the last chunk of {facts.anchor}, "
            "so inside a chunk the dual is linear in them"
        )
        return Structure("frozen", reason, BOTH)
    return Structure("sequential", f"{blocker}, and every token's gradient sees it", RECURRENT)


def _blocker(facts: Facts) -> str:
    if facts.headed:
        return "a norm or a residual follows the matrix"
    if facts.retained.mode == "multiplicative":
        return "the f-divergence multiplies the memory"
    if facts.retained.mode == "prox":
        return "the retention acts on W itself at every step (∇R∘link is not affine)"
    return "the link is not the identity"


def _linear(facts: Facts) -> Structure:
    error = facts.error
    if error.constant:
        reason = "∂e/∂ŷ = 0: the error does not see the memory, so writes add up"
        return Structure("additive", reason, BOTH)
    if facts.row_decay or facts.rate_per == "value":
        if isinstance(facts.problem.spec.memory, Diagonal) and not error.uses_norm:
            pass
        else:
            reason = (
                "decay or rate differ by value channel, so each has a triangular system of its own"
            )
            return Structure("sequential", reason, RECURRENT)
    if isinstance(facts.problem.spec.memory, Diagonal) and error.uses_norm:
        reason = "the loss couples the channels of a diagonal memory"
        return Structure("sequential", reason, RECURRENT)
    if facts.anchor > 1:
        reason = f"gradients are taken at the end of the last chunk of {facts.anchor}"
        return Structure("frozen", reason, BOTH)
    if error.affine:
        reason = f"∂e/∂ŷ = {error.slope} whatever the prediction: W_t is affine in W_(t-1)"
        return Structure("affine", reason, BOTH)
    reason = (
        "e is not affine in ŷ, but W is linear in the errors: a triangular system in the "
        "residuals of a chunk, solved by " + solver(error)
    )
    return Structure("residual", reason, BOTH)


def solver(error: ErrorSignal) -> str:
    """Fixed-point sweeps where ∂e/∂ŷ is bounded, else substitution row by row."""
    bounded = error.bound is not None and error.bound.is_finite
    return "sweeps" if bounded else "substitution"


def _second_order(moments: Moments, problem: Problem) -> Structure:
    iterative = problem.spec.optimizer.solver.kind != "cholesky"
    if moments.constant or iterative:
        return Structure(
            "second-order",
            "a ridge that stays constant under forgetting",
            (),
            "conjugate gradients under a constant ridge are derived but not compiled yet",
        )
    if moments.steps:
        reason = f"{moments.steps} full-batch steps on a quadratic loss see the past in H and U"
        return Structure("second-order", reason, BOTH)
    reason = "the exact minimiser of a quadratic loss over the past, from running moments"
    return Structure("second-order", reason, BOTH)
