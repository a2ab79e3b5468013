"""Optimizers: how the problem is solved at each step."""

from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from mnemic.dsl.axis import Entry
from mnemic.dsl.coefficients import Coefficient, Scalar, expand
from mnemic.dsl.methods import ELEMENTWISE, OPTIONS, Method, have, options_of


class Rate(Coefficient):
    """η, the size of a step; for an exact solver, the weight of each pair's loss.

    ``normalized`` divides it by 1 + η ℓ″‖φ‖², which keeps every step a contraction if ℓ″ does not
    decrease as ŷ moves away from v; for other losses `check` says up to which η‖φ‖² it does.
    """

    normalized: bool = Field(
        default=False, description="whether the rate is divided by 1 + η ℓ″‖φ‖²"
    )


class Momentum(Coefficient):
    """θ. ``on: write`` averages only the gradient at ŷ = 0."""

    on: Literal["gradient", "write"] = Field(
        default="gradient", description="what is averaged: the gradient, or the gradient at ŷ = 0"
    )


BETA2 = Coefficient(value=0.999)
"""How slowly Adam's second moment forgets, as its paper has it."""


OF_EACH = "".join(f"{name}: {one.says} ({one.source}); " for name, one in ELEMENTWISE.items())
"""What the methods that act entry by entry do."""


def _of_each(option: str) -> str:
    """Say what each method that acts entry by entry does with an option of its own."""
    told = {n: e.coefficients.get(option) for n, e in ELEMENTWISE.items() if option in e.options}
    return "; ".join(f"{name}: {what}" for name, what in told.items())


class Anchor(Entry):
    """Where gradients are taken: at the last memory (chunk 1), or that of the last chunk's end."""

    chunk: int = Field(
        default=1,
        ge=1,
        le=4096,
        description="tokens whose gradients are taken at the same memory; 1 for no anchor",
    )


Solving = Literal["cholesky", "conjugate-gradients"]


class Solver(Entry):
    """How an exact minimiser is found."""

    kind: Solving = Field(
        default="cholesky", description="a direct solve, or an iteration with a tolerance"
    )
    tolerance: float = Field(
        default=1e-6, gt=0, lt=1,
        description="relative residual of conjugate gradients, no less than a few roundings",
    )  # fmt: skip
    iterations: int = Field(
        default=30,
        ge=1,
        le=1000,
        description="the most iterations; where they are too few, a call warns",
    )

    @property
    def most(self) -> int:
        """Iterations that a solve may take; 0 where it takes none."""
        return self.iterations if self._iterates else 0

    @property
    def residual(self) -> float:
        """Relative residual that a solve may leave; 0 where it leaves roundings alone.

        >>> Solver(tolerance=1e-4).residual
        0.0
        >>> Solver(kind="conjugate-gradients", tolerance=1e-4).residual
        0.0001
        """
        return self.tolerance if self._iterates else 0.0

    @property
    def _iterates(self) -> bool:
        return self.kind == "conjugate-gradients"


def _rate(data: Any) -> Any:
    if isinstance(data, dict) and set(data) == {"normalized"}:
        return {"value": 1.0, **data}
    return expand(data)


def _anchor(data: Any) -> Any:
    return {"chunk": 1} if data == "token" else data


def _named(data: Any) -> Any:
    return {"kind": data} if isinstance(data, str) else data


def _plain(data: Any) -> Any:
    return {"method": data} if isinstance(data, str) else data


class OptimizerEntry(Entry):
    """The optimizer: method, rate, momentum, micro and inner steps, interval, anchor, solver.

    Some methods (adam, lion, adagrad) act entry by entry. With g = −G they keep running averages
    X = β X + (1 − β) x(g), or sums X = X + x(g), and W moves by η times a function of g and of
    these. A hat marks an average that is divided by the weight it has gathered (Adam's bias
    correction). ``momentum`` and ``beta2`` give their θ and β₂; without ``momentum``, θ is zero.
    """

    method: Method = Field(
        default="gd",
        description="gd: a gradient step; momentum: one of averaged gradients; implicit: the "
        "proximal step, solved together with an l2 term of the retention; exact: the minimiser "
        "over the past; muon: orthogonalised momentum; "
        f"{OF_EACH}flow: the gradient flow of the loss for a time η; batch: full-batch steps; "
        "nonparametric: the pairs are kept",
    )
    rate: Annotated[Rate, BeforeValidator(_rate, json_schema_input_type=float | str | Rate)] = (
        Field(
            default=Rate(value=1.0),
            description="η, the size of a step, at least 0; for an exact solver a pair's weight",
        )
    )
    momentum: (
        Annotated[Momentum, BeforeValidator(expand, json_schema_input_type=float | str | Momentum)]
        | None
    ) = Field(
        default=None, description="θ, the share of the averaged gradient that is kept, in [0, 1]"
    )
    beta2: Scalar = Field(default=BETA2, description=f"β₂, a decay ({_of_each('beta2')})")
    epsilon: float = Field(
        default=1e-8, ge=1e-10, lt=1,
        description=f"ε, what is added to the root ({', '.join(have('epsilon'))})",
    )  # fmt: skip
    micro_steps: int = Field(
        default=1, ge=1, le=64, description="steps per token, each with its own k, v and rate"
    )
    inner_steps: int = Field(
        default=1, ge=1, le=64, description="steps per token, all on the same loss"
    )
    start: Literal["last", "origin"] = Field(
        default="last",
        alias="from",
        description="where a token's steps begin: at the last W or, for batch only, at zero",
    )
    ns_steps: int = Field(default=5, ge=1, le=20, description="Newton-Schulz iterations")
    every: int = Field(default=1, ge=1, le=4096, description="tokens between applications of O")
    rate_at: Literal["inside", "outside"] = Field(
        default="inside",
        description="whether the rate multiplies the gradient, inside O, or O(S), outside",
    )
    anchor: Annotated[
        Anchor, BeforeValidator(_anchor, json_schema_input_type=Literal["token"] | Anchor)
    ] = Field(
        default=Anchor(),
        description="the memory at which gradients are taken: the last token's or the last chunk's",
    )
    solver: Annotated[Solver, BeforeValidator(_named, json_schema_input_type=Solving | Solver)] = (
        Field(default=Solver(), description="how an exact minimiser is found")
    )

    @model_serializer(mode="wrap")
    def _only_its_own(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out options of other methods: a spec's identity does not hang on them."""
        data: dict[str, Any] = handler(self)
        left_out = {*OPTIONS} - {*options_of(self.method)}
        return {name: value for name, value in data.items() if name not in left_out}


Optimizer = Annotated[
    OptimizerEntry, BeforeValidator(_plain, json_schema_input_type=Method | OptimizerEntry)
]
