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
    example = "retention: {local: l2}"

    @property
    def generator(self) -> str:
        """w²/2."""
        return "w**2/2"


class Kl(Local):
    """Σ w log(w/w') − w + w'."""

    kind: Literal["kl"] = "kl"
    example = "retention: {local: kl, constraint: {kind: simplex}}\nbias: l2"

    @property
    def generator(self) -> str:
        """w log w − w."""
        return "w*log(w) - w"


class Bregman(Local):
    """The Bregman divergence of a user's generator f(w)."""

    kind: Literal["bregman"] = "bregman"
    shorthand = "bregman"
    example = (
        'retention: {local: {bregman: "w*log(w) + (1 - w)*log(1 - w)"}}\n'
        "bias: l2\n"
        "optimizer: {rate: token}"
    )
    bregman: str = Field(description="the generator f(w), convex")

    @property
    def generator(self) -> str:
        """The user's own generator."""
        return self.bregman


class FDivergence(Local):
    """Σ w' f(w/w'), with W ≥ 0."""

    kind: Literal["f-divergence"] = "f-divergence"
    shorthand = "f-divergence"
    example = (
        'retention: {local: {f-divergence: "x*log(x)"}, constraint: simplex}\n'
        "bias: l2\n"
        "optimizer: {rate: token}"
    )
    f: str = Field(
        alias="f-divergence", description=f"{', '.join(DIVERGENCES)}, or f(x) of x = w/w′, convex"
    )

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
        """Return the coefficients that the expression names."""
        return {}


class NoGlobal(Global):
    """No global term."""

    kind: Literal["none"] = "none"
    example = "retention: {global: none}"


class GlobalL2(Global):
    """½ λ‖W‖²."""

    kind: Literal["l2"] = "l2"
    shorthand = "l2"
    example = "retention: {global: {l2: token}}\noptimizer: {rate: token}"
    l2: Scalar = Field(description="λ, at least 0")

    @property
    def text(self) -> str:
        """λw²/2."""
        return "lam*w**2/2"

    def coefficients(self) -> dict[str, Scalar]:
        """Return λ of λ‖W‖²/2 by its name, ``lam``."""
        return {"lam": self.l2}


class Entropy(Global):
    """λ Σ w log w."""

    kind: Literal["entropy"] = "entropy"
    shorthand = "entropy"
    example = (
        "retention: {local: kl, global: {entropy: 0.1}, constraint: simplex}\n"
        "bias: l2\n"
        "optimizer: {rate: token}"
    )
    entropy: Scalar = Field(description="λ, at least 0")

    @property
    def text(self) -> str:
        """λ w log w."""
        return "lam*w*log(w)"

    def coefficients(self) -> dict[str, Scalar]:
        """Return λ of λ Σ w log w by its name, ``lam``."""
        return {"lam": self.entropy}


class ElasticTerms(Entry):
    """l1‖W‖₁ + (l2/2)‖W‖²."""

    l1: Scalar = Field(description="weight of ‖W‖₁, at least 0")
    l2: Scalar = Field(description="weight of ½‖W‖², at least 0")


class Elastic(Global):
    """l1‖W‖₁ + (l2/2)‖W‖²."""

    kind: Literal["elastic"] = "elastic"
    shorthand = "elastic"
    example = (
        "retention: {global: {elastic: {l1: 0.01, l2: learned}}}\n"
        "bias: l2\n"
        "optimizer: {rate: token}"
    )
    elastic: ElasticTerms = Field(description="the two weights")

    @property
    def text(self) -> str:
        """l1|w| + l2 w²/2."""
        return "l1*abs(w) + l2*w**2/2"

    def coefficients(self) -> dict[str, Scalar]:
        """Return l1 and l2 of l1‖W‖₁ + (l2/2)‖W‖² by their names."""
        return {"l1": self.elastic.l1, "l2": self.elastic.l2}


