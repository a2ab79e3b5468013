"""A memory layer on a part of a sequence, behind the state that the last process ended with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, distributed, nn

from mnemic.distributed.line import Given, Line, Reached, Shape, Taken
from mnemic.distributed.rows import as_wide, documents

States = dict[str, Tensor]


class AlongSequence(nn.Module):
    """[B, T, dim] → [B, T, dim], where x is this process's part of longer sequences.

    The parts of all processes of the group, in their order and of one length, give what the layer
    gives for the whole: outputs, states and gradients. A state holds all that later tokens take of
    earlier ones (memories, a short convolution's last inputs, positions, windows), so that it is
    all that passes: process r waits in each layer for r − 1, and on the way back for r + 1.

    Every process calls the layer as often, and differentiates something that its output reaches.
    Gradients of parameters are those of a process's own tokens: their sum is that of the whole.

    Args:
        layer: of a compiled rule, with the same parameters in every process.
        group: the processes; ``None`` for all.
        call: how the layer is called, where that is not as a module.

    Raises:
        ValueError: ``layer`` is no module.
    """

    def __init__(
        self,
        layer: nn.Module,
        group: distributed.ProcessGroup | None = None,
        call: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(layer, nn.Module):
            read = f"{type(layer).__name__} {layer!r}"
            raise ValueError(f"layer: read {read}, a layer of a compiled rule is needed")
        self.layer, self.line = layer, Line(group)
        self.call = layer if call is None else call
        self.shapes: dict[Any, dict[str, Shape]] = {}

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(
        self,
        x: Tensor,
        *,
        begins: Tensor | None = None,
        mask: Tensor | None = None,
        output_state: bool = False,
        form: str = "auto",
    ) -> Any:
        """Run the layer on this process's part.

        Args:
            x: [B, T, dim], with as many tokens in every process.
            begins: [B, T], true where a document begins, which sees nothing before it; in the
                first process it is taken as true at every row's first token.
            mask: [B, T], true at tokens; not beside ``begins``.
            output_state: whether to return (y, state); in the last process it is the state after
                the whole sequence.
            form: of the rule.

        Raises:
            ValueError: both masks; shapes that do not fit.
            RuntimeError: a call on the way back, by `torch.utils.checkpoint`.
        """
        if torch._C._current_graph_task_id() >= 0:
            raise RuntimeError(
                "along_sequence: called again on the way back, when no other process would answer; "
                "leave the layer out of torch.utils.checkpoint"
            )
        if begins is not None:
            begins = self._begins(x, begins, mask)
        learned = [p for p in self.layer.parameters() if p.requires_grad]
        if torch.is_grad_enabled() and learned:
            x = Reached.apply(x, *learned)  # type: ignore[no-untyped-call]
        x, state = self._taken(x, form)
        if begins is None:
            told = {"state": state, "mask": mask, "form": form}
            y, after = self.call(x, output_state=True, **told)
        else:
            y, after = documents(self.call, x, state, begins, form)
        y, after = self._given(x, y, after, form)
        return (y, after) if output_state else y

    def _begins(self, x: Tensor, begins: Tensor, mask: Tensor | None) -> Tensor:
        if mask is not None:
            raise ValueError("along_sequence: begins and mask: one of them is allowed")
        if begins.shape != x.shape[:2] or begins.dtype != torch.bool:
            read, needed = f"{begins.dtype} {list(begins.shape)}", f"torch.bool {[*x.shape[:2]]}"
            raise ValueError(f"along_sequence: begins: read {read}, {needed} is needed")
        if self.line.first:
            begins = begins.clone()
            begins[:, :1] = True
        return begins

    def _taken(self, x: Tensor, form: str) -> tuple[Tensor, States | None]:
        """Return x and the state of the process before this one, None for the first."""
        if self.line.first:
            return x, None
        shapes = self._expected(x, self.line.index * x.shape[1], form)
        x, *found = Taken.apply(self.line, x, *shapes.values())  # type: ignore[no-untyped-call]
        return x, dict(zip(shapes, found, strict=True))

    def _given(self, x: Tensor, y: Tensor, after: States, form: str) -> tuple[Tensor, States]:
        """Send the state to the process behind this one; return y and the state."""
        if self.line.last:
            return y, after
        shapes = self._expected(x, (self.line.index + 1) * x.shape[1], form)
        wide = [as_wide(after[name], shape) for name, (shape, _) in shapes.items()]
        y = Given.apply(self.line, y, *wide)  # type: ignore[no-untyped-call]
        return y, after

    def _expected(self, x: Tensor, tokens: int, form: str) -> dict[str, Shape]:
        """Return a state's shapes after so many tokens: after one, with room for kept pairs."""
        kind = x.device.type
        cast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        key = (x.shape[0], x.dtype, x.device, cast)
        if key not in self.shapes:
            with torch.no_grad():
                _, state = self.call(x[:, :1].detach(), output_state=True, form=form)
            self.shapes[key] = {n: (tuple(s.shape), s.dtype) for n, s in state.items()}
        empty = {
            name: torch.empty(shape, dtype=dtype, device="meta")
            for name, (shape, dtype) in self.shapes[key].items()
        }
        pool: Mapping[str, Tensor] = self.layer.pool(empty, x.shape[0], tokens=tokens)  # type: ignore[operator]
        return {name: (tuple(s.shape), s.dtype) for name, s in pool.items()}


def along_sequence(
    layer: nn.Module, group: distributed.ProcessGroup | None = None
) -> AlongSequence:
    """Return a layer for this process's part of sequences that all processes of a group share."""
    return AlongSequence(layer, group)
