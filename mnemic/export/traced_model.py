"""A language model as a function of tensors alone: tokens and states to logits and states."""

from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn

from mnemic.hf.modeling_mnemic import MnemicForCausalLM

State = Mapping[str, Tensor]

TOKENS: Final = "input_ids"
LOGITS: Final = "logits"
PAST: Final = "past"
PRESENT: Final = "present"


class _State:
    """One memory's state in the place of a cache's: it is moved on token by token."""

    def __init__(self, state: State) -> None:
        self.state = state

    def advance(self, memory: nn.Module, x: Tensor, mask: Tensor | None) -> Tensor:
        """Run a memory layer on [B, T, dim] from the state, and keep the new one."""
        y, self.state = memory(x, state=self.state, output_state=True, mask=mask, form="recurrent")
        found: Tensor = y
        return found


class TracedModel(nn.Module):
    """tokens [B, T] and every memory's state → logits [B, T, vocabulary] and the states after.

    Args:
        model: the language model.
        names: of the states, those of a block together, block after block.
    """

    def __init__(self, model: MnemicForCausalLM, names: tuple[tuple[str, ...], ...]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, input_ids: Tensor, states: list[Tensor]) -> tuple[Tensor, ...]:
        """Return the logits, then the states in the order in which they are given."""
        given = iter(states)
        x, after = self.model.model.embed_tokens(input_ids), []
        for block, names in zip(self.model.model.layers, self.names, strict=True):
            state = _State({name: next(given) for name in names})
            x = block(x, cache=state)
            after += [state.state[name] for name in names]
        return self.model.lm_head(self.model.model.norm(x)), *after


def input_names(names: tuple[tuple[str, ...], ...], word: str = PAST) -> list[str]:
    """Return what the states are called in a graph: ``past.0.W``, of block 0."""
    return [f"{word}.{block}.{name}" for block, own in enumerate(names) for name in own]


@torch.no_grad()
def states_after(model: MnemicForCausalLM, tokens: Tensor) -> list[dict[str, Tensor]]:
    """Return each block's state after tokens [B, T]."""
    return _states(model, tokens, None)


@torch.no_grad()
def states_before(model: MnemicForCausalLM, rows: int = 1) -> list[dict[str, Tensor]]:
    """Return each block's state before the first token, the same for each row.

    A token that is masked gives it: where a start reads a coefficient, it is one of every token.
    """
    nothing = torch.zeros(rows, 1, dtype=torch.int64)
    return _states(model, nothing, nothing.bool())


def _states(
    model: MnemicForCausalLM, tokens: Tensor, mask: Tensor | None
) -> list[dict[str, Tensor]]:
    x, found = model.model.embed_tokens(tokens), []
    for block in model.model.layers:
        state = _State({})
        x = block(x, mask=mask, cache=state)
        found.append(dict(state.state))
    return found


def memories(model: MnemicForCausalLM) -> dict[str, list[Any]]:
    """Return the memory layers that hold a compiled rule, by the block's spec."""
    found: dict[str, list[Any]] = {}
    for name, block in zip(model.config.layers, model.model.layers, strict=True):
        memory: Any = block.memory
        found.setdefault(name, []).append(getattr(memory, "memory", memory))
    return found
