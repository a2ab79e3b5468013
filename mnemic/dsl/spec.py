"""The spec: a point in the design space, as a frozen model."""

from typing import Annotated, Literal

from pydantic import Field

from mnemic.dsl.axis import Entry
from mnemic.dsl.bias import Bias, Dot
from mnemic.dsl.block import Block
from mnemic.dsl.coefficients import Coefficient, Scalar
from mnemic.dsl.features import Features, Identity
from mnemic.dsl.keys import Keys
from mnemic.dsl.memory import Linear, Memory
from mnemic.dsl.optimizer import Optimizer, OptimizerEntry
from mnemic.dsl.readout import Readout
from mnemic.dsl.retention import Retention, RetentionEntry
from mnemic.dsl.weights import Uniform, Weights


class Source(Entry):
    """Where the system comes from."""

    paper: str
    where: str | None = None


class Published(Entry):
    """An equation as printed, in a matrix grammar, and what is known of it.

    ``rule`` is one or more assignments, separated by ``;``, to W (and S, A): for example
    ``W = alpha*W @ (I - eta*k @ k.T) + eta*v @ k.T``; right-hand sides see the last step's state.
    """

    where: str
    rule: str
    verdict: Literal["agrees", "convention", "differs", "approximate", "unjudged"] = "agrees"
    note: str | None = None


class Spec(Entry):
    """One memory: seven axes, and how it is keyed, read and set into a block."""

    mnemic: Literal[1] = Field(default=1, description="version of the language")
    name: str = Field(pattern=r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$", max_length=64)
    title: str | None = None
    source: Source | None = None
    features: Features = Identity()
    memory: Memory = Linear()
    bias: Bias = Dot()
    weights: Weights = Uniform()
    window: Annotated[int, Field(ge=1, le=4096)] | Literal["all"] = 1
    retention: Retention = RetentionEntry()
    optimizer: Optimizer = OptimizerEntry()
    coefficients: dict[str, Scalar] = Field(
        default_factory=dict, description="coefficients of your own, for expressions to name"
    )
    keys: Keys = Keys()
    readout: Readout = Readout()
    block: Block = Block()
    published: Annotated[tuple[Published, ...], Field(strict=False)] = ()
    notes: str | None = None

    def named_coefficients(self) -> dict[str, Coefficient]:
        """Every coefficient of the rule by the name that expressions use for it."""
        optimizer, retention = self.optimizer, self.retention
        rate = "delta" if optimizer.method == "implicit" else "eta"
        found: dict[str, Coefficient | None] = {
            rate: optimizer.rate,
            "theta": optimizer.momentum,
            "alpha": retention.decay,
            "beta": retention.row_decay,
            "phase": retention.phase,
            "gamma": self.weights.gate,
            "bonus": self.readout.bonus,
            "scale": getattr(retention.constraint, "scale", None),
            "radius": getattr(retention.constraint, "radius", None),
            "ridge": getattr(self.memory, "ridge", None),
            **self.bias.coefficients(),
            **retention.global_.coefficients(),
            **self.coefficients,
        }
        return {name: c for name, c in found.items() if isinstance(c, Coefficient)}
