"""Queries, keys and values of a layer: projected, convolved, activated, normed, turned."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from . import positions, slices
from .block import Block, Sizes
from .convolution import Counted, ShortConvolution
from .documents import Documents
from .lengths import DIRECTIONS
from .norms import unit
from .pickled import Pickled, home
from .signature import Signature

States = dict[str, Tensor]
Activation = Callable[[Tensor], Tensor]


class Vectors(Pickled, nn.Module):
    """[B, T, dim] → q, k, v and the keys of their own that a rule takes, [B, T, (n,) H, d].

    k = unit(σ(conv(W_k x))), turned by its position; q likewise, scaled; v = σ(conv(W_v x)).
    What carries kept keys is a unit vector whatever the norm of q and k.

    Args:
        dim: channels of x.
        signature: of the rule.
        block, sizes: of the layer.
        activations: σ by vector.
        constant: vectors that are the same everywhere, and what they are.
    """

    def __init__(
        self,
        dim: int,
        signature: Signature,
        block: Block,
        sizes: Sizes,
        activations: Mapping[str, Activation],
        constant: Mapping[str, float],
    ) -> None:
        super().__init__()
        self.block, self.activations, self.constant = block, activations, constant
        names = ("q", "k", "v", *signature.keys)
        self.shapes = {name: vector_shape(name, signature, sizes) for name in names}
        projected = [name for name in names if name not in constant]
        self.channels = {name: torch.Size(self.shapes[name]).numel() for name in projected}
        total = sum(self.channels.values())
        self.project = projection(dim, total)
        self.convolution = ShortConvolution(total, block.convolution) if block.convolution else None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the generated activations, which may be lambdas: no pickle holds those."""
        state = dict(super().__getstate__())
        if state["activations"] is generated():
            del state["activations"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({"activations": generated(), **state})

    def forward(
        self, x: Tensor, state: Mapping[str, Tensor], lengths: Counted,
        ends: tuple[int, ...] | None = None,
    ) -> tuple[States, States]:  # fmt: skip
        """Return the vectors by name, and this part of the state after x; see ``MemoryLayer``.

        With ``ends`` that after so many tokens, [B, n, …].
        """
        after: States = {}
        mixed: Tensor = self.project(x)
        if self.convolution is not None:
            tail = state.get("convolution")
            mixed, after["convolution"] = self.convolution(mixed, tail, lengths, ends)
        position = self._position(x, state, lengths, after)
        if ends is not None and "tokens" in after:
            seen = torch.tensor(ends, device=x.device) - x.shape[1]
            after["tokens"] = after["tokens"][:, None] + seen
        cut = slices.parts(mixed, tuple(self.channels.values()))
        found = {}
        for name, part in zip(self.channels, cut, strict=True):
            found[name] = self._vector(name, part, position)
        for name, value in self.constant.items():
            found[name] = mixed.new_full((*x.shape[:2], *self.shapes[name]), value)
        found["q"] = self._scaled(found["q"])
        return found, after

    def queries(self, x: Tensor, state: Mapping[str, Tensor]) -> tuple[Tensor, States]:
        """Return q alone, by the same maps, and its own part of the state after x."""
        after: States = {}
        position = self._position(x, state, None, after)
        if "q" in self.constant:
            constant = x.new_full((*x.shape[:2], *self.shapes["q"]), self.constant["q"])
            return self._scaled(constant), after
        mixed = nn.functional.linear(x, self.project.weight[: self.channels["q"]])
        if self.convolution is not None:
            tail = state.get("convolution")
            mixed, after["convolution"] = self.convolution(mixed, tail, None)
        return self._scaled(self._vector("q", mixed, position)), after

    def _vector(self, name: str, x: Tensor, position: Tensor | None) -> Tensor:
        """Make one vector of its channels."""
        vector = self.activations[name](x).reshape(*x.shape[:2], *self.shapes[name])
        if name in DIRECTIONS:
            vector = unit(vector)
        return vector if name == "v" else self._key(vector, position)

    def _scaled(self, q: Tensor) -> Tensor:
        return q if self.block.scale is None else q * self.block.scale

    def _position(
        self, x: Tensor, state: Mapping[str, Tensor], lengths: Counted, after: States
    ) -> Tensor | None:
        """Return each token's number, [B, T], where keys turn, else ``None``; fill ``after``."""
        if not self.block.rotary:
            return None
        first = state.get("tokens")
        if isinstance(lengths, Documents):
            if first is None:
                first = torch.zeros_like(lengths.lengths)
            after["tokens"] = first + lengths.lengths
            return (first[lengths.number] + lengths.time)[None]
        if first is None:
            first = torch.zeros(x.shape[0], dtype=torch.long, device=x.device)
        after["tokens"] = first + (x.shape[1] if lengths is None else lengths)
        return first[:, None] + torch.arange(x.shape[1], device=x.device)

    def _key(self, x: Tensor, position: Tensor | None) -> Tensor:
        if self.block.qk_norm == "l2":
            x = unit(x)
        return x if position is None else positions.rotate(x, position)


def generated() -> Mapping[str, Activation]:
    """Return the activations that the compiled folder has."""
    layer = getattr(home(), "Layer", None)
    found: Mapping[str, Activation] = getattr(
        getattr(layer, "memory_type", layer), "activations", {}
    )
    return found


def projection(inputs: int, outputs: int) -> nn.Linear:
    """Make a linear map without bias, drawn from N(0, 1/inputs)."""
    found = nn.Linear(inputs, outputs, bias=False)
    nn.init.normal_(found.weight, std=1 / math.sqrt(inputs))
    return found


def vector_shape(name: str, signature: Signature, sizes: Sizes) -> tuple[int, ...]:
    """Return a vector's shape after [B, T]: [H, d], or [n, H, d] with n steps a token."""
    if name == "q":
        return (sizes.heads, sizes.key_dim)
    steps = (signature.steps,) if signature.steps > 1 else ()
    key = signature.slots if signature.slots and name in signature.keys else sizes.key_dim
    return (*steps, sizes.key_heads, sizes.value_dim if name == "v" else key)
