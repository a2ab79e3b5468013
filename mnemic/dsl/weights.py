"""Weights γ_i^(t) of the regression."""

from typing import Literal

from pydantic import Field

from mnemic.dsl.axis import Family
from mnemic.dsl.coefficients import Coefficient, Scalar

TOKEN = Coefficient.model_validate({"from": "input", "activation": "sigmoid"})
FORGET = Coefficient.model_validate({"from": "input", "activation": "sigmoid", "init": 0.99})


class Weights(Family):
    """γ."""

    @property
    def gate(self) -> Scalar | None:
        """The coefficient behind the weights, where there is one."""
        return getattr(self, "gamma", None)


class Uniform(Weights):
    """γ = 1."""

    kind: Literal["uniform"] = "uniform"
    example = "weights: uniform"


class Token(Weights):
    """One gate per token: γ_i^(t) = γ_i."""

    kind: Literal["token"] = "token"
    example = "weights: {kind: token, gamma: {from: input, activation: sigmoid}}"
    gamma: Scalar = Field(default=TOKEN, description="the gate of a token, at least 0")


class Window(Weights):
    """One gate for each (t, i) of the window: gamma[..., j] weighs token t−c+1+j."""

    kind: Literal["window"] = "window"
    example = (
        "weights: {kind: window, gamma: {from: input, activation: sigmoid(x)/4}}\n"
        "window: 4\n"
        "bias: l2"
    )
    gamma: Scalar = Field(
        default=TOKEN, description="the gate of each token of the window, at least 0"
    )


class Geometric(Weights):
    """γ_i^(t) = Π_{j=i+1..t} γ_j, for solvers that see the whole past; passed as log_gamma."""

    kind: Literal["geometric"] = "geometric"
    example = (
        "weights: {kind: geometric, gamma: token, ridge: constant}\n"
        "window: all\n"
        "bias: l2\n"
        "retention: {global: {l2: 1}}\n"
        "optimizer: exact"
    )
    gamma: Scalar = Field(
        default=FORGET, description="the factor of a token on all earlier weights, in (0, 1]"
    )
    ridge: Literal["forgotten", "constant"] = Field(
        default="forgotten",
        description="whether the weights discount the ridge too (RLS) or leave it (Mesa)",
    )


class Similarity(Weights):
    """γ_i = similarity(k_i, q), for nonparametric memories."""

    kind: Literal["similarity"] = "similarity"
    example = (
        "weights: similarity\n"
        "memory: nonparametric\n"
        "window: all\n"
        "bias: l2\n"
        "optimizer: nonparametric"
    )
