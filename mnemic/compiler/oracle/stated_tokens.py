"""The operator's arguments cut into tokens of one head, for the direct recurrence."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from mnemic.compiler.oracle.reference_features import feature_map
from mnemic.compiler.oracle.stated_steps import Pair, Query
from mnemic.compiler.oracle.statement import coefficient_names, evaluate_text, tensor
from mnemic.compiler.problem import Problem, Scalar
from mnemic.dsl.spec import Spec

ROLES = ("predict", "erase", "write")
OWN = (*ROLES, "carry")


@dataclass(frozen=True)
class Token:
    """One token (or micro-step): its pair, its query, every coefficient."""

    pair: Pair
    query: Query
    names: dict[str, Tensor]
    carry: Tensor | None = None


def tokens(
    problem: Problem, q: Tensor, k: Tensor, v: Tensor, given: Mapping[str, Tensor], b: int, h: int
) -> list[list[Token]]:
    """Every token's micro-steps, of head h of sequence b."""
    micro = problem.spec.optimizer.micro_steps
    length, heads = q.shape[1:3]
    found = []
    for t in range(length):
        point = {"h": tensor(h), "H": tensor(heads), "t": tensor(t)}
        query = _query(problem, q[b, t, h], t)
        row = []
        for j in range(micro):
            at = (b, t, j, h) if micro > 1 else (b, t, h)
            values = {s.name: _value(problem, s, given, at) for s in _arguments(problem)}
            own = {r: given[r][at] for r in OWN if r in given}
            row.append(_token(problem, query, k[at], v[at], own, values, point))
        found.append(row)
    return found


def _arguments(problem: Problem) -> list[Scalar]:
    return [s for s in problem.scalars if s.argument is not None]


def _value(
    problem: Problem, scalar: Scalar, given: Mapping[str, Tensor], at: tuple[int, ...]
) -> Tensor:
    """A coefficient at one place: a number, [D] for keys, [d_v, 1] for values."""
    x = given[str(scalar.argument)]
    wide = scalar.per != "head" or (
        scalar.name == "gamma" and type(problem.spec.weights).word() == "window"
    )
    lead = x.ndim - wide
    x = x[at] if lead == len(at) else x[at[:2] + at[3:]]
    x = x.exp() if str(scalar.argument).startswith("log_") else x
    diagonal = type(problem.spec.memory).word() == "diagonal"
    column = scalar.per == "value" or (diagonal and scalar.per == "key")
    return x[..., None] if column else x


def _token(
    problem: Problem, query: Query, k: Tensor, v: Tensor, own: Mapping[str, Tensor],
    values: Mapping[str, Tensor], point: Mapping[str, Tensor],
) -> Token:  # fmt: skip
    spec = problem.spec
    names = coefficient_names(spec, values, point)
    t = int(point["t"])
    raw = _roles(spec, k, own, v, names)
    mapped = {r: feature_map(problem, x, tensor(t)) for r, x in own.items()}
    roles = _roles(spec, feature_map(problem, k, tensor(t)), mapped, v, names)
    gamma = names["gamma"] if type(spec.weights).word() in ("token", "geometric") else tensor(1)
    vectors = [roles[r] for r in ROLES]
    plain = all(x is vectors[0] for x in vectors)
    residual = getattr(spec.memory, "residual", False)
    asked = Query(roles["predict"], raw["predict"] if residual else k)
    own_weight = names["eta"] if spec.optimizer.method == "exact" else tensor(1)
    pair = Pair(asked, roles["erase"], roles["write"], roles["value"], gamma, plain, own_weight)
    return Token(pair, query, names, roles.get("carry"))


def _query(problem: Problem, q: Tensor, t: int) -> Query:
    return Query(feature_map(problem, q, tensor(t)), q)


def _roles(
    spec: Spec, k: Tensor, own: Mapping[str, Tensor], v: Tensor, names: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The vectors of each role, each an expression of those before it."""
    flat = {n: x.squeeze(-1) if x.ndim == 2 else x for n, x in names.items()}
    known = {**flat, "k": k, "v": v}
    found: dict[str, Tensor] = {}
    roles = (("predict", k), ("erase", k), ("write", k), ("carry", k), ("value", v))
    for role, default in roles:
        entry = getattr(spec.keys, role)
        if role == "carry" and entry is None:
            continue
        found[role] = default
        if entry is not None:
            own_vector = own[role] if entry.own else evaluate_text(str(entry.expr), known)
            found[role] = own_vector + torch.zeros_like(default[..., :1])
        known[role] = found[role]
    return found
