"""A causal language model of memory layers for transformers: Llama's design around any memory.

h = x + memory(norm(x)); y = h + feed_forward(norm(h)), block after block; logits = head(norm(y)).
"""

from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.generation import GenerationMixin
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast

from .cache_mnemic import MemoryState, MnemicCache
from .configuration_mnemic import MnemicConfig
from .feed_forward import make_feed_forward
from .memory_layers import memory_layer

NO_MATTER = {
    "cache_position", "cu_seq_lens_k", "ignore_index", "max_length_k", "max_length_q",
    "num_items_in_batch", "output_attentions", "shift_labels", "token_type_ids",
}  # fmt: skip
"""Arguments that are passed to every model: of the loss, or of other layers."""

_FIELDS = {field.name for field in fields(BaseModelOutputWithPast)}
_CACHE = "cache" if "cache" in _FIELDS else "past_key_values"
"""The name that transformers has for it: ``cache`` from 5.24 on, before ``past_key_values``."""


class MnemicBlock(GradientCheckpointingLayer):
    """h = x + memory(norm(x)); y = h + feed_forward(norm(h)), norms RMS."""

    def __init__(self, config: MnemicConfig, index: int) -> None:
        super().__init__()
        self.index, self.config = index, config
        dim = config.hidden_size
        self.memory_norm = nn.RMSNorm(dim, eps=config.rms_norm_eps)
        self.memory = memory_layer(config, index)
        self.drawn = not any(p.is_meta for p in self.memory.parameters())
        kernel = config.memory(index).get("feed_forward", "swiglu")
        self.feed_forward = make_feed_forward(kernel, dim, config.intermediate_size)
        self.feed_forward_norm = self.feed_forward and nn.RMSNorm(dim, eps=config.rms_norm_eps)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        cache: MemoryState | None = None,
    ) -> Tensor:
        """Return the new stream of [B, T, dim]; a state is moved on, where there is one."""
        normed = self.memory_norm(x)
        if cache is not None:
            h = x + cache.advance(self.memory, normed, mask)
        elif cu_seqlens is not None:
            h = x + self.memory(normed.flatten(0, 1)[None], cu_seqlens=cu_seqlens).view_as(x)
        else:
            h = x + self.memory(normed, mask=mask)
        if self.feed_forward is None or self.feed_forward_norm is None:
            return h
        y: Tensor = h + self.feed_forward(self.feed_forward_norm(h))
        return y


