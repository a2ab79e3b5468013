"""Keys: with which vector a rule predicts, erases and writes; the value; what kept keys unlearn."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from mnemic.dsl.axis import Entry


class Key(Entry):
    """``own`` (a separate projection, passed to the operator as an argument) or an expression."""

    own: bool = Field(
        default=False, description="whether the layer has a separate projection for it"
    )
    expr: str | None = Field(
        default=None,
        description="an expression of k (of v for the value), earlier roles and coefficients",
    )

    @model_validator(mode="after")
    def _one(self) -> "Key":
        if self.own == (self.expr is not None):
            raise ValueError("give 'own' or an expression of k and coefficients")
        return self


def _plain(data: Any) -> Any:
    if data == "own":
        return {"own": True}
    return {"expr": data} if isinstance(data, str) else data


Role = Annotated[Key, BeforeValidator(_plain, json_schema_input_type=str | Key)]


class Keys(Entry):
    """By default a role is k, and the value v. An expression may name the roles listed before it.

    ``carry`` has no default: without it kept keys do not change; with it every token moves all
    earlier keys by a delta step, k_i ← (I − η carry carryᵀ) k_i.
    """

    predict: Role | None = Field(default=None, description="the key that predicts, ŷ = W predict")
    erase: Role | None = Field(
        default=None, description="the key under which the prediction is erased"
    )
    write: Role | None = Field(default=None, description="the key under which the value is written")
    value: Role | None = Field(default=None, description="the value, an expression of v")
    carry: Role | None = Field(
        default=None, description="the direction that a token removes from earlier keys"
    )
