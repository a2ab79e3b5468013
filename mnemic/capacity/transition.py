"""Eigenvalues of a rule's transition over a text: how one token's step acts on what is held."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mnemic.bench.started import Tensors
from mnemic.capacity.inputs import of_layer
from mnemic.errors import UsageError
from mnemic.pipeline import Compiled

MOST = 1600
"""Numbers of a state whose Jacobian is taken whole."""
APART = ("position", "angle", "counts", "index")
"""States that count tokens, and hold nothing of them."""


@dataclass(frozen=True)
class Spectrum:
    """The eigenvalues of ∂state_t/∂state_{t−1} at some tokens: real and imaginary parts."""

    spec: str
    tokens: tuple[int, ...]
    values: tuple[tuple[tuple[float, float], ...], ...]

    def radii(self) -> tuple[float, ...]:
        """Return the largest absolute value at each token."""
        return tuple(max((abs(complex(*z)) for z in own), default=0.0) for own in self.values)

    @property
    def least(self) -> float:
        """The smallest real part of all."""
        return min((z[0] for own in self.values for z in own), default=0.0)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"spec": self.spec, "tokens": self.tokens, "radii": self.radii(),
                "least": self.least, "values": self.values}  # fmt: skip


def spectrum(compiled: Compiled, x: Tensor, count: int = 8, seed: int = 0) -> Spectrum:
    """Take the Jacobian of one step of the whole state at ``count`` tokens spread over x.

    Raises:
        UsageError: a state that grows with the tokens, or one too large for its Jacobian.
    """
    given, params = of_layer(compiled, x, seed)
    length = x.shape[1]
    every = max(1, (length - 1) // count)
    tokens = tuple(range(1, length, every))[:count]
    values, state, done = [], None, 0
    for t in tokens:
        with torch.no_grad():
            state = _after(compiled, _piece(given, done, t), params, state)
        values.append(_eigenvalues(compiled, _piece(given, t, t + 1), params, state))
        done = t
    return Spectrum(compiled.spec.name, tokens, tuple(values))


def _piece(given: Tensors, start: int, end: int) -> Tensors:
    return {name: x[:, start:end] for name, x in given.items()}


def _after(compiled: Compiled, given: Tensors, params: Tensors, state: Any) -> Tensors:
    options: dict[str, Any] = {"params": params} if params else {}
    if "recurrent" in compiled.operator.forms:
        options["form"] = "recurrent"
    _, after = compiled(**given, **options, initial_state=state, output_final_state=True)
    return dict(after)


def _eigenvalues(
    compiled: Compiled, given: Tensors, params: Tensors, state: Tensors
) -> tuple[tuple[float, float], ...]:  # fmt: skip
    own = [n for n, x in state.items() if x.is_floating_point() and n not in APART]
    sizes = [state[name].numel() for name in own]
    name = compiled.spec.name
    if sum(sizes) > MOST:
        raise UsageError(f"{name}: a state of {sum(sizes)} numbers, at most {MOST}; take fewer "
                         "channels (--dim)")  # fmt: skip
    flat = torch.cat([state[n].reshape(-1) for n in own])

    def step(x: Tensor) -> Tensor:
        parts = torch.split(x, sizes)
        before = {
            **state,
            **{n: p.reshape(state[n].shape) for n, p in zip(own, parts, strict=True)},
        }
        after = _after(compiled, given, params, before)
        if any(after[n].numel() != size for n, size in zip(own, sizes, strict=True)):
            raise UsageError(f"{name}: its state grows with the tokens, and has no transition")
        return torch.cat([after[n].reshape(-1) for n in own])

    jacobian: Any = torch.func.jacrev(step)(flat)
    found = torch.linalg.eigvals(jacobian)
    return tuple((float(z.real), float(z.imag)) for z in found)
