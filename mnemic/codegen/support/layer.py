"""A compiled rule as a layer, with the contract that blocks and language models rely on."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from . import positions
from .arguments import check_masks, fail
from .block import Block, Learned
from .norms import rms, widened
from .sizes import eval_size
from .vectors import Activation, States, Vectors, projection


class MemoryLayer(nn.Module):
    """[B, T, dim] → [B, T, dim] around ``rule``; a generated module subclasses it.

    o = rule(q, k, v, coefficients), all from x; y = W_o (rms(o) ∘ σ(W_g x)).

    Args:
        dim: channels of x and y.
        heads, key_dim, value_dim: sizes in place of the spec's, or of what follows from dim.

    Raises:
        ValueError: sizes that do not go together.
    """

    rule: ClassVar[Any]
    block: ClassVar[Block]
    activations: ClassVar[Mapping[str, Activation]]
    """By vector (q, k, v, keys of their own), and of the output gate where there is one."""
    constant: ClassVar[Mapping[str, float]] = {}
    """Vectors that are the same everywhere, without a projection."""
    learned: ClassVar[tuple[Learned, ...]] = ()

    def __init__(
        self,
        dim: int,
        *,
        heads: int | None = None,
        key_dim: int | None = None,
        value_dim: int | None = None,
    ) -> None:
        super().__init__()
        told, self.dim = self.rule.signature, dim
        block = self.block.resized(heads, key_dim, value_dim)
        self.sizes = sizes = block.sizes(dim, square=told.diagonal or told.square)
        self.vectors = Vectors(dim, told, self.block, sizes, self.activations, self.constant)
        self.shapes = {c.name: self._shape(c.argument) for c in self.learned}
        for coefficient in self.learned:
            self._declare(coefficient)
        width = sizes.heads * sizes.value_dim
        normed, gated = self.block.output_norm == "rms", "gate" in self.activations
        self.norm_weight = nn.Parameter(torch.ones(sizes.value_dim)) if normed else None
        self.gate = projection(dim, width) if gated else None
        self.out = projection(width, dim)

    # -- coefficients -----------------------------------------------------------------------

    def _shape(self, argument: str) -> tuple[int, ...]:
        """The shape of a coefficient after [B, T]."""
        told, sizes, found = self.rule.signature, self.sizes, self.rule.coefficients[argument]
        features = eval_size(told.features, sizes.key_dim)
        last = {"": (), "k": (sizes.key_dim,), "K": (features,), "v": (sizes.value_dim,),
                "c": (told.window,), "s": (told.slots,),
                "l": (told.levels,)}[found.axes]  # fmt: skip
        steps = (told.steps,) if found.micro and told.steps > 1 else ()
        return (*steps, sizes.key_heads, *last)

    def _declare(self, coefficient: Learned) -> None:
        """The parameters behind a coefficient, so that it starts in its range."""
        size = torch.Size(self.shapes[coefficient.name]).numel()
        low, high = coefficient.start
        start = torch.linspace(low, high, size) if size > 1 else torch.tensor([(low + high) / 2])
        name = f"raw_{coefficient.name}"
        if coefficient.origin == "parameter":
            self.register_parameter(name, nn.Parameter(start))
            return
        affine = nn.Linear(self.dim, size)
        with torch.no_grad():
            affine.bias.copy_(start)
        self.add_module(name, affine)

    def raw(self, name: str, x: Tensor) -> Tensor:
        """A coefficient before its activation, [B, T, H, …], in float32 at least."""
        source = getattr(self, f"raw_{name}")
        found: Tensor = widened(source if isinstance(source, Tensor) else source(x))
        shape = self.shapes[name]
        return found.reshape(*found.shape[:-1], *shape).expand(*x.shape[:2], *shape)

    def coefficients(self, x: Tensor) -> States:
        """What the rule takes beside its vectors, by name; generated layers say."""
        return {}

    # -- calls ------------------------------------------------------------------------------

    def forward(
        self,
        x: Tensor,
        *,
        state: Mapping[str, Tensor] | None = None,
        output_state: bool = False,
        mask: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        form: str = "auto",
    ) -> Any:
        """The layer on a sequence.

        Args:
            x: [B, T, dim].
            state: what an earlier call gave; ``None`` starts afresh.
            output_state: whether to return ``(y, state)``.
            mask: [B, T], true at tokens; padding leaves the state alone, and its output is zero.
            cu_seqlens: [documents + 1], the ends of documents packed into B = 1, each of which
                has a state of its own, [documents, …].
            form: of the rule: recurrent, chunk or auto.

        Returns:
            y [B, T, dim], or y and the state after the last token.

        Raises:
            ValueError: a shape that does not fit.
        """
        self._check(x, mask, cu_seqlens)
        state = state or {}
        if cu_seqlens is not None:
            y, after = self._documents(x, state, cu_seqlens.tolist(), form)
        elif mask is None or bool(mask.all()):
            y, after = self._rows(x, state, None, form)
        else:
            order = positions.live_first(mask)
            y, after = self._rows(positions.taken(x, order), state, mask.sum(1), form)
            y = positions.put_back(y, order, mask)
        return (y, after) if output_state else y

    def step(self, x_t: Tensor, state: Mapping[str, Tensor] | None) -> tuple[Tensor, States]:
        """One token: [B, dim] → [B, dim], and the new state."""
        y, after = self.forward(x_t[:, None], state=state, output_state=True)
        return y[:, 0], after

    def _check(self, x: Tensor, mask: Tensor | None, cu_seqlens: Tensor | None) -> None:
        told = self.rule.signature
        if x.ndim != 3 or x.shape[2] != self.dim:
            raise fail(told, f"x: read shape {list(x.shape)}, expected [B, T, {self.dim}]")
        check_masks(told, mask, cu_seqlens, {"B": x.shape[0], "T": x.shape[1]})

    def _documents(
        self, x: Tensor, state: Mapping[str, Tensor], ends: list[int], form: str
    ) -> tuple[Tensor, States]:
        found = []
        for i, (low, high) in enumerate(pairwise(ends)):
            own = {name: s[i : i + 1] for name, s in state.items()}
            found.append(self._rows(x[:, low:high], own, None, form))
        names = found[0][1]
        after = {name: torch.cat([states[name] for _, states in found]) for name in names}
        return torch.cat([y for y, _ in found], 1), after

    def _rows(
        self, x: Tensor, state: Mapping[str, Tensor], lengths: Tensor | None, form: str
    ) -> tuple[Tensor, States]:
        """Rows of which the first ``lengths`` tokens count; all, where there are none."""
        vectors, after = self.vectors(x, state, lengths)
        coefficients = self.coefficients(x)
        kept = {name: s for name, s in state.items() if name not in ("convolution", "tokens")}
        live = None
        if lengths is not None:
            live = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
        with torch.autocast(x.device.type, enabled=False):  # the rule works in float32
            y, states = self.rule(
                **vectors, **coefficients, form=form, mask=live, initial_state=kept,
                output_final_state=True,
            )  # fmt: skip
        return self._read_out(x, y), {**states, **after}

    def _read_out(self, x: Tensor, y: Tensor) -> Tensor:
        """y [B, T, H, d_v] normed, gated by x and mixed."""
        if self.norm_weight is not None:
            y = rms(y, self.norm_weight)
        y = y.flatten(2)
        if self.gate is not None:
            y = y * self.activations["gate"](self.gate(x))
        mixed: Tensor = self.out(y)
        return mixed
