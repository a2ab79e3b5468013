"""The memory layers of a model, compiled from the specs that its configuration holds."""

from torch import nn

from mnemic.hf.configuration_mnemic import MnemicConfig
from mnemic.pipeline import compile as compile_spec

SIZES = ("heads", "key_dim", "value_dim")


def memory_layer(config: MnemicConfig, index: int) -> nn.Module:
    """Return the memory layer of a block, as it starts."""
    told = config.memory(index)
    sizes = {name: told.get(name) for name in SIZES}
    layer: nn.Module = compile_spec(told["spec"]).layer(config.hidden_size, **sizes)
    return layer