class Lq(Global):
    """½‖W‖_q²."""

    kind: Literal["lq"] = "lq"
    shorthand = "lq"
    example = "retention: {view: ftrl, global: {lq: 4}}\nbias: l2\noptimizer: {rate: token}"
    lq: float = Field(gt=1, le=16, description="q of the norm")

    @property
    def norm(self) -> float:
        """q of the term ½‖W‖_q²."""
        return self.lq


class Constraint(Family):
    """Where W must lie."""


class Free(Constraint):
    """No constraint."""

    kind: Literal["none"] = "none"
    example = "retention: {constraint: none}"


class Simplex(Constraint):
    """W ≥ 0 with entries that sum to ``scale``, over the matrix, each row or each column."""

    kind: Literal["simplex"] = "simplex"
    example = (
        "retention: {local: kl, constraint: {kind: simplex, scale: 2, over: rows}}\n"
        "bias: l2\n"
        "optimizer: {rate: token}"
    )
    scale: Scalar = Field(default=ONE, description="what the entries sum to, above 0")
    over: Literal["all", "rows", "columns"] = Field(
        default="all", description="which entries sum to it"
    )


class Ball(Constraint):
    """‖W‖_F ≤ radius."""

    kind: Literal["ball"] = "ball"
    example = "retention: {constraint: {kind: ball, radius: 4}}\nbias: l2\noptimizer: {rate: token}"
    radius: Scalar = Field(default=ONE, description="the largest Frobenius norm, above 0")


class StatedLink(Entry):
    """W = link(A) taken as given, not derived from a retention.

    ``expr`` gives an entry of W from the entry ``a`` of the dual A, the norm ``nu`` = ‖A‖_power of
    the whole matrix, and coefficients.
    """

    expr: str = Field(description="an entry of W, in a, nu and coefficients")
    power: float = Field(default=2, ge=1, le=64, description="p of the norm nu = ‖A‖_p")


def _link(data: Any) -> Any:
    return {"expr": data} if isinstance(data, str) else data


def _plain(data: Any) -> Any:
    return {"local": data} if isinstance(data, str) else data


class RetentionEntry(Entry):
    """Retention: a local and a global term, a decoupled decay, an order and constraints."""

    view: Literal["learning-retaining", "ftrl"] = Field(
        default="learning-retaining",
        description="what a step starts from: the memory's own mirror image, or the running dual",
    )
    local: Local = Field(
        default=L2(), description="the local term, a divergence of W from the last W"
    )
    global_: Global = Field(
        default=NoGlobal(),
        alias="global",
        description="the global term, which pulls W towards the origin",
    )
    link: (
        Annotated[StatedLink, BeforeValidator(_link, json_schema_input_type=str | StatedLink)]
        | None
    ) = Field(default=None, description="the map from the dual to W, stated, not derived")
    decay: Scalar = Field(
        default=ONE,
        description="α, a token's factor on the past, in (0, 1]; separate from the terms above; "
        "outer: by key channel as channel is, and by value channel with a row_decay",
    )
    row_decay: Scalar | None = Field(
        default=None, description="the decay of value channels, beside an outer decay of keys"
    )
    phase: Scalar | None = Field(default=None, description="angle per step, for a complex decay")
    order: Literal["before", "after"] = Field(
        default="after",
        description="whether the gradient sees α W (before) or W (after)",
    )
    constraint: Constraint = Field(default=Free(), description="where W must lie")
    normalize: Literal["none", "rows", "columns", "layer-norm"] = Field(
        default="none",
        description="which lines of W are scaled back to their initial norms, at chunk ends or "
        "where W moves; layer-norm: rows, whose means are subtracted too",
    )

    @property
    def lines(self) -> Literal["none", "rows", "columns"]:
        """The lines of W with norms of their own; under a layer norm rows: what a unit sums."""
        return "rows" if self.normalize == "layer-norm" else self.normalize

    @property
    def centred(self) -> bool:
        """Whether every line loses its mean before it is scaled."""
        return self.normalize == "layer-norm"


Retention = Annotated[
    RetentionEntry,
    BeforeValidator(
        _plain, json_schema_input_type=Annotated[str, BareWord(Local)] | RetentionEntry
    ),
]
