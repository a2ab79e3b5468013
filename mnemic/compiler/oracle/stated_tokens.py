"""The operator's arguments cut into tokens of one head, for the direct recurrence."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from mnemic.compiler.oracle.reference_features import feature_map
from mnemic.compiler.oracle.stated_phase import (
    Turn,
    complex_turn,
    doubled,
    is_complex,
    turned_pair,
)
from mnemic.compiler.oracle.stated_steps import Pair, Query
from mnemic.compiler.oracle.statement import Names, coefficient_names, evaluate_text, tensor
from mnemic.compiler.problem import Problem, Scalar
from mnemic.dsl.features import Exponential, Kernel, ReadKernel
from mnemic.dsl.spec import Spec

ROLES = ("predict", "erase", "write")
OWN = (*ROLES, "carry")


@dataclass(frozen=True)
class Token:
    """One token (or micro-step): its pair, its query, every coefficient, φ of its own key.

    ``turn`` applies the phase to a complex state.
    """

    pair: Pair
    query: Query
    names: dict[str, Tensor]
    key: Tensor
    carry: Tensor | None = None
    turn: Turn | None = None


class Maps(Protocol):
    """How keys and queries enter the memory."""

    plain: bool
    """Whether autograd at W gives the step."""

    def key(self, x: Tensor, names: Names, column: int) -> Tensor:
        """Return φ of a key, of the pair ``column``; ``names`` are t and the coefficients."""

    def seen(self, raw: Tensor, key: Tensor) -> Tensor:
        """Return the vector by which the memory is multiplied for a prediction at a key."""

    def query(self, x: Tensor, names: Names) -> Tensor:
        """Return φ of a query."""


class Finite:
    """A feature map: W φ(x) is a matrix times a vector."""

    plain = True

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def key(self, x: Tensor, names: Names, column: int) -> Tensor:
        """Return φ(k)."""
        del column
        return self._map(x, names)

    def seen(self, raw: Tensor, key: Tensor) -> Tensor:
        """Return φ(k)."""
        del raw
        return key

    def query(self, x: Tensor, names: Names) -> Tensor:
        """Return φ(q)."""
        return self._map(x, names)

    def _map(self, x: Tensor, names: Names) -> Tensor:
        weights = [names[name] for name, _, _ in self.problem.spec.features.coefficients()]
        return feature_map(self.problem, x, names["t"], weights)


class BehindKernel:
    """W φ(x) = Σ_i u_i κ(k_i·x), the pairs' rows u_i as columns: the functional gradient of
    ℓ(Wφ(k), v) is e φ(k)ᵀ, which is e in the column of k."""

    plain = False

    def __init__(self, spec: Spec, keys: Tensor) -> None:
        assert isinstance(spec.features, Exponential | Kernel)
        read = getattr(spec.features, "readout", None) or spec.features
        self.keys, self.eye = keys, torch.eye(len(keys), dtype=torch.float64)
        self.predicting, self.reading = _kernel(spec.features), _kernel(read)

    def key(self, x: Tensor, names: Names, column: int) -> Tensor:
        """Return the column of a pair."""
        del x, names
        return self.eye[column]

    def seen(self, raw: Tensor, key: Tensor) -> Tensor:
        """Return κ1 of every key."""
        del key
        return self.predicting(self.keys @ raw)

    def query(self, x: Tensor, names: Names) -> Tensor:
        """Return κ2 of every key."""
        del names
        return self.reading(self.keys @ x)


def _kernel(entry: Exponential | Kernel | ReadKernel) -> Callable[[Tensor], Tensor]:
    """Return κ as the spec writes it."""
    if isinstance(entry, Exponential):
        return lambda s: torch.exp(entry.scale * s)
    return lambda s: evaluate_text(entry.kernel, {"s": s}) + torch.zeros_like(s)


def tokens(
    problem: Problem, q: Tensor, k: Tensor, v: Tensor, given: Mapping[str, Tensor], b: int, h: int
) -> list[list[Token]]:
    """Return every token's micro-steps, of head h of sequence b."""
    spec = problem.spec
    micro = spec.optimizer.micro_steps
    length, heads = q.shape[1:3]
    keys = k[b, ..., h, :].reshape(-1, k.shape[-1])
    maps = BehindKernel(problem.spec, keys) if problem.kernels is not None else Finite(problem)
    found, angle = [], tensor(0)
    for t in range(length):
        point = {"h": tensor(h), "H": tensor(heads), "t": tensor(t)}
        row: list[Token] = []
        for j in range(micro):
            at = (b, t, j, h) if micro > 1 else (b, t, h)
            values = {s.name: _value(problem, s, given, at)
                      for s in problem.scalars if s.argument is not None}  # fmt: skip
            own = {r: given[r][at] for r in OWN if r in given}
            column, asked = t * micro + j, q[b, t, h]
            names = {**coefficient_names(spec, values, point), **point}
            if "phase" in names and not row:
                angle = angle + names["phase"].reshape(-1)
            query = row[0].query if row else _query(spec, maps, asked, names, angle)
            row.append(_token(spec, maps, query, column, k[at], v[at], own, names, angle))
        found.append(row)
    return found


