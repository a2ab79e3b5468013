"""The configuration of a language model of memory layers, as ``config.json`` holds it."""

from typing import Any

from transformers import PreTrainedConfig


class MnemicConfig(PreTrainedConfig):
    """Describe a stack of blocks, each a memory layer and a feed-forward.

    Args:
        layers: the memory of every block, by its name in ``memories``, in order.
        memories: by name, what a memory is: ``spec``, the YAML's content; ``heads``, ``key_dim``
            and ``value_dim``, sizes in place of the spec's, or None; ``feed_forward``, the kernel
            of the block's second half: ``swiglu``, ``relu``, ``silu``, ``solu``, ``exp``, ``none``.
        vocab_size: tokens.
        hidden_size: channels of the stream.
        intermediate_size: hidden units of a feed-forward; None for 8/3 hidden_size under
            ``swiglu``, else 4 hidden_size.
        max_position_embeddings: the length that the model is meant for. No position is embedded:
            it bounds nothing, and tells evaluations how much text to give.
        rms_norm_eps: of the norms between the layers.
        initializer_range: the standard deviation of the initial embedding, head, projections and
            feed-forwards; None draws each map from N(0, 1 / its inputs). A feed-forward's last map
            is divided by sqrt(2 · blocks) (GPT-2). Coefficients start where their spec says.
        tie_word_embeddings: whether the head is the embedding's transpose.
        use_cache: whether the model gives back its states when it is not training.
    """

    model_type = "mnemic"
    keys_to_ignore_at_inference = ["cache", "past_key_values"]  # noqa: RUF012 (read by transformers)

    layers: list[str] | None = None
    memories: dict[str, dict[str, Any]] | None = None
    vocab_size: int = 32_000
    hidden_size: int = 768
    intermediate_size: int | None = None
    max_position_embeddings: int = 4096
    rms_norm_eps: float = 1e-6
    initializer_range: float | None = None
    tie_word_embeddings: bool = True
    use_cache: bool = True
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None

    def __post_init__(self, **options: Any) -> None:
        self.layers = list(self.layers or [])
        self.memories = dict(self.memories or {})
        unknown = sorted(set(self.layers) - set(self.memories))
        if unknown:
            known = ", ".join(self.memories) or "nothing"
            raise ValueError(f"layers: read {', '.join(unknown)}, but memories has {known}")
        options.pop("num_hidden_layers", None)  # told by layers
        super().__post_init__(**options)

    @property
    def num_hidden_layers(self) -> int:
        """The number of blocks."""
        return len(self.layers or [])

    def memory(self, index: int) -> dict[str, Any]:
        """Return what the memory of a block is."""
        assert self.layers is not None
        assert self.memories is not None
        return self.memories[self.layers[index]]
