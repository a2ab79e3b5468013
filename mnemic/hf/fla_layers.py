"""Convert layers of flash-linear-attention to specs, and their weights to ours.

A layer is a rule and a block: projections, convolution, activations, norms, gate. Only layers whose
parts all exist in our block are here; names and shapes are those of fla 0.6.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mnemic.errors import UsageError

Config = Mapping[str, Any]
Weights = dict[str, Tensor]

EPSILON = 1e-6
"""ε of our norms. A norm of y with ε' is ours of y·√(ε/ε'), which a factor on q makes of y."""


@dataclass(frozen=True)
class Converted:
    """A converted layer.

    Args:
        spec: the content of the YAML, with the sizes in its block.
        weights: a function that removes the layer's weights from a mapping by their fla names, and
            returns them by our names.
    """

    spec: dict[str, Any]
    weights: Callable[[Weights], Weights]


def refuse(config: Config, allowed: Mapping[str, tuple[Any, ...]]) -> None:
    """Raise where the configuration has an option that our block does not support.

    Raises:
        UsageError: it names the option, its value and the allowed values.
    """
    for name, values in allowed.items():
        if config.get(name, values[0]) not in values:
            told = ", ".join(repr(x) for x in values)
            raise UsageError(f"config.json: {name}: read {config[name]!r}, allowed: {told}")


def gated_deltanet(config: Config) -> Converted:
    """Convert gated DeltaNet: α = exp(−A softplus(a x + c)), η = σ(b x) or 2σ(b x), unit q, k."""
    refuse(config, {"output_gate_activation": ("swish", "silu", "sigmoid")})
    key, heads = config.get("head_dim", 256), config.get("num_heads", 6)
    wide = config.get("num_v_heads") or heads
    value = round(key * config.get("expand_v", 2.0))
    activation = config.get("output_gate_activation", "silu").replace("swish", "silu")
    block = _block(config, wide, key, value, gate=activation, convolved=True, norm="l2")
    spec = {
        "name": "fla-gated-deltanet",
        "bias": "l2",
        "retention": {"decay": "exp(-a*dt)", "order": "before"},
        "optimizer": {"rate": _rate(config)},
        "coefficients": {
            "dt": {"from": "input", "activation": "softplus"},
            "a": {"from": "parameter", "activation": "exp", "init": 4},
        },
        "block": block,
    }

    def weights(given: Weights) -> Weights:
        for name in ("q", "k"):
            _repeat(given, name, wide // heads, key)
        found = _vectors(given, convolved=bool(block["convolution"]))
        found["raw_dt.weight"] = given.pop("a_proj.weight")
        found["raw_dt.bias"] = given.pop("dt_bias")
        found["raw_a"] = given.pop("A_log")
        return found | _learned_rate(given) | _read_out(given, value)

    return Converted(spec, weights)


def delta_net(config: Config) -> Converted:
    """Convert DeltaNet: η = σ(b x) or twice that, keys and queries of length one."""
    refuse(config, {
        "qk_norm": ("l2",), "qk_activation": ("silu",), "use_output_norm": (True,),
    })  # fmt: skip
    heads, key, value = _sizes(config, 16, 1.0, 1.0)
    gate = "silu" if config.get("use_gate", False) else "none"
    block = _block(config, heads, key, value, gate=gate, convolved=True, norm="l2")
    rate = _rate(config) if config.get("use_beta", True) else _doubled(config)
    spec = {"name": "fla-deltanet", "bias": "l2", "optimizer": {"rate": rate}, "block": block}

    def weights(given: Weights) -> Weights:
        found = _vectors(given, convolved=bool(block["convolution"]))
        if config.get("use_beta", True):
            found |= _learned_rate(given)
        return found | _read_out(given, value)

    return Converted(spec, weights)


def gla(config: Config) -> Converted:
    """Convert GLA: α = σ(g x)^(1/16) a key channel; g, two matrices there, is one product here."""
    refuse(config, {
        "feature_map": (None,), "clamp_min": (None,), "use_gk": (True,), "use_gv": (False,),
    })  # fmt: skip
    heads, key, value = _sizes(config, 4, 0.5, 1.0)
    block = _grouped(config, heads, key, value)
    spec = {
        "name": "fla-gla",
        "bias": "dot",
        "retention": {"decay": {"from": "input", "per": "key", "activation": "sigmoid(x)**(1/16)"}},
        "block": block,
    }

    def weights(given: Weights) -> Weights:
        found = _vectors(given, convolved=bool(block["convolution"]))
        low, high = given.pop("gk_proj.0.weight"), given.pop("gk_proj.1.weight")
        found["raw_alpha.weight"] = (high.double() @ low.double()).to(high.dtype)
        found["raw_alpha.bias"] = given.pop("gk_proj.1.bias")
        return found | _read_out(given, value)

    return Converted(spec, weights)


def retnet(config: Config) -> Converted:
    """Convert RetNet: α = 1 − 2^(−5−h), keys and queries turned by their positions."""
    refuse(config, {"feature_map": (None,)})
    heads, key, value = _sizes(config, 8, 1.0, 2.0)
    block = _grouped(config, heads, key, value) | {"rotary": True}
    decay = {"decay": "1 - 2**(-5 - h)"}
    spec = {"name": "fla-retnet", "bias": "dot", "retention": decay, "block": block}

    def weights(given: Weights) -> Weights:
        found = _vectors(given, convolved=bool(block["convolution"]))
        return found | _read_out(given, value)

    return Converted(spec, weights)


LAYERS: dict[str, Callable[[Config], Converted]] = {
    "delta_net": delta_net,
    "gated_deltanet": gated_deltanet,
    "gla": gla,
    "retnet": retnet,
}
"""By ``model_type``."""

OTHERS = {
    "mamba2": "its norm spans all heads, behind the gate; one key and query serve all heads of a "
    "group; its convolution has an offset; and D adds to a head's output its own values",
    "rwkv7": "its vectors come each from its own mix of a token and the one before; the first "
    "layer's values enter the others'; written keys differ from those that are removed; r·k adds "
    "a head's values to its output; and its norm has an offset",
    "kda": "its output gate has an offset",
}
"""Layers whose rule is packaged and whose block ours is not, and why."""


def _sizes(config: Config, heads: int, key: float, value: float) -> tuple[int, int, int]:
    """Return heads, d_k and d_v; channels expand by these factors unless the configuration says."""
    count, dim = config.get("num_heads", heads), config["hidden_size"]
    return (
        count,
        round(dim * config.get("expand_k", key)) // count,
        round(dim * config.get("expand_v", value)) // count,
    )


def _block(
    config: Config, heads: int, key: int, value: int, *, gate: str, convolved: bool, norm: str
) -> dict[str, Any]:
    """Return a block's options; ``convolved``: with a convolution unless the configuration says."""
    refuse(config, {"conv_bias": (False,), "elementwise_affine": (True, False, None)})
    if not config.get("use_gate", config.get("use_output_gate", True)):
        gate = "none"
    taps = config.get("conv_size", 4) if config.get("use_short_conv", convolved) else 0
    return {
        "heads": heads,
        "key_dim": key,
        "value_dim": value,
        "convolution": taps,
        "activation": "silu" if convolved or taps else "none",
        "qk_norm": norm,
        "scale": math.sqrt(EPSILON / config.get("norm_eps", 1e-6) / key),
        "gate": gate,
    }