class MnemicPreTrainedModel(PreTrainedModel):
    """What models of memory layers share: how they are initialised, saved and cached."""

    config_class = MnemicConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["MnemicBlock"]  # noqa: RUF012 (read by transformers)
    _skip_keys_device_placement = ["cache", "past_key_values"]  # noqa: RUF012

    def _initialize_weights(self, module: nn.Module, is_custom_code: bool = False) -> None:
        """Initialise a module; what was loaded is left alone, parameter by parameter."""
        super()._initialize_weights(module, False)  # else a block, all parts, would be passed over

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Draw what ``MnemicConfig.initializer_range`` says; memory layers draw themselves."""
        if isinstance(module, nn.Embedding):
            self._draw(module.weight, self.config.hidden_size)
        elif isinstance(module, MnemicBlock):
            self._init_memory(module)
            self._init_feed_forward(module.feed_forward)
        elif isinstance(module, nn.RMSNorm):
            init.ones_(module.weight)
        elif module is getattr(self, "lm_head", None):
            self._draw(module.weight, self.config.hidden_size)

    def _init_memory(self, block: MnemicBlock) -> None:
        if not block.drawn:  # it was made without numbers, to be loaded, and some were not there
            with torch.device("cpu"):
                fresh = memory_layer(self.config, block.index)
            for p, drawn in zip(block.memory.parameters(), fresh.parameters(), strict=True):
                init.copy_(p, drawn)
        if self.config.initializer_range is not None:
            for part in block.memory.modules():
                if isinstance(part, nn.Linear) and part.bias is None:
                    self._draw(part.weight, part.in_features)

    def _init_feed_forward(self, half: nn.Module | None) -> None:
        if half is None:
            return
        depth = 2 * self.config.num_hidden_layers
        for name, weight in half.named_parameters():
            scale = 1.0 if name != "w_out.weight" else depth**-0.5 / half.loudness
            self._draw(weight, weight.shape[1], scale)

    def _draw(self, weight: Tensor, inputs: int, scale: float = 1.0) -> None:
        told = self.config.initializer_range
        init.normal_(weight, std=scale * (inputs**-0.5 if told is None else told))


class MnemicModel(MnemicPreTrainedModel):
    """Embedding, blocks and norm: tokens [B, T] to the stream [B, T, hidden_size]."""

    def __init__(self, config: MnemicConfig) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(MnemicBlock(config, i) for i in range(config.num_hidden_layers))
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.gradient_checkpointing = False
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        cache: MnemicCache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        cu_seqlens: Tensor | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        past_key_values: MnemicCache | None = None,
        **others: Any,
    ) -> BaseModelOutputWithPast | tuple[Any, ...]:
        """Run the blocks.

        Args:
            input_ids: [B, T]; or ``inputs_embeds`` [B, T, hidden_size], one of the two.
            attention_mask: [B, T], or [B, seen + T] behind a cache: 1 at tokens, 0 at padding,
                which may stand anywhere and changes nothing.
            position_ids: [B, T] or [1, T]: where a position does not follow the one before it, a
                document begins, and every memory with it. Positions have no other use.
            cache: what an earlier call gave back; not beside documents.
            use_cache: whether to give it back.
            cu_seqlens: [documents + 1], where documents end, from 0 to B·T over all rows; in place
                of ``position_ids``.
            output_hidden_states: whether to give the stream before each block and after the norm.
            return_dict: whether to give a `BaseModelOutputWithPast`, else a tuple.
            past_key_values: the older name of ``cache``.
            others: ``cu_seq_lens_q``, which transformers' collators call ``cu_seqlens``; and what
                they and trainers pass to every model, which changes nothing here.

        Raises:
            ValueError: what does not go together.
            TypeError: an argument that there is not.
        """
        cu_seqlens = others.pop("cu_seq_lens_q", cu_seqlens)
        if unknown := sorted(others.keys() - NO_MATTER):
            raise TypeError(f"forward() got an unexpected keyword argument {unknown[0]!r}")
        if others.get("output_attentions"):
            raise ValueError("output_attentions: memory layers have no weights of attention")
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give exactly one of input_ids and inputs_embeds")
        x = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        mask = padding(attention_mask, x)
        if cu_seqlens is None:
            cu_seqlens = documents(position_ids, mask, x)
        cache = self._cache(_either(cache, past_key_values), use_cache, cu_seqlens)
        if cu_seqlens is not None and mask is not None:
            raise ValueError("packed documents cannot be combined with padding (attention_mask)")
        told = (
            self.config.output_hidden_states
            if output_hidden_states is None
            else output_hidden_states
        )
        streams = []
        for index, block in enumerate(self.layers):
            streams += [x] * bool(told)
            state = None if cache is None else cache.layers[index]
            x = block(x, mask=mask, cu_seqlens=cu_seqlens, cache=state)
        x = self.norm(x)
        if cache is not None:
            cache.seen += x.shape[1]
        found = BaseModelOutputWithPast(
            last_hidden_state=x,
            hidden_states=(*streams, x) if told else None,
            **{_CACHE: cache},
        )
        return found if _as_dict(self.config, return_dict) else found.to_tuple()

    def _cache(
        self, given: MnemicCache | None, use_cache: bool | None, cu_seqlens: Tensor | None
    ) -> MnemicCache | None:
        """Return the cache to move on: the given one, or a new one, where one is wanted."""
        read = type(given).__name__  # a folder's own code has a class of the same name
        if given is not None and read != MnemicCache.__name__:
            raise ValueError(f"cache: read {read}, a MnemicCache is needed")
        wanted = use_cache
        if wanted is None:
            wanted = self.config.use_cache and not self.training
        if self.gradient_checkpointing and self.training and torch.is_grad_enabled():
            if given is not None:  # the second pass, on the way back, would move it on once more
                raise ValueError("gradient checkpointing in training takes no cache: leave it out")
            wanted = False
        if cu_seqlens is not None:
            if given is not None:
                raise ValueError("packed documents begin afresh and take no cache: leave it out")
            return None
        if given is None and not wanted:
            return None
        return MnemicCache(self.config.num_hidden_layers) if given is None else given


class MnemicForCausalLM(MnemicPreTrainedModel, GenerationMixin):
    """The model with its head: tokens [B, T] to the logits of each next token."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}  # noqa: RUF012

    def __init__(self, config: MnemicConfig) -> None:
        super().__init__(config)
        self.model = MnemicModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        cache: MnemicCache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        return_dict: bool | None = None,
        past_key_values: MnemicCache | None = None,
        **options: Any,
    ) -> CausalLMOutputWithPast | tuple[Any, ...]:
        """Return the logits, and the loss where there are labels; see `MnemicModel.forward`.

        Args:
            labels: [B, T], the tokens themselves: the loss shifts them; -100 is not scored.
            logits_to_keep: 0 for the logits of all positions, n for the last n, or positions.
        """
        options.setdefault("num_logits_to_keep", logits_to_keep)
        kept = options.pop("num_logits_to_keep")
        found = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            cache=_either(cache, past_key_values),
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            return_dict=True,
            **options,
        )
        rows = slice(-kept, None) if isinstance(kept, int) and kept else kept
        hidden = found.last_hidden_state
        logits = self.lm_head(hidden if isinstance(rows, int) else hidden[:, rows])
        loss = None
        if labels is not None:
            if labels.shape != logits.shape[:-1]:
                read = f"read {list(labels.shape)}, and logits of {list(logits.shape[:-1])}"
                raise ValueError(f"labels: {read} positions; leave logits_to_keep out beside them")
            loss = self.loss_function(
                logits=logits, labels=labels, vocab_size=self.config.vocab_size, **options
            )
        told = CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            hidden_states=found.hidden_states,
            **{_CACHE: found.get(_CACHE)},
        )
        return told if _as_dict(self.config, return_dict) else told.to_tuple()

    def _prepare_cache_for_generation(
        self, generation_config: Any, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> None:
        """Give ``generate()`` a cache of states in place of one of keys and values."""
        kind = generation_config.cache_implementation
        if kind not in (None, "dynamic"):
            raise ValueError(
                f"cache_implementation: read {kind!r}; the states of memory layers are kept as "
                "they are, in a MnemicCache: leave it out"
            )
        if model_kwargs.get(_CACHE) is None and generation_config.use_cache is not False:
            model_kwargs[_CACHE] = MnemicCache(self.config.num_hidden_layers)
            if getattr(generation_config, "is_assistant", False):
                model_kwargs[_CACHE].activate_past_recording()
        else:
            _refuse_seen(model_kwargs)
            super()._prepare_cache_for_generation(generation_config, model_kwargs, *args, **kwargs)


def _refuse_seen(given: dict[str, Any]) -> None:
    """Refuse a prompt that its cache has seen whole: it would be read once more.

    Raises:
        ValueError: it has.
    """
    cache, mask = given.get(_CACHE), given.get("attention_mask")
    seen = 0 if cache is None else cache.get_seq_length()
    if seen and mask is not None and mask.shape[1] <= seen:
        raise ValueError(
            f"generate: the cache has seen {seen} tokens, and the prompt with its mask ends after "
            f"{mask.shape[1]}: give all tokens, or a mask over all, with at least one that is new"
        )


def padding(attention_mask: Tensor | None, x: Tensor) -> Tensor | None:
    """Return the mask of x's own tokens [B, T], true at tokens; None where there is no padding.

    Raises:
        ValueError: a mask that is not [B, T] or longer, or has other values than 0 and 1.
    """
    if attention_mask is None:
        return None
    if attention_mask.ndim != 2 or attention_mask.shape[1] < x.shape[1]:
        read = list(attention_mask.shape)
        raise ValueError(f"attention_mask: read shape {read}, expected [B, {x.shape[1]}] or longer")
    mask = attention_mask[:, attention_mask.shape[1] - x.shape[1] :]
    if bool((mask == 1).all()):
        return None
    if not bool(((mask == 0) | (mask == 1)).all()):  # added to scores, or numbers of documents
        raise ValueError(
            "attention_mask: 1 at tokens and 0 at padding are its values; read "
            f"{mask[(mask != 0) & (mask != 1)][0].item():g}"
        )
    return mask.bool()


def documents(position_ids: Tensor | None, mask: Tensor | None, x: Tensor) -> Tensor | None:
    """Return where the documents of all rows end, [documents + 1]; None where each row is one."""
    if position_ids is None or x.shape[1] < 2:
        return None
    position = position_ids.expand(x.shape[0], -1)
    begins = position[:, 1:] != position[:, :-1] + 1
    if mask is not None:
        begins = begins & mask[:, 1:] & mask[:, :-1]
    if not bool(begins.any()):
        return None
    first = torch.ones_like(begins[:, :1])
    starts = torch.cat([first, begins], 1).flatten().nonzero()[:, 0]
    return torch.cat([starts, starts.new_full((1,), position.numel())])


def _either(cache: MnemicCache | None, older: MnemicCache | None) -> MnemicCache | None:
    """Return the cache by whichever of its names it was given.

    Raises:
        ValueError: by both.
    """
    if cache is not None and older is not None:
        raise ValueError("cache and past_key_values are two names of one thing: give one")
    return older if cache is None else cache


def _as_dict(config: MnemicConfig, told: bool | None) -> bool:
    return bool(config.return_dict if told is None else told)
