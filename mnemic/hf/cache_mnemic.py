"""The states that a model of memory layers carries, with the interface of ``generate()``."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache

State = Mapping[str, Tensor]
"""A memory layer's state: tensors by name, the batch first. A value: nothing writes into it."""


@dataclass(frozen=True)
class Call:
    """One call of a memory layer, kept so that its last tokens can be taken back."""

    memory: nn.Module
    before: State | None
    x: Tensor
    mask: Tensor | None

    def state_after(self, tokens: int) -> State | None:
        """Recompute the state after the first ``tokens`` of the call."""
        if tokens == 0:
            return self.before
        mask = None if self.mask is None else self.mask[:, :tokens]
        with torch.no_grad():
            x = self.x[:, :tokens]
            _, after = self.memory(x, state=self.before, output_state=True, mask=mask)
        found: State = after
        return found

    def with_rows(self, take: Callable[[Tensor], Tensor]) -> "Call":
        """Return the call on other rows of the batch."""
        mask = None if self.mask is None else take(self.mask)
        return Call(self.memory, _rows(self.before, take), take(self.x), mask)


class MemoryState:
    """The state of one memory layer.

    While ``record_past`` is on, calls are kept until the next `crop`, which takes back their last
    tokens by running the layer again over those that stay: exact for every rule, whatever it does
    to its memory.
    """

    is_compileable = False
    is_croppable = True
    supports_early_init = False
    is_sliding = False

    def __init__(self) -> None:
        self.state: State | None = None
        self.record_past = False
        self.calls: list[Call] = []

    def advance(self, memory: nn.Module, x: Tensor, mask: Tensor | None) -> Tensor:
        """Run a memory layer on [B, T, dim] from the state, and keep the new one."""
        y, after = memory(x, state=self.state, output_state=True, mask=mask)
        if self.record_past:
            self.calls.append(Call(memory, self.state, x.detach(), mask))
        self.state = after
        found: Tensor = y
        return found

    def activate_past_recording(self) -> None:
        """Keep calls from here on, so that they can be taken back."""
        self.record_past = True

    def crop(self, tokens_to_remove: int) -> None:
        """Take back the last ``-tokens_to_remove`` tokens, all of them seen since the last crop.

        Raises:
            ValueError: a positive number.
            RuntimeError: more tokens than were recorded: a memory's state has no way back.
        """
        if tokens_to_remove > 0:
            raise ValueError(f"crop: read {tokens_to_remove}, minus the tokens to remove is needed")
        left = -tokens_to_remove
        known = sum(call.x.shape[1] for call in self.calls)
        if left > known:
            raise RuntimeError(
                f"crop: {left} tokens to remove, {known} recorded; a memory's state cannot go back "
                "further: call activate_past_recording() before the tokens, or keep a copy of the "
                "cache"
            )
        while left:
            call = self.calls.pop()
            tokens = call.x.shape[1]
            self.state = call.state_after(max(0, tokens - left))
            left -= min(left, tokens)
        self.calls = []

    def reset(self) -> None:
        """Forget the state, and the calls that were kept."""
        self.state, self.calls = None, []

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Take rows of the batch in another order, as beam search does."""
        self._take(lambda x: x.index_select(0, beam_idx.to(x.device)))

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each row of the batch ``repeats`` times, in place."""
        self._take(lambda x: x.repeat_interleave(repeats, dim=0))

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep the rows of the batch with these indices, in their order."""
        self._take(lambda x: x[indices.to(x.device)])

    def get_max_length(self) -> int:
        """Return -1: there is no longest sequence."""
        return -1

    def __deepcopy__(self, memo: dict[int, Any]) -> "MemoryState":
        copied = MemoryState()  # of the same values: nothing writes into them
        copied.state, copied.record_past = self.state, self.record_past
        copied.calls = list(self.calls)
        return copied

    def _take(self, take: Callable[[Tensor], Tensor]) -> None:
        self.state = _rows(self.state, take)
        self.calls = [call.with_rows(take) for call in self.calls]


class MnemicCache(Cache):
    """The states of all memory layers of a model, and how many tokens they have seen.

    A state may be small and fixed (a matrix, the last inputs of a convolution) or grow with the
    sequence (the keys and values of attention): the layers know, the cache does not.

    Args:
        blocks: how many there are.
    """

    def __init__(self, blocks: int) -> None:
        super().__init__(layers=[MemoryState() for _ in range(blocks)])
        self.seen = 0

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return the number of tokens seen, padding among them."""
        return self.seen

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """Return how long a mask over all tokens is, the next ones too, and where it begins."""
        return self.seen + query_length, 0

    def has_previous_state(
        self, layer_idx: int | None = None, state_idx: int | None = None
    ) -> bool:
        """Return whether any token was seen."""
        return self.seen > 0

    def crop(self, tokens_to_remove: int) -> None:
        """Take back the last ``-tokens_to_remove`` tokens; see `MemoryState.crop`."""
        super().crop(tokens_to_remove)
        self.seen += tokens_to_remove

    def reset(self) -> None:
        """Forget all states, and how many tokens they have seen."""
        super().reset()
        self.seen = 0

    @property
    def is_croppable(self) -> bool:
        """Whether calls are being recorded, so that `crop` finds them."""
        return all(layer.record_past for layer in self.layers)

    @property
    def is_initialized(self) -> bool:
        """Whether any token was seen."""
        return self.seen > 0

    @property
    def nbytes(self) -> int:
        """The size of all states, in bytes."""
        states = [layer.state or {} for layer in self.layers]
        return sum(x.numel() * x.element_size() for state in states for x in state.values())


def _rows(state: State | None, take: Callable[[Tensor], Tensor]) -> State | None:
    return None if state is None else {name: take(x) for name, x in state.items()}