def _grouped(config: Config, heads: int, key: int, value: int) -> dict[str, Any]:
    """Return the options of a block whose keys and values several queries may share."""
    shared = heads // (config.get("num_kv_heads") or heads)
    block = _block(config, heads, key, value, gate="silu", convolved=False, norm="none")
    return block | {"groups": shared}


def _rate(config: Config) -> dict[str, Any]:
    """Return the entry for the rate, η = σ(b x) or 2σ(b x)."""
    doubled = _doubled(config) == 2
    return {"from": "input", "activation": "2*sigmoid(x)" if doubled else "sigmoid"}


def _doubled(config: Config) -> int:
    return 2 if config.get("allow_neg_eigval", False) else 1


def _learned_rate(given: Weights) -> Weights:
    weight = given.pop("b_proj.weight")
    return {"raw_eta.weight": weight, "raw_eta.bias": weight.new_zeros(len(weight))}


def _repeat(given: Weights, name: str, times: int, size: int) -> None:
    """Repeat each head's key for the ``times`` value heads that share it."""
    for part in (f"{name}_proj.weight", f"{name}_conv1d.weight"):
        if times > 1 and part in given:
            heads = given[part].unflatten(0, (-1, size))
            given[part] = heads.repeat_interleave(times, 0).flatten(0, 1)


def _vectors(given: Weights, *, convolved: bool) -> Weights:
    """Take a layer's projections of q, k and v, and their convolutions; return each kind as one."""
    found = {"vectors.project.weight": torch.cat([given.pop(f"{n}_proj.weight") for n in "qkv"])}
    if convolved:
        taps = [given.pop(f"{n}_conv1d.weight").squeeze(1) for n in "qkv"]
        found["vectors.convolution.weight"] = torch.cat(taps)
    return found


def _read_out(given: Weights, value: int) -> Weights:
    """Take a layer's norm weight (ones if it has none), gate weight, if any, and last map."""
    found = {"out.weight": given.pop("o_proj.weight")}
    if "g_proj.weight" in given:
        found["gate.weight"] = given.pop("g_proj.weight")
    norms = ("o_norm.weight", "g_norm.weight", "g_norm_swish_gate.weight")
    told = [given.pop(name) for name in norms if name in given]
    found["norm_weight"] = told[0] if told else found["out.weight"].new_ones(value)
    return found
