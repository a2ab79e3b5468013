"""Fits over kept pairs as the spec states them, minimised by Newton's method and autograd alone."""

import torch
from torch import Tensor

from mnemic.compiler.oracle.minimise import newton
from mnemic.compiler.oracle.stated_tokens import Token
from mnemic.compiler.oracle.statement import evaluate_text, loss, tensor
from mnemic.dsl.memory import Interpolation, Nonparametric
from mnemic.dsl.spec import Spec


def lane(spec: Spec, sequence: list[list[Token]]) -> Tensor:
    """Return the outputs [T, d_v] of one head of one sequence."""
    past: list[Token] = []
    rows = []
    for token, *_ in sequence:
        past.append(token)
        if isinstance(spec.window, int):
            past = past[-spec.window :]
        found = _interpolated if isinstance(spec.memory, Interpolation) else _local
        rows.append(found(spec, past, token))
    return torch.stack(rows)


def _local(spec: Spec, past: list[Token], token: Token) -> Tensor:
    """Solve argmin Σ w ℓ(a + B(k − q), v) + ½ ridge ‖B‖² for θ = (a, B), and return a."""
    memory, query, names = spec.memory, token.query.mapped, token.names
    assert isinstance(memory, Nonparametric)
    keys, values = _stacked(past)
    keys = _moved(keys, past)
    scale = memory.scale if memory.scale is not None else len(query) ** -0.5
    weights = _compared(memory.similarity, keys, query, scale, names) * _faded(past)
    weights = weights / weights.max()  # of degree 0 this moves no minimum, and keeps its digits
    apart = (keys - query) if memory.degree > 0 else keys[:, :0]

    def objective(theta: Tensor) -> Tensor:
        fitted = theta[0] + apart @ theta[1:]
        fit: Tensor = (weights * loss(spec, fitted, values, names)).sum()
        fit = fit + names.get("ridge", tensor(0)) * (theta[1:] ** 2).sum() / 2
        return fit

    start = torch.zeros(1 + apart.shape[1], values.shape[1], dtype=torch.float64)
    return newton(objective, start)[0]


def _interpolated(spec: Spec, past: list[Token], token: Token) -> Tensor:
    """Carry f = argmin Σ ℓ(f_i, v_i) + ½ ridge f κ(K, K)⁻¹ f, the fitted values, to q."""
    memory, names = spec.memory, token.names
    assert isinstance(memory, Interpolation)
    keys, values = _stacked(past)
    rows = [_compared(memory.kernel, keys, k, 1.0, {}) for k in keys]
    inverse = torch.linalg.inv(torch.stack(rows))

    def objective(fitted: Tensor) -> Tensor:
        fit: Tensor = loss(spec, fitted, values, names).sum()
        fit = fit + memory.ridge * (fitted * (inverse @ fitted)).sum() / 2
        return fit

    fitted = newton(objective, torch.zeros_like(values))
    asked = _compared(memory.kernel, keys, token.query.mapped, 1.0, {})
    found: Tensor = asked @ inverse @ fitted
    return found


def _stacked(past: list[Token]) -> tuple[Tensor, Tensor]:
    keys = torch.stack([token.pair.write for token in past])
    return keys, torch.stack([token.pair.value for token in past])


def _moved(keys: Tensor, past: list[Token]) -> Tensor:
    """Step each key by η on ½(k·c)² at every later token, with c that token's carry."""
    rows: list[Tensor] = []
    for key, token in zip(keys, past, strict=True):
        if token.carry is not None:
            rows = [x - token.names["eta"] * _gradient(x, token.carry) for x in rows]
        rows.append(key)
    return torch.stack(rows)


def _gradient(key: Tensor, carry: Tensor) -> Tensor:
    """Compute ∂/∂k ½(k·c)²."""

    def energy(x: Tensor) -> Tensor:
        return (x @ carry) ** 2 / 2

    found: Tensor = torch.func.grad(energy)(key)
    return found


def _compared(
    text: str, keys: Tensor, query: Tensor, scale: float, names: dict[str, Tensor]
) -> Tensor:
    """Evaluate the similarity of every key to a query, as the spec writes it."""
    s, d2 = scale * (keys @ query), ((keys - query) ** 2).sum(-1)
    found: Tensor = evaluate_text(text, {**names, "s": s, "d2": d2}) + 0 * s
    return found


def _faded(past: list[Token]) -> Tensor:
    """Compute Π α_j over the tokens after each pair."""
    decays = [token.names.get("alpha", tensor(1)) for token in past]
    return torch.stack(
        [torch.stack([tensor(1), *decays[i + 1 :]]).prod() for i in range(len(past))]
    )
