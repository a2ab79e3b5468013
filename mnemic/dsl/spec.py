"""The spec: a point in the design space, as a frozen model."""

import keyword
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field

from mnemic.dsl.axis import Entry
from mnemic.dsl.bias import Bias, Dot
from mnemic.dsl.block import Block
from mnemic.dsl.coefficients import Coefficient, Scalar
from mnemic.dsl.features import Features, Identity
from mnemic.dsl.keys import Keys
from mnemic.dsl.memory import Linear, Memory
from mnemic.dsl.methods import options_of
from mnemic.dsl.optimizer import Optimizer, OptimizerEntry
from mnemic.dsl.readout import Readout
from mnemic.dsl.retention import Retention, RetentionEntry
from mnemic.dsl.weights import Uniform, Weights

LANGUAGE: Final = 1
"""The version of the language that this release reads."""


def _version(data: Any) -> Any:
    if data != LANGUAGE or type(data) is not int:  # 1.0 and True are 1 to a Literal
        raise ValueError(f"must be {LANGUAGE}, the version of the language")
    return data


class Source(Entry):
    """Where the system comes from."""

    paper: str = Field(description="author, year, title")
    where: str | None = Field(default=None, description="section, equation or table")


class Published(Entry):
    """An equation as a paper prints it, in a matrix grammar, and a verdict on it.

    ``rule`` is one or more assignments, separated by ``;``, to W (and S, A): for example
    ``W = alpha*W @ (I - eta*k @ k.T) + eta*v @ k.T``; right-hand sides read the previous state.
    """

    where: str = Field(description="paper, section, equation")
    rule: str = Field(description="assignments to W, S and A, as printed")
    verdict: Literal["agrees", "convention", "differs", "approximate", "unjudged"] = Field(
        default="agrees", description="how the derived rule relates to the printed one"
    )
    problem: str | None = Field(
        default=None, description="the problem that the line should solve, with gradient and argmin"
    )
    corrected: str | None = Field(default=None, description="the line, corrected")
    note: str | None = Field(default=None, description="why printed and derived rule differ")


class Spec(Entry):
    """One memory: seven axes (``features`` to ``optimizer``), its keys, read-out and block."""

    mnemic: Annotated[Literal[1], BeforeValidator(_version)] = Field(
        default=LANGUAGE, description="version of the language"
    )
    name: str = Field(
        pattern=r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$",
        max_length=64,
        description="the spec's name: lower-case letters, digits, single hyphens; at most 64 long",
    )
    title: str | None = Field(default=None, description="the system's name as people write it")
    source: Source | None = Field(
        default=None, repr=False, description="where the system comes from"
    )
    features: Features = Field(
        default=Identity(),
        description="φ, what a key or query is turned into before the memory sees it",
    )
    memory: Memory = Field(
        default=Linear(), description="M(W, ·), what the memory is as a function"
    )
    bias: Bias = Field(
        default=Dot(), description="ℓ(ŷ, v), the inner loss that the memory minimises"
    )
    weights: Weights = Field(default=Uniform(), description="γ, the weight of each pair's loss")
    window: Annotated[int, Field(ge=1, le=4096)] | Literal["all"] = Field(
        default=1,
        description="tokens whose losses enter a step; all for methods that see the whole past",
    )
    retention: Retention = Field(
        default=RetentionEntry(),
        description="how the past is kept: local and global terms, decay, constraint, norms",
    )
    optimizer: Optimizer = Field(
        default=OptimizerEntry(), description="how the problem is solved at every token"
    )
    coefficients: dict[str, Scalar] = Field(
        default_factory=dict, description="coefficients of your own, for expressions to name"
    )
    keys: Keys = Field(
        default=Keys(), description="the vectors that predict, erase and write, and the value"
    )
    readout: Readout = Field(default=Readout(), description="how the memory is read")
    block: Block = Field(
        default=Block(),
        description="the layer around the memory: projections, norms, gates, attention beside it",
    )
    published: Annotated[tuple[Published, ...], Field(strict=False)] = Field(
        default=(), repr=False, description="equations as a paper prints them, each with a verdict"
    )
    notes: str | None = Field(default=None, repr=False, description="what a reader should know")

    def __str__(self) -> str:
        """Return the spec as YAML that loads to an equal spec, defaults left out."""
        from mnemic.dsl.writing import plain_yaml

        return plain_yaml(self)

    @property
    def module(self) -> str:
        """The name as a module's: an identifier, no keyword, and none of the folder's own names."""
        name = self.name.replace("-", "_")
        taken = keyword.iskeyword(name) or name in ("kernels", "ops", "step", "support", "tiles")
        return f"{name}_" if taken else name

    def named_coefficients(self) -> dict[str, Coefficient]:
        """Return every coefficient of the rule by the name that expressions use for it."""
        return {name: c for name, _, c in self.placed_coefficients()}

    def placed_coefficients(self) -> Iterator[tuple[str, str, Coefficient]]:
        """Return every coefficient's name, its place in the spec, and the coefficient.

        A name comes twice where two parts of the rule use it, which the checks refuse.
        """
        return ((n, place, c) for n, place, c in self._parts() if isinstance(c, Coefficient))

    def absent_coefficients(self) -> dict[str, str]:
        """Return the names of coefficients that this rule could have and leaves out, with their
        places."""
        return {n: place for n, place, c in self._parts() if not isinstance(c, Coefficient)}

    def all_coefficients(self) -> Iterator[tuple[str, str]]:
        """Return the name and the place of every coefficient that is there or could be."""
        return ((name, place) for name, place, _ in self._parts())

    @property
    def rate_name(self) -> str:
        """What the rate is called: eta, or an implicit step's delta where that name is free."""
        taken = "delta" in self.bias.coefficients() or "delta" in self.coefficients
        return "delta" if self.optimizer.method == "implicit" and not taken else "eta"

    def _parts(self) -> Iterator[tuple[str, str, object]]:
        """Yield name, place and coefficient (None if left out) of each part that may have one."""
        optimizer, retention = self.optimizer, self.retention
        limits, memory = retention.constraint, self.memory
        slopes, own = getattr(memory, "degree", 0) > 0, options_of(optimizer.method)
        parts: tuple[tuple[str, str, object], ...] = (
            (self.rate_name, "optimizer.rate", optimizer.rate),
            *((("eta", "optimizer.rate", None),) if self.rate_name == "delta" else ()),
            ("theta", "optimizer.momentum", optimizer.momentum),
            ("beta2", "optimizer.beta2", optimizer.beta2 if "beta2" in own else None),
            ("alpha", "retention.decay", retention.decay),
            ("beta", "retention.row_decay", retention.row_decay),
            ("phase", "retention.phase", retention.phase),
            ("gamma", "weights.gamma", self.weights.gate),
            ("bonus", "readout.bonus", self.readout.bonus),
            ("levels", "readout.levels", self.readout.levels),
            ("scale", "retention.constraint.scale", getattr(limits, "scale", None)),
            ("radius", "retention.constraint.radius", getattr(limits, "radius", None)),
            ("ridge", "memory.ridge", getattr(memory, "ridge", None) if slopes else None),
            *((n, f"features.{place}", c) for n, place, c in self.features.coefficients()),
            *((n, f"bias.{n}", c) for n, c in self.bias.coefficients().items()),
            *((n, "retention.global", c) for n, c in retention.global_.coefficients().items()),
            *((n, f"coefficients.{n}", c) for n, c in self.coefficients.items()),
        )
        yield from parts
