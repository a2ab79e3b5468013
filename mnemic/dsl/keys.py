"""Keys: with which vector a rule predicts, erases and writes; the value; what kept keys unlearn."""

from typing import Annotated, Any

from pydantic import BeforeValidator, model_validator

from mnemic.dsl.axis import Entry


class Key(Entry):
    """``own`` (a projection of its own, an argument of the operator) or an expression."""

    own: bool = False
    expr: str | None = None

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
    """All are k (and the value v) by default; a role may name the roles before it.

    ``carry`` has no default: without it kept keys stand still, with it every token moves the keys
    before it by a delta step, k_i ← (I − η carry carryᵀ) k_i.
    """

    predict: Role | None = None
    erase: Role | None = None
    write: Role | None = None
    value: Role | None = None
    carry: Role | None = None
