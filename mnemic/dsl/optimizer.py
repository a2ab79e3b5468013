"""Optimizers: how the problem is solved at each step."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from mnemic.dsl.axis import Entry
from mnemic.dsl.coefficients import Coefficient, expand

Method = Literal[
    "gd", "momentum", "implicit", "exact", "muon", "adam", "flow", "batch", "nonparametric"
]


class Rate(Coefficient):
    """η, of an exact solver what each pair's loss weighs.

    ``normalized`` divides by 1 + η ℓ″‖φ‖², which keeps every step a contraction.
    """

    normalized: bool = False


class Momentum(Coefficient):
    """θ. ``on: write`` averages the gradient at ŷ = 0 alone."""

    on: Literal["gradient", "write"] = "gradient"


class Anchor(Entry):
    """Where gradients are taken: the last memory (chunk 1) or the last multiple of ``chunk``."""

    chunk: int = Field(default=1, ge=1, le=4096)


class Solver(Entry):
    """How an exact minimiser is found."""

    kind: Literal["cholesky", "conjugate-gradients"] = "cholesky"
    tolerance: float = Field(
        default=1e-6, gt=0, lt=1,
        description="relative residual of conjugate gradients, at least some roundings",
    )  # fmt: skip
    iterations: int = Field(
        default=30, ge=1, le=1000, description="the most; a warning when they are not enough"
    )


def _rate(data: Any) -> Any:
    if isinstance(data, dict) and set(data) == {"normalized"}:
        return {"value": 1.0, **data}
    return expand(data)


def _anchor(data: Any) -> Any:
    return {"chunk": 1} if data == "token" else data


def _plain(data: Any) -> Any:
    return {"method": data} if isinstance(data, str) else data


class OptimizerEntry(Entry):
    """The optimizer: method, rate, momentum, micro and inner steps, interval, anchor, solver."""

    method: Method = "gd"
    rate: Annotated[Rate, BeforeValidator(_rate, json_schema_input_type=float | str | Rate)] = Rate(
        value=1.0
    )
    momentum: (
        Annotated[Momentum, BeforeValidator(expand, json_schema_input_type=float | str | Momentum)]
        | None
    ) = None
    micro_steps: int = Field(default=1, ge=1, le=64, description="own k, v and rate for each")
    inner_steps: int = Field(default=1, ge=1, le=64, description="steps on the same token")
    start: Literal["last", "origin"] = Field(default="last", alias="from")
    ns_steps: int = Field(default=5, ge=1, le=20, description="Newton-Schulz iterations")
    every: int = Field(default=1, ge=1, le=4096, description="tokens between uses of O")
    rate_at: Literal["inside", "outside"] = "inside"
    anchor: Annotated[
        Anchor, BeforeValidator(_anchor, json_schema_input_type=Literal["token"] | Anchor)
    ] = Anchor()
    solver: Solver = Solver()

    @model_validator(mode="after")
    def _momentum_where_it_acts(self) -> "OptimizerEntry":
        if self.method == "momentum" and self.momentum is None:
            raise ValueError("method 'momentum' needs 'momentum', its coefficient θ")
        return self


Optimizer = Annotated[
    OptimizerEntry, BeforeValidator(_plain, json_schema_input_type=Method | OptimizerEntry)
]