def _value(
    problem: Problem, scalar: Scalar, given: Mapping[str, Tensor], at: tuple[int, ...]
) -> Tensor:
    """Return a coefficient at one place: a number, [D] for keys, [d_v, 1] for values."""
    x = given[str(scalar.argument)]
    wide = (
        scalar.per != "head"
        or scalar.name == "levels"
        or (scalar.name == "gamma" and type(problem.spec.weights).word() == "window")
    )
    lead = x.ndim - wide
    x = x[at] if lead == len(at) else x[at[:2] + at[3:]]
    x = x.exp() if str(scalar.argument).startswith("log_") else x
    diagonal = type(problem.spec.memory).word() == "diagonal"
    column = scalar.per == "value" or (diagonal and scalar.per == "key")
    return x[..., None] if column else x


def _query(spec: Spec, maps: Maps, asked: Tensor, names: Names, angle: Tensor) -> Query:
    """Return φ of a query: turned under a phase, or for both parts of a complex state."""
    mapped = maps.query(asked, names)
    if is_complex(spec):
        mapped, asked = torch.cat([mapped, mapped]), torch.cat([asked, asked])
    elif spec.retention.phase is not None:
        mapped = turned_pair(mapped, angle.expand_as(mapped))
    return Query(mapped, asked)


def _token(
    spec: Spec, maps: Maps, query: Query, column: int, k: Tensor, v: Tensor,
    own: Names, names: dict[str, Tensor], angle: Tensor,
) -> Token:  # fmt: skip
    turn, phase = None, names.get("phase", tensor(0)).reshape(-1)
    if is_complex(spec):
        turn = complex_turn(phase.expand_as(k))
        names = doubled(names, len(k), -2)
        k, own = torch.cat([k, k]), {role: torch.cat([x, x]) for role, x in own.items()}
    raw = _roles(spec, k, own, v, names)
    mapped = {r: maps.key(x, names, column) for r, x in own.items()}
    roles = _roles(spec, maps.key(k, names, column), mapped, v, names)
    gamma = names["gamma"] if type(spec.weights).word() in ("token", "geometric") else tensor(1)
    vectors = [roles[r] for r in ROLES]
    plain = maps.plain and all(x is vectors[0] for x in vectors)
    if spec.retention.phase is not None and turn is None:
        size = len(maps.key(k, names, column))
        names = doubled(names, size, -1)
        roles |= {r: turned_pair(x, angle.expand_as(x)) for r, x in roles.items() if r != "value"}
    if getattr(spec.memory, "slots", None) is not None:
        for role in ("predict", "erase"):
            if getattr(spec.keys, role) is None:  # the loss's slope does not see the memory
                roles[role] = torch.zeros_like(roles["write"])
    residual = getattr(spec.memory, "residual", False)
    seen = maps.seen(raw["predict"], roles["predict"])
    asked = Query(seen, raw["predict"] if residual else k)
    own_weight = names["eta"] if spec.optimizer.method == "exact" else tensor(1)
    pair = Pair(asked, roles["erase"], roles["write"], roles["value"], gamma, plain, own_weight)
    return Token(pair, query, names, maps.key(k, names, column), roles.get("carry"), turn)


def _roles(
    spec: Spec, k: Tensor, own: Mapping[str, Tensor], v: Tensor, names: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return the vectors of each role, each an expression of those before it."""
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
