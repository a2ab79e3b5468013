"""Build a model from specs and a shape."""

from collections.abc import Sequence
from typing import Any

from mnemic.codegen.support.seeded import seeded
from mnemic.dsl.spec import Spec
from mnemic.dsl.writing import short
from mnemic.errors import UsageError
from mnemic.hf.configuration_mnemic import MnemicConfig
from mnemic.hf.modeling_mnemic import MnemicForCausalLM
from mnemic.hf.pattern import over
from mnemic.hf.shape import Shape
from mnemic.pipeline import Source, read


def make_config(pattern: Sequence[Source], shape: Shape) -> MnemicConfig:
    """Return the configuration of a model whose blocks take the specs of a pattern in turn.

    Raises:
        InvalidSpec: a spec that is none.
        UsageError: two specs of one name.
    """
    specs: dict[str, Spec] = {}
    names = []
    for source in pattern:
        spec = read(source)
        if specs.setdefault(spec.name, spec) != spec:
            raise UsageError(f"layers: two different specs are named {spec.name!r}; rename one")
        names.append(spec.name)
    layers = over(names, shape.blocks)
    return MnemicConfig(
        layers=layers,
        memories={name: _memory(specs[name], shape) for name in dict.fromkeys(layers)},
        vocab_size=shape.vocabulary,
        hidden_size=shape.dim,
        intermediate_size=shape.hidden,
        max_position_embeddings=shape.length,
        initializer_range=shape.init,
        tie_word_embeddings=shape.tied,
    )


def _memory(spec: Spec, shape: Shape) -> dict[str, Any]:
    """Return the configuration's entry for a memory."""
    block = spec.block
    return {
        "spec": short(spec),
        "heads": block.heads or shape.heads,
        "key_dim": block.key_dim,
        "value_dim": block.value_dim,
        "feed_forward": block.feed_forward,
    }


def make_model(config: MnemicConfig, seed: int = 0) -> MnemicForCausalLM:
    """Return a model whose parameters follow from the seed alone; torch's own stream is kept.

    Raises:
        InvalidSpec: a spec that is derived but not compiled.
        UsageError: sizes that do not go together.
    """
    with seeded(seed):
        try:
            return MnemicForCausalLM(config)
        except ValueError as error:
            raise UsageError(f"the model cannot be made: {error}") from None


def specs_of(config: MnemicConfig) -> dict[str, Spec]:
    """Return the specs of a model's memories, by name, in the order of their first block."""
    return {name: read(told["spec"]) for name, told in (config.memories or {}).items()}
