"""A compiled rule at one shape on one device: the calls whose time counts."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from .seeded import seeded
from .sequence import SequenceLayer
from .timing import Step

Tensors = dict[str, Tensor]

PURPOSES = ("forward", "training", "decode")
"""Without gradients, with them, and one token behind a state."""


@dataclass(frozen=True)
class Shape:
    """Batch, tokens, heads, channels of keys and values of a head, dtype of the vectors."""

    batch: int
    tokens: int
    heads: int
    key: int
    value: int
    dtype: torch.dtype

    def __str__(self) -> str:
        named = str(self.dtype).removeprefix("torch.")
        return (
            f"B = {self.batch}, T = {self.tokens}, H = {self.heads}, d_k = {self.key}, "
            f"d_v = {self.value}, {named}"
        )


@dataclass(frozen=True)
class Subject:
    """A rule with the arguments that its layer gives it at a shape.

    Vectors are of the shape's dtype, coefficients as layers compute them.
    """

    layer_type: type[SequenceLayer]
    shape: Shape
    device: torch.device

    @property
    def rule(self) -> Any:
        """The operator."""
        return self.layer_type.rule

    @cached_property
    def given(self) -> tuple[Tensors, Tensors]:
        """Arguments and parameters of a layer as it starts, on random input."""
        shape, groups = self.shape, self.layer_type.grouped()
        with seeded(0), torch.no_grad():
            value = self.layer_type.rule.signature.values(shape.key, shape.value)
            options: Any = {"heads": shape.heads * groups, "key_dim": shape.key}
            layer = self.layer_type(16 * groups, **options, value_dim=value)
            x = torch.randn(shape.batch, shape.tokens, 16 * groups)
            layer, x = layer.to(self.device), x.to(self.device)
            found, params = layer.arguments(x), layer.params()
        vectors = {"q", "k", "v", *self.rule.signature.keys}
        arguments = {
            n: t.detach().to(shape.dtype if n in vectors else t.dtype).contiguous()
            for n, t in found.items()
        }
        return arguments, {n: t.detach() for n, t in params.items()}

    @cached_property
    def state(self) -> Tensors:
        """What the sequence leaves behind."""
        arguments, params = self.given
        form = "chunk" if "chunk" in self.rule.forms else "recurrent"
        with torch.no_grad():
            _, found = self.rule(**arguments, params=params, form=form, output_final_state=True)
        return {n: x.detach() for n, x in found.items()}

    def arguments(self, purpose: str) -> tuple[Tensors, Tensors, Tensors]:
        """Return arguments, parameters and initial state of a purpose."""
        arguments, params = self.given
        if purpose != "decode":
            return arguments, params, {}
        return {n: x[:, -1:].contiguous() for n, x in arguments.items()}, params, self.state

    def step(self, purpose: str) -> Step:
        """Return the call whose time counts; it returns its output, and then its gradients."""
        arguments, params, state = self.arguments(purpose)

        def plain() -> tuple[Tensor, ...]:
            with torch.no_grad():
                return (self._output(arguments, params, state),)

        if purpose != "training":
            return plain
        leaves = {n: x.clone().requires_grad_() for n, x in arguments.items()}
        slope = torch.ones_like(arguments["v"][..., :1]).expand(plain()[0].shape).contiguous()

        def both() -> tuple[Tensor, ...]:
            out = self._output(leaves, params, state)
            found = torch.autograd.grad(out, list(leaves.values()), slope, allow_unused=True)
            return (out.detach(), *(x for x in found if x is not None))

        return both

    def _output(self, arguments: Tensors, params: Tensors, state: Mapping[str, Tensor]) -> Tensor:
        out: Tensor = self.rule(
            **arguments, params=params, initial_state=state, form="triton",
            output_final_state=bool(state),
        )[0]  # fmt: skip
        return out
