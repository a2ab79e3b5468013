"""The operator's arguments laid out for the interpreter.

A quantity of one token is an array [B, H, R, F]: ŷ, v, e are columns [B, H, d_v, 1]; a key of a
linear memory is a row [B, H, 1, D], of a diagonal memory a column [B, H, d, 1] (each value
channel its own); W is [B, H, d_v, D]. So ŷ = Σ_F W ∘ key and the write is e ∘ key for both.
A sequence is [B, T, n, H, R, F], n being the micro-steps.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sympy as sp
import torch
from torch import Tensor

from mnemic.compiler import symbols as sym
from mnemic.compiler.oracle.evaluate import evaluate
from mnemic.compiler.oracle.reference_features import feature_map, weights_of
from mnemic.compiler.oracle.reference_kernels import columns, kept_keys, similarities, similarity
from mnemic.compiler.problem import HEAD, HEADS, TIME, Problem, Scalar
from mnemic.compiler.rule import Levels, Rule

Arguments = Mapping[str, Tensor]

ROLES = ("predict", "erase", "write", "value")


@dataclass(frozen=True)
class Keyed:
    """The vectors of every token: [B, T, n, H, R, F] (queries [B, T, 1, H, R, F] each)."""

    predict: Tensor
    erase: Tensor
    write: Tensor
    value: Tensor
    raw: Tensor
    """the predicting key before φ, as a column: what a residual adds"""
    queries: tuple[Tensor, ...]
    raw_queries: tuple[Tensor, ...]
    key: Tensor
    """φ(k), whatever the roles: what the companion memory of slots keeps"""
    carry: Tensor | None = None
    """the direction that kept keys unlearn"""
    kept: Tensor | None = None
    """the keys [B, H, N, d_k] that a memory behind a kernel keeps"""
    square: Tensor | None = None
    """‖φ‖² of the predicting key behind a kernel, [B, T, n, H, 1, 1]"""


@dataclass(frozen=True)
class Inputs:
    """Everything that the recurrence reads."""

    keyed: Keyed
    values: dict[Any, Tensor]
    gamma: Tensor | None
    mask: Tensor
    position: Tensor
    angle: Tensor | None
    levels: Tensor | None = None
    """The weights of levels, [B, T, H, L]."""

    def at(self, t: int, j: int) -> dict[Any, Tensor]:
        """Return the coefficients of micro-step j of token t."""
        return {s: _pick(x, t, j) for s, x in self.values.items()}


def _pick(x: Tensor, t: int, j: int) -> Tensor:
    return x[:, min(t, x.shape[1] - 1), min(j, x.shape[2] - 1)]


def lay_out(
    rule: Rule, q: Tensor, k: Tensor, v: Tensor, coefficients: Arguments,
    start: Mapping[str, Tensor], mask: Tensor | None,
) -> Inputs:  # fmt: skip
    """Lay out positions, coefficients, angles, features and roles of a whole sequence."""
    batch, length = q.shape[:2]
    mask = torch.ones(batch, length, dtype=torch.bool) if mask is None else mask.bool()
    first = start.get("position", torch.zeros(batch, dtype=torch.int64))
    position = first[:, None] + mask.long().cumsum(1) - mask.long()
    micro = rule.problem.spec.optimizer.micro_steps > 1
    k, v = (x.double() if micro else x.double()[:, :, None] for x in (k, v))
    values = _values(rule, coefficients, position, k.shape[3])
    angle = _angle(rule, values, start, mask)
    if angle is not None and rule.diagonal:
        values = {s: torch.cat([x, x], -2) if x.ndim and x.shape[-2] > 1 else x
                  for s, x in values.items()}  # fmt: skip
        turn = torch.polar(torch.ones_like(angle), -angle)[..., 0]
        v = _by_parts(turn * _complex(v))
        q, k = (torch.cat([x, x], -1) for x in (q, k))
        coefficients = {n: torch.cat([x, x], -1) if n in ("predict", "erase", "write") else x
                        for n, x in coefficients.items()}  # fmt: skip
    keyed = _keyed(rule, q.double(), k, v, coefficients, values, position, angle, start)
    gamma = None
    if rule.gamma == "window" and rule.window > 1:
        gamma = _window_gamma(coefficients, values, (batch, length, k.shape[3]), rule.window)
    if angle is not None and not rule.diagonal:
        values = {s: torch.cat([x, x], -1) if x.shape[-1] > 1 else x for s, x in values.items()}
    levels = _levels(rule, coefficients, values, (batch, length, k.shape[3]))
    return Inputs(keyed, values, gamma, mask, position, angle, levels)


def _levels(
    rule: Rule, given: Arguments, values: dict[Any, Tensor], shape: tuple[int, int, int]
) -> Tensor | None:
    """Return λ [B, T, H, L], given or the same for every level; None for a rule without levels."""
    if not isinstance(rule, Levels):
        return None
    if "levels" in given:
        return given["levels"].double().expand(*shape, rule.levels)
    return values[sym.coefficient("levels")][:, :, 0, :, 0].expand(*shape, rule.levels)


def _values(rule: Rule, given: Arguments, position: Tensor, heads: int) -> dict[Any, Tensor]:
    """Return every coefficient: arguments first, then what the spec writes in terms of them."""
    names: dict[Any, Tensor] = {
        HEAD: torch.arange(heads, dtype=torch.float64)[None, None, None, :, None, None],
        HEADS: torch.tensor(float(heads), dtype=torch.float64).expand(1, 1, 1, 1, 1, 1),
        TIME: position.double()[:, :, None, None, None, None],
    }
    arguments = [s for s in rule.scalars if s.argument not in (None, "levels")]
    for scalar in arguments:
        names[scalar.symbol] = _argument(scalar, given, rule)
    for scalar in rule.scalars:
        if scalar.argument is None:
            value = evaluate(scalar.expr, names)
            names[scalar.symbol] = value if value.ndim else value.expand(1, 1, 1, 1, 1, 1)
    return names


def _argument(scalar: Scalar, given: Arguments, rule: Rule) -> Tensor:
    if scalar.argument is None or scalar.argument not in given:
        raise ValueError(f"the rule '{rule.name}' needs the argument '{scalar.argument}'")
    x = given[scalar.argument].double()
    x = torch.exp(x) if scalar.logarithmic else x
    if scalar.name == "gamma" and rule.gamma == "window":
        x = x[..., -1]  # the weight of the current token; the window's own are read apart
    wide = scalar.per in ("key", "value", "outer")
    x = x if wide else x[..., None]
    x = _leading(x)
    return x[..., :, None] if scalar.per == "value" or rule.diagonal else x[..., None, :]


def _leading(x: Tensor) -> Tensor:
    """Give [H, f] or [B, T, H, f] the axes of [B, T, n, H, f]."""
    if x.ndim == 2:
        return x[None, None, None]
    return x[:, :, None] if x.ndim == 4 else x


def _window_gamma(
    given: Arguments, values: dict[Any, Tensor], shape: tuple[int, int, int], width: int
) -> Tensor:
    """Return gamma[..., j], the weight of token t − c + 1 + j, as [B, T, H, c]."""
    if "gamma" in given:
        return given["gamma"].double().expand(*shape, width)
    return values[sym.coefficient("gamma")][:, :, 0, :, 0].expand(*shape, width)


def _angle(
    rule: Rule, values: dict[Any, Tensor], start: Mapping[str, Tensor], mask: Tensor
) -> Tensor | None:
    """Return Ω_t, the sum of the phases so far, [B, T, 1, H, R, F]; None without a phase."""
    if not rule.phase:
        return None
    phase = values[sym.coefficient("phase")]
    phase = phase * mask[:, :, None, None, None, None]
    total = phase.cumsum(1)
    return total + start["angle"][:, None, None] if "angle" in start else total


def _keyed(
    rule: Rule, q: Tensor, k: Tensor, v: Tensor, given: Arguments,
    values: dict[Any, Tensor], position: Tensor, angle: Tensor | None,
    start: Mapping[str, Tensor],
) -> Keyed:  # fmt: skip
    problem = rule.problem
    if rule.kernels is not None:
        return _kernelised(rule, q, k, v, given, values, start.get("K"))
    place = _column if rule.diagonal else _row
    weights = [a[..., 0, 0] if a.ndim else a for a in weights_of(problem, values)]

    def phi(x: Tensor) -> Tensor:
        return feature_map(problem, x, position[:, :, None, None], weights)

    raw, mapped = {"k": k}, {"k": phi(k)}
    for role in ("predict", "erase", "write", "carry"):
        if problem.keys.get(role) == sp.Symbol(role, real=True):
            own = given[role].double()
            own = own if own.ndim == k.ndim else own[:, :, None]
            raw[role] = own
            mapped[role] = phi(own)
    value = _column(v)
    roles = _roles(problem, mapped, value, values, rule.diagonal)
    apart = not rule.network.linear
    plain = _roles(problem, raw, value, values, rule.diagonal) if apart else roles
    groups = q.shape[2] // k.shape[3]
    asked = [q[:, :, None, g::groups] for g in range(groups)]
    queries = [phi(x) for x in asked]
    angle = None if rule.diagonal else angle  # the values are turned there
    predict, erase, write = (_rotated(roles[r], angle) for r in ROLES[:3])
    return Keyed(
        predict=predict,
        erase=erase,
        write=write,
        value=roles["value"],
        raw=plain["predict"].transpose(-1, -2),
        queries=tuple(_rotated(place(x), angle) for x in queries),
        raw_queries=tuple(_column(x) for x in asked),
        key=_column(mapped["k"]),
        carry=_rotated(roles["carry"], angle) if "carry" in roles else None,
    )


def _kernelised(
    rule: Rule, q: Tensor, k: Tensor, v: Tensor, given: Arguments, values: dict[Any, Tensor],
    earlier: Tensor | None,
) -> Keyed:  # fmt: skip
    """Lay out one column per kept pair: a key writes its own, predictions and queries read all."""
    kernels = rule.kernels
    assert kernels is not None
    kept = kept_keys(k, earlier)
    seen = given["predict"].double() if "predict" in given else k
    seen = seen if seen.ndim == k.ndim else seen[:, :, None]
    own = columns(k, kept.shape[2])
    roles = _roles(rule.problem, {"k": own, "predict": own}, _column(v), values, False)
    groups = q.shape[2] // k.shape[3]
    asked = [q[:, :, None, g::groups] for g in range(groups)]
    return Keyed(
        predict=_row(similarities(kernels.predict, seen, kept)),
        erase=roles["erase"],
        write=roles["write"],
        value=roles["value"],
        raw=_column(seen),
        queries=tuple(_row(similarities(kernels.read, x, kept)) for x in asked),
        raw_queries=tuple(_column(x) for x in asked),
        key=_column(own),
        kept=kept,
        square=similarity(kernels.predict, (seen * seen).sum(-1))[..., None, None],
    )


def _roles(
    problem: Problem, vectors: dict[str, Tensor], value: Tensor, values: dict[Any, Tensor],
    diagonal: bool,
) -> dict[str, Tensor]:  # fmt: skip
    """Evaluate each role's expression of φ(k), of vectors of its own, of v and of coefficients."""
    place = _column if diagonal else _row
    names = {**values, sym.v: value}
    names |= {sp.Symbol(r, real=True): place(x) for r, x in vectors.items()}
    every, wide = torch.zeros_like(value[..., :1, :1]), torch.zeros_like(place(vectors["k"]))
    found = {r: evaluate(problem.keys[r], names) + every for r in problem.keys}
    return {
        r: x + wide if r != "value" and x.shape[-1] == 1 else x  # a scalar is a constant key
        for r, x in found.items()
    }


def _rotated(x: Tensor, angle: Tensor | None) -> Tensor:
    return x if angle is None else torch.cat([x * torch.cos(angle), x * torch.sin(angle)], -1)


def unturned(y: Tensor, angle: Tensor) -> Tensor:
    """Rotate complex vectors out of the turning frame, to [B, T, H, 2d], by angles [B, T, 1, H, d,
    1]."""
    turn = torch.polar(torch.ones_like(angle), angle)[:, :, 0, ..., 0]
    return _by_parts(turn.repeat_interleave(y.shape[2] // turn.shape[2], 2) * _complex(y))


def _complex(x: Tensor) -> Tensor:
    """Convert real parts that lie before imaginary ones to complex numbers."""
    return torch.complex(*(part.contiguous() for part in x.double().chunk(2, -1)))


def _by_parts(z: Tensor) -> Tensor:
    return torch.cat([z.real, z.imag], -1)


def _row(x: Tensor) -> Tensor:
    return x[..., None, :]


def _column(x: Tensor) -> Tensor:
    return x[..., :, None]
