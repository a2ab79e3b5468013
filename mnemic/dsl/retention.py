"""Retention Ret(W, W_{t−1}): how the past is kept.

Named generators are names for expressions in ``w`` (Bregman) or ``x`` = w/w' (f-divergence), so
that they take the same path as a user's own.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field

from mnemic.dsl.axis import BareWord, Entry, Family
from mnemic.dsl.coefficients import ONE, Scalar

DIVERGENCES: Final[Mapping[str, str]] = {
    "chi2": "(x - 1)**2",
    "hellinger": "(sqrt(x) - 1)**2",
    "jensen-shannon": "x*log(x) - (x + 1)*log((x + 1)/2)",
    "reverse-kl": "-log(x)",
    "kl": "x*log(x)",
}
"""Named generators of f-divergences."""


class Local(Family):
    """The local term: a Bregman divergence of a generator f(w), or an f-divergence."""

    @property
    def generator(self) -> str | None:
        """f(w) of the Bregman divergence, where it is one."""
        return None

    @property
    def divergence(self) -> str | None:
        """f(x) of the f-divergence, where it is one."""
        return None


class L2(Local):
    """½‖W − W'‖²."""

    kind: Literal["l2"] = "l2"

    @property
    def generator(self) -> str:
        """w²/2."""
        return "w**2/2"


class Kl(Local):
    """Σ w log(w/w') − w + w'."""

    kind: Literal["kl"] = "kl"

    @property
    def generator(self) -> str:
        """w log w − w."""
        return "w*log(w) - w"


class Bregman(Local):
    """The Bregman divergence of a user's generator f(w)."""

    kind: Literal["bregman"] = "bregman"
    shorthand = "bregman"
    bregman: str

    @property
    def generator(self) -> str:
        """The user's own generator."""
        return self.bregman


class FDivergence(Local):
    """Σ w' f(w/w'), with W ≥ 0."""

    kind: Literal["f-divergence"] = "f-divergence"
    shorthand = "f-divergence"
    f: str = Field(alias="f-divergence")

    @property
    def divergence(self) -> str:
        """f(x), by name or as the user's expression."""
        return DIVERGENCES.get(self.f, self.f)


class Global(Family):
    """The global term, as an expression in ``w`` (summed over entries), or a squared norm."""

    @property
    def text(self) -> str:
        """The term as an expression."""
        return "0"

    @property
    def norm(self) -> float | None:
        """q of a term ½‖W‖_q², which couples the entries."""
        return None

    def coefficients(self) -> dict[str, Scalar]:
        """The coefficients that the expression names."""
        return {}


class NoGlobal(Global):
    """No global term."""

    kind: Literal["none"] = "none"


class GlobalL2(Global):
    """½ λ‖W‖²."""

    kind: Literal["l2"] = "l2"
    shorthand = "l2"
    l2: Scalar

    @property
    def text(self) -> str:
        """λw²/2."""
        return "lam*w**2/2"

    def coefficients(self) -> dict[str, Scalar]:
        """λ."""
        return {"lam": self.l2}


class Entropy(Global):
    """λ Σ w log w."""

    kind: Literal["entropy"] = "entropy"
    shorthand = "entropy"
    entropy: Scalar

    @property
    def text(self) -> str:
        """λ w log w."""
        return "lam*w*log(w)"

    def coefficients(self) -> dict[str, Scalar]:
        """λ."""
        return {"lam": self.entropy}


class ElasticTerms(Entry):
    """l1‖W‖₁ + (l2/2)‖W‖²."""

    l1: Scalar
    l2: Scalar


class Elastic(Global):
    """l1‖W‖₁ + (l2/2)‖W‖²."""

    kind: Literal["elastic"] = "elastic"
    shorthand = "elastic"
    elastic: ElasticTerms

    @property
    def text(self) -> str:
        """l1|w| + l2 w²/2."""
        return "l1*abs(w) + l2*w**2/2"

    def coefficients(self) -> dict[str, Scalar]:
        """l1 and l2."""
        return {"l1": self.elastic.l1, "l2": self.elastic.l2}


class Lq(Global):
    """½‖W‖_q²."""

    kind: Literal["lq"] = "lq"
    shorthand = "lq"
    lq: float = Field(gt=1, le=16)

    @property
    def norm(self) -> float:
        """q."""
        return self.lq


class Constraint(Family):
    """Where W must lie."""


class Free(Constraint):
    """No constraint."""

    kind: Literal["none"] = "none"


class Simplex(Constraint):
    """W ≥ 0 with entries that sum to ``scale``, over the matrix, each row or each column."""

    kind: Literal["simplex"] = "simplex"
    scale: Scalar = ONE
    over: Literal["all", "rows", "columns"] = "all"


class Ball(Constraint):
    """‖W‖_F ≤ radius."""

    kind: Literal["ball"] = "ball"
    radius: Scalar = ONE


class StatedLink(Entry):
    """W = link(A) taken as given, not derived from a retention.

    ``expr`` is the entry of W in the entry ``a`` of the dual A, the norm ``nu`` = ‖A‖_power of the
    whole matrix, and coefficients.
    """

    expr: str
    power: float = Field(default=2, ge=1, le=64)


def _link(data: Any) -> Any:
    return {"expr": data} if isinstance(data, str) else data


def _plain(data: Any) -> Any:
    return {"local": data} if isinstance(data, str) else data


class RetentionEntry(Entry):
    """Retention: a local and a global term, a decoupled decay, an order and constraints."""

    view: Literal["learning-retaining", "ftrl"] = "learning-retaining"
    local: Local = L2()
    global_: Global = Field(default=NoGlobal(), alias="global")
    link: (
        Annotated[StatedLink, BeforeValidator(_link, json_schema_input_type=str | StatedLink)]
        | None
    ) = Field(default=None, description="from the dual to W, taken as given instead of derived")
    decay: Scalar = ONE
    row_decay: Scalar | None = Field(
        default=None, description="the decay of value channels beside an outer decay of keys"
    )
    phase: Scalar | None = Field(default=None, description="angle a step, for a complex decay")
    order: Literal["before", "after"] = "after"
    constraint: Constraint = Free()
    normalize: Literal["none", "rows", "columns"] = "none"


Retention = Annotated[
    RetentionEntry,
    BeforeValidator(
        _plain, json_schema_input_type=Annotated[str, BareWord(Local)] | RetentionEntry
    ),
]
