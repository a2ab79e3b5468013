"""The rule: what a problem derives to. It is one of five kinds over one common part.

| kind | the memory |
| --- | --- |
| ``Linear`` | one matrix, moved by a step a token |
| ``Layers`` | several matrices, or one behind O, norms or an interval between its updates |
| ``Levels`` | one matrix whose shares, by the age of what was written, are read apart |
| ``Moments`` | the solution of a quadratic problem, from running sums over the pairs |
| ``KeyValuePairs`` | the pairs themselves (a KV cache), fitted anew at every query |

Stages that treat kinds apart ``match`` on them; nothing else tells them apart.
"""

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

import sympy as sp

from mnemic.compiler.error_signal import ErrorSignal
from mnemic.compiler.kernels import Kernels
from mnemic.compiler.network import Matrix, Network
from mnemic.compiler.problem import Problem, Scalar
from mnemic.compiler.retention import Retained
from mnemic.compiler.running import Running
from mnemic.compiler.similarity import Similarity
from mnemic.errors import Issue

Kind = Literal[
    "additive", "affine", "residual", "frozen", "kernelised", "second-order", "nonparametric",
    "sequential",
]  # fmt: skip


@dataclass(frozen=True)
class Structure:
    """The class of a rule, why, the forms that follow, and what is not compiled yet.

    ``missing`` says why no rule of this class has forms, ``refused`` is all that keeps this one
    from having any, each at its place in the spec. ``rows`` is the class that the rows of a
    kernelised memory have: κ(K·x) stands for products.
    """

    kind: Kind
    reason: str
    forms: tuple[str, ...]
    missing: str | None = None
    rows: Kind | None = None
    refused: tuple[Issue, ...] = ()

    @property
    def algebra(self) -> Kind:
        """The class by which the forms are built."""
        return self.rows or self.kind


@dataclass(frozen=True)
class Derived:
    """One step of the derivation: a title, an equation and the reason.

    The equation is SymPy, text, or a step of a memory of layers (`mnemic.compiler.network`).
    """

    title: str
    equation: Any
    reason: str


@dataclass(frozen=True)
class LeastSquares:
    """How running moments H = Σ w k kᵀ, U = Σ w v kᵀ are solved: exactly, or by gradient steps.

    ``ridge`` λ, ``steps`` full-batch gradient steps from the origin (0: the exact minimiser),
    ``constant`` whether the ridge stands beside H, where forgetting leaves it alone (otherwise H
    starts at λI), ``weight`` is that of a new pair, ``fades`` says whether the weights decay,
    ``iterations`` is the maximum of conjugate gradients (0: a direct solve), ``tolerance`` their
    relative residual.
    """

    ridge: Any
    steps: int
    constant: bool
    weight: Any
    fades: bool
    iterations: int = 0
    tolerance: float = 0.0

    @property
    def inverted(self) -> bool:
        """Whether P = H⁻¹ can be carried: the ridge starts H and nothing is added to it."""
        return self.steps == 0 and self.iterations == 0 and not self.constant


@dataclass(frozen=True)
class Applied:
    """O, the map of a step S before it is added to the dual: A_t = decay ∘ A_{t−1} + gain·O(S_t).

    ``newton-schulz`` takes ``steps`` iterations towards the nearest semi-orthogonal matrix; with
    ``outside`` the rate multiplies O(S) in place of the gradient. ``normalize`` scales the rows or
    columns of W to their norms at the start, where the memory moves; ``centred`` ones, which is a
    layer norm, first lose their mean, and their norms at the start are those without it.

    An optimizer that acts entry by entry has a ``step`` in place of O(S): an expression of
    g = −G, of its running ``averages`` after and before the token, of coefficients, and of
    ``numbers``, pairs of a symbol and its value. ``kind`` is then the name of its method.
    """

    kind: str = "identity"
    steps: int = 0
    outside: bool = False
    normalize: str = "none"
    centred: bool = False
    step: Any = None
    averages: tuple[Running, ...] = ()
    numbers: tuple[tuple[Any, float], ...] = ()

    @property
    def elementwise(self) -> bool:
        """Whether a step of each entry's gradient and its averages stands in place of O(S)."""
        return self.step is not None

    @property
    def valued(self) -> Any:
        """The step with the values of its numbers."""
        return self.step.subs({symbol: sp.Float(x) for symbol, x in self.numbers})

    @property
    def expressions(self) -> tuple[Any, ...]:
        """Every expression of coefficients in the step: its own, and its averages' decays."""
        return () if self.step is None else (self.step, *(a.decay for a in self.averages))


@dataclass(frozen=True)
class Fit:
    """A regression over key–value pairs, solved anew at every query.

    ``mean``: y = Σ w v / Σ w. ``linear``: the intercept at q of a weighted ridge regression,
    ``ridge`` on the slope. ``interpolation``: Vᵀ (κ(K, K) + ridge·I)⁻¹ κ(K, q). With a ``carry``,
    one coordinate of a vector c, every token first moves the stored keys, k̃ ← (I − η c cᵀ) k̃.
    """

    kind: Literal["mean", "linear", "interpolation"]
    similarity: Similarity
    ridge: Any
    carry: Any | None = None


