"""Coefficients: the scalars of a rule (rate η, momentum θ, decay α, threshold δ, weights γ, …)."""

import math
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from mnemic.dsl.axis import Entry

Per = Literal["head", "key", "value", "outer"]

WORDS: dict[str, dict[str, str]] = {
    "learned": {"from": "parameter"},
    "token": {"from": "input"},
    "channel": {"from": "input", "per": "key"},
    "outer": {"from": "input", "per": "outer"},
}
"""Short words and what they stand for (``docs/language.md``, *Coefficients*)."""


class Coefficient(Entry):
    """A number, an expression of other coefficients, or a value from the input or a parameter.

    Exactly one of ``value``, ``expr`` and ``from`` is set. ``activation`` is a function's name or
    an expression in ``x``; ``init`` is the value in natural units at the start of training, or
    two values: where the first head or channel starts, and where the last does.
    """

    value: float | None = Field(default=None, description="a fixed number")
    expr: str | None = Field(
        default=None,
        description="an expression of other coefficients, the head h of H heads and the step t",
    )
    origin: Literal["parameter", "input"] | None = Field(
        default=None,
        alias="from",
        description="a learned parameter, or an affine map of the layer's input",
    )
    per: Per = Field(
        default="head",
        description="one value per head, key channel or value channel; outer: per pair of channels",
    )
    activation: str | None = Field(default=None, description="a function, or an expression in x")
    init: float | Annotated[tuple[float, float], Field(strict=False)] | None = Field(
        default=None,
        description="the value at the start of training; two values: those of the first and the "
        "last head or channel, the others in between",
    )

    @model_validator(mode="after")
    def _one_origin(self) -> "Coefficient":
        if sum(x is not None for x in (self.value, self.expr, self.origin)) != 1:
            raise ValueError("give exactly one of a number, 'expr' and 'from'")
        if self.origin is None and (self.activation is not None or self.init is not None):
            raise ValueError("'activation' and 'init' belong to a coefficient with 'from'")
        return self

    @property
    def starts(self) -> tuple[float, ...]:
        """The values at the start of training that are told."""
        if self.init is None:
            return ()
        return self.init if isinstance(self.init, tuple) else (self.init,)

    @property
    def fixed(self) -> bool:
        """Whether the value is known from the spec alone."""
        return self.value is not None

    @property
    def learned(self) -> bool:
        """Whether the value reaches the operator as an argument."""
        return self.origin is not None


def expand(data: Any) -> Any:
    """Write a number, a short word or a bare expression out in full."""
    if isinstance(data, bool):
        return data
    if isinstance(data, int | float):
        return {"value": float(data)}
    if isinstance(data, str):
        return {"value": math.inf} if data.strip() == "inf" else WORDS.get(data, {"expr": data})
    return data


Scalar = Annotated[
    Coefficient,
    BeforeValidator(expand, json_schema_input_type=float | str | Coefficient),
]
"""A coefficient with its short forms."""

ONE = Coefficient(value=1.0)
ZERO = Coefficient(value=0.0)
