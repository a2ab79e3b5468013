"""A language model: embedding, blocks, norm, head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast, overload

import torch
from torch import Tensor, nn

from mnemic.codegen.support.seeded import seeded
from mnemic.errors import Issue, UsageError, format_issue, nearest
from mnemic.models.block import Block
from mnemic.models.contract import MakeLayer, State
from mnemic.models.feed_forward import NAMES

ModelState = tuple[State, ...]
"""The states of the blocks' memories, in order."""


@dataclass(frozen=True)
class ModelOptions:
    """The shape of a `LanguageModel`.

    Args:
        vocabulary: tokens, at least 2.
        dim: of the stream, at least 1.
        layers: blocks, at least 1.
        feed_forward: of every block, see `mnemic.models.block.Block`.
        tied: whether the head is the embedding's transpose.

    Raises:
        UsageError: a number below its range, or a feed-forward that there is not.
    """

    vocabulary: int
    dim: int = 64
    layers: int = 2
    feed_forward: str = "swiglu"
    tied: bool = True

    def __post_init__(self) -> None:
        for name, least in (("vocabulary", 2), ("dim", 1), ("layers", 1)):
            if getattr(self, name) < least:
                raise UsageError(f"{name}: read {getattr(self, name)}, must be at least {least}")
        kernel = self.feed_forward
        if kernel not in NAMES:
            issue = Issue("", "feed_forward", kernel, NAMES, nearest(kernel, NAMES))
            raise UsageError(format_issue(issue))


class LanguageModel(nn.Module):
    """logits = head(decoder(norm(block_n(... block_1(embedding(tokens)))))).

    The decoder is a task's, and mostly None, which is the identity; `step` and `generate` are
    for models without one.

    Every map is drawn from N(0, 1/n) with n its inputs (embedding: n = dim), the feed-forward's
    last one divided by sqrt(2 layers) as in GPT-2, and by how loud its kernel is; memory layers
    keep their own initial values.

    Args:
        options: the shape.
        make_layer: ``make_layer(dim, index)`` gives the memory layer of block ``index``; see
            `mnemic.models.contract.MakeLayer`.
    """

    def __init__(self, options: ModelOptions, make_layer: MakeLayer) -> None:
        super().__init__()
        self.options = options
        self.embedding = nn.Embedding(options.vocabulary, options.dim)
        self.blocks = nn.ModuleList(
            Block(options.dim, make_layer(options.dim, index), options.feed_forward)
            for index in range(options.layers)
        )
        self.norm = nn.RMSNorm(options.dim, eps=1e-6)
        self.head = nn.Linear(options.dim, options.vocabulary, bias=False)
        self.decoder: nn.Module | None = None
        _initialise(self)

    @overload
    def forward(
        self,
        tokens: Tensor,
        state: ModelState | None = None,
        output_state: Literal[False] = False,
        mask: Tensor | None = None,
    ) -> Tensor: ...

    @overload
    def forward(
        self,
        tokens: Tensor,
        state: ModelState | None = None,
        *,
        output_state: Literal[True],
        mask: Tensor | None = None,
    ) -> tuple[Tensor, ModelState]: ...

    def forward(
        self,
        tokens: Tensor,
        state: ModelState | None = None,
        output_state: bool = False,
        mask: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, ModelState]:
        """Compute the logits of each next token, by the parallel form.

        Args:
            tokens: [B, T], long.
            state: what an earlier call gave back; None starts afresh.
            output_state: whether to give ``(logits, state)``.
            mask: [B, T], true at tokens, false at padding.

        Returns:
            [B, T, vocabulary], with the state after the last token if asked for.
        """
        hidden, after = self.hidden(tokens, state, output_state, mask)
        logits: Tensor = self.head(hidden if self.decoder is None else self.decoder(hidden))
        return (logits, after) if output_state else logits

    def hidden(
        self,
        tokens: Tensor,
        state: ModelState | None = None,
        output_state: bool = False,
        mask: Tensor | None = None,
    ) -> tuple[Tensor, ModelState]:
        """Compute the stream before the head, [B, T, dim], and the state (None a block if unasked).

        Cheaper than `forward` where few positions need logits.
        """
        x = self.embedding(tokens)
        after = []
        for block, before in zip(self._blocks, self._states(state), strict=True):
            x, layer_state = block(x, state=before, output_state=output_state, mask=mask)
            after.append(layer_state)
        return self.norm(x), tuple(after)

    def step(self, tokens: Tensor, state: ModelState | None) -> tuple[Tensor, ModelState]:
        """Compute the logits after one more token, [B] to [B, vocabulary], and the new state."""
        x = self.embedding(tokens)
        after = []
        for block, before in zip(self._blocks, self._states(state), strict=True):
            x, layer_state = block.step(x, before)
            after.append(layer_state)
        return self.head(self.norm(x)), tuple(after)

    @torch.no_grad()
    def generate(
        self,
        tokens: Tensor,
        length: int,
        *,
        temperature: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return the prompt and ``length`` more tokens: prefill by the parallel form, then steps.

        Args:
            tokens: the prompt, [B, T], long, T at least 1.
            length: how many tokens to add, at least 0.
            temperature: 0 takes the likeliest token; above, samples.
            generator: of the samples.

        Returns:
            [B, T + length].
        """
        if length == 0:
            return tokens
        logits, state = self(tokens, output_state=True)
        grown = [tokens, _choose(logits[:, -1], temperature, generator)]
        for _ in range(length - 1):
            logits_t, state = self.step(grown[-1][:, 0], state)
            grown.append(_choose(logits_t, temperature, generator))
        return torch.cat(grown, 1)

    @property
    def _blocks(self) -> Sequence[Block]:
        return cast(Sequence[Block], self.blocks)

    def _states(self, state: ModelState | None) -> ModelState:
        return (None,) * self.options.layers if state is None else state


def build(options: ModelOptions, make_layer: MakeLayer, seed: int = 0) -> LanguageModel:
    """Make a model whose initial parameters follow from the seed alone; torch's stream is kept."""
    with seeded(seed):
        return LanguageModel(options, make_layer)


def _choose(logits: Tensor, temperature: float, generator: torch.Generator | None) -> Tensor:
    """Choose each row's next token: logits [B, vocabulary] to tokens [B, 1]."""
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    return torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)


def _initialise(model: LanguageModel) -> None:
    """Draw the parameters of embedding, head and feed-forward, which are not the memories'."""
    nn.init.normal_(model.embedding.weight, std=model.options.dim**-0.5)
    nn.init.normal_(model.head.weight, std=model.options.dim**-0.5)
    if model.options.tied:
        model.head.weight = model.embedding.weight
    halves = [block.feed_forward for block in model._blocks if block.feed_forward is not None]
    for half in halves:
        for name, weight in half.named_parameters():
            last = name == "w_out.weight"
            depth, loudness = (2 * model.options.layers, half.loudness) if last else (1, 1.0)
            nn.init.normal_(weight, std=(depth * weight.shape[1]) ** -0.5 / loudness)