@dataclass(frozen=True, kw_only=True)
class Common:
    """What every rule has: the normal form of ``docs/language.md``.

    G_t = Σ γ e(W_ref·p, v) rᵀ       S_t = θ S_{t−1} − η G_t
    A_t = decay ∘ A_{t−1} + gain·S_t       W_t = link(A_t)       y_t = W_t φ(q_t)

    ``decay`` acts on the state (per head, key channel, or with ``row_decay`` per value channel
    too), ``seen`` is the part of it that the gradient sees; ``rate`` is η, ``gain`` what the
    retention makes of a step, ``momentum`` θ or ``None``, ``applied`` O. A solution (``Moments``,
    ``KeyValuePairs``) takes no step a token: its gain is 1, O the identity, its momentum ``None``.
    """

    problem: Problem
    error: ErrorSignal
    rate: Any
    gain: Any
    decay: Any
    row_decay: Any
    seen: Any
    phase: bool
    momentum: Any | None
    momentum_on: str
    retained: Retained
    network: Network
    applied: Applied
    window: int
    gamma: str | None
    rows: int
    shared_rows: bool
    anchor: int
    split: bool
    structure: Structure
    steps: tuple[Derived, ...]

    @property
    def name(self) -> str:
        """The system's name."""
        return self.problem.spec.name

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        """The coefficients."""
        return self.problem.scalars

    @property
    def kernels(self) -> Kernels | None:
        """κ1 and κ2 where the memory is known through a kernel alone."""
        return self.problem.kernels

    @property
    def diagonal(self) -> bool:
        """Whether every value channel is a memory by itself (an elementwise state)."""
        return type(self.problem.spec.memory).word() == "diagonal"

    @property
    def parameters(self) -> tuple[Matrix, ...]:
        """The matrices that start at parameters.

        Several layers would never leave zero. One matrix behind a norm would leave it with so long
        a first step, the norm's slope there being 1/√ε, that no later step changes it. A memory
        over stored keys alone starts without pairs, and one whose steps are factors starts where
        its constraint puts it.
        """
        matrices = self.network.matrices
        if len(matrices) < 2 and (
            not self.network.normed or self.retained.mode == "multiplicative"
        ):
            return ()
        if self.kernels is None:
            return matrices
        return tuple(m for m in matrices if not self.network.sees_features(m.name))

    @property
    def weight(self) -> Any:
        """γ of a whole step, where the rate stands outside of O and cannot hold it."""
        even = self.problem.even_weight
        return even if self.applied.outside and even is not None else sp.Integer(1)

    def tag(self, matrix: Matrix) -> str:
        """Return the suffix of a matrix's state names: nothing where it is the only matrix."""
        return ""

    def keeps_rows(self, matrix: Matrix) -> bool:
        """Return whether a matrix is kept as rows over keys, as φ is known only by a kernel."""
        return self.kernels is not None and self.network.sees_features(matrix.name)

    @property
    def intervals(self) -> tuple[int, ...]:
        """Numbers of tokens after which something moves: the anchor, held matrices."""
        found = {self.anchor, *(matrix.every for matrix in self.network.matrices)}
        return tuple(sorted(found - {1}))

    @property
    def sees_memory(self) -> bool:
        """Whether the gradient depends on the memory: by the error, a norm or other matrices."""
        network = self.network
        return len(network.matrices) > 1 or network.normed or not self.error.constant

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.structure.kind!r})"

    def __str__(self) -> str:
        """Return the derivation as lines of text, as ``mnemic derive`` prints it."""
        from mnemic.compiler.explain.render import to_text

        return to_text(cast("Rule", self))

    def _repr_latex_(self) -> str:
        """Return the numbered equations, for a notebook."""
        from mnemic.compiler.explain.render import latex_of

        return latex_of(cast("Rule", self))


@dataclass(frozen=True, kw_only=True, repr=False)
class Linear(Common):
    """One matrix, W_t = link(A_t), moved by a plain step a token."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Layers(Common):
    """Several matrices, or one behind O, held between updates, or scaled to its first norms."""

    def tag(self, matrix: Matrix) -> str:
        """Return the number of a matrix."""
        return matrix.name.removeprefix("W")


@dataclass(frozen=True, kw_only=True, repr=False)
class Levels(Common):
    """One matrix whose read-out weights ``levels`` shares of what was written separately."""

    levels: int


@dataclass(frozen=True, kw_only=True, repr=False)
class Moments(Common):
    """An exact or batch solution W_t of a quadratic problem over the past."""

    solution: LeastSquares


@dataclass(frozen=True, kw_only=True, repr=False)
class KeyValuePairs(Common):
    """The pairs themselves: the state grows with the sequence."""

    fit: Fit


Rule: TypeAlias = Linear | Layers | Levels | Moments | KeyValuePairs


def starts_at_zero(rule: Rule) -> bool:
    """Return whether a memory takes steps by errors and starts at W = 0, which predicts ŷ = 0."""
    if isinstance(rule, Moments | KeyValuePairs):
        return False
    return not rule.parameters and not rule.network.adds_input and rule.retained.link.identity


def takes_steps(rule: Rule) -> bool:
    """Return whether a token takes several steps."""
    optimizer = rule.problem.spec.optimizer
    return not isinstance(rule, Moments) and optimizer.micro_steps * optimizer.inner_steps > 1
