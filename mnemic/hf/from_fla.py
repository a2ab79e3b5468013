"""Read a checkpoint in the layout of flash-linear-attention as a model of specs."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from mnemic.errors import Issue, UsageError, format_issue, nearest
from mnemic.hf.build import make_config, make_model
from mnemic.hf.fla_layers import LAYERS, OTHERS, Converted, Weights, refuse
from mnemic.hf.modeling_mnemic import MnemicForCausalLM
from mnemic.hf.shape import Shape

TOKENIZER = ("tokenizer*", "special_tokens_map.json", "vocab.*", "merges.txt", "chat_template*")
"""Files of a tokenizer, which go along as they are."""


def read_checkpoint(folder: Path) -> MnemicForCausalLM:
    """Return the model of a folder with fla's ``config.json`` and weights.

    The model computes the same logits up to rounding. Parameters that fla stores as a product of
    several (the decay of GLA) or shares between heads (keys of Gated DeltaNet with more value
    heads) become independent here, so further training differs.

    Args:
        folder: ``config.json`` beside ``*.safetensors`` or ``pytorch_model*.bin``.

    Raises:
        UsageError: there is no such folder, our block does not support a layer or an option, or
            weights are missing or unknown.
    """
    config = _config(folder)
    converted = LAYERS[config["model_type"]](config)
    given = _weights(folder)
    hidden = given.get("model.layers.0.mlp.gate_proj.weight")
    shape = Shape(
        blocks=config["num_hidden_layers"],
        dim=config["hidden_size"],
        hidden=None if hidden is None else len(hidden),
        vocabulary=config["vocab_size"],
        tied=config.get("tie_word_embeddings", False),
        length=config.get("max_position_embeddings", 2048),
    )
    settings = make_config([converted.spec], shape)
    settings.rms_norm_eps = config.get("norm_eps", 1e-6)
    for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
        setattr(settings, name, config.get(name))
    model = make_model(settings)
    dtype = given["model.embeddings.weight"].dtype if "model.embeddings.weight" in given else None
    try:
        found = _renamed(converted, given, shape)
        model.load_state_dict(found)
    except KeyError as error:
        raise UsageError(f"{folder}: no weights named {error.args[0]!r}") from None
    except RuntimeError as error:
        told = " ".join(str(error).split())
        raise UsageError(f"{folder}: weights that do not fit config.json: {told}") from None
    if given:
        raise UsageError(f"{folder}: weights without a place: {', '.join(sorted(given)[:5])}")
    return model.to(dtype)


def tokenizer_files(folder: Path) -> list[Path]:
    """Return the files of a folder's tokenizer, where it has one."""
    return sorted({path for pattern in TOKENIZER for path in folder.glob(pattern)})


def _config(folder: Path) -> dict[str, Any]:
    """Load the configuration, with what every layer's model must have; else raise UsageError."""
    try:
        found = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        told = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{folder}: no config.json that can be read: {told}") from None
    if not isinstance(found, dict) or "model_type" not in found:
        raise UsageError(f"{folder}/config.json: no model_type")
    _check_kind(found["model_type"])
    needed = ("hidden_size", "num_hidden_layers", "vocab_size")
    if missing := [name for name in needed if name not in found]:
        raise UsageError(f"{folder}/config.json: no {', '.join(missing)}")
    refuse(found, {
        "hidden_act": ("swish", "silu"), "attn": (None,), "attnres_block_size": (None,),
    })  # fmt: skip
    return found


def _check_kind(kind: str) -> None:
    """Raise UsageError with the reason where a kind of layer is none of ours."""
    if kind in OTHERS:
        raise UsageError(f"config.json: model_type: {kind} is not converted: {OTHERS[kind]}")
    if kind not in LAYERS:
        issue = Issue("config.json", "model_type", kind, tuple(LAYERS), nearest(kind, LAYERS))
        raise UsageError(format_issue(issue))


def _weights(folder: Path) -> Weights:
    """Load all weights of the folder, by name; raise UsageError where there are none to read."""
    parts = sorted(folder.glob("*.safetensors"))
    plain = [] if parts else sorted(folder.glob("pytorch_model*.bin"))
    found: Weights = {}
    try:
        for path in parts:
            found |= load_file(path)
        for path in plain:
            found |= torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise UsageError(f"{folder}: weights that cannot be read: they hold code") from None
    except Exception as error:
        raise UsageError(f"{folder}: weights that cannot be read: {error}") from None
    if not found:
        raise UsageError(f"{folder}: neither *.safetensors nor pytorch_model*.bin")
    return found


def _renamed(converted: Converted, given: Weights, shape: Shape) -> Weights:
    """Take the weights out of the mapping, and return them by our names."""
    found = {
        "model.embed_tokens.weight": given.pop("model.embeddings.weight"),
        "model.norm.weight": given.pop("model.norm.weight"),
    }
    head = given.pop("lm_head.weight", None)
    if shape.tied:
        head = found["model.embed_tokens.weight"]
    if head is None:
        raise KeyError("lm_head.weight")
    found["lm_head.weight"] = head
    for i in range(shape.blocks):
        block = f"model.layers.{i}."
        for ours, theirs in {
            "memory_norm.weight": "attn_norm.weight",
            "feed_forward_norm.weight": "mlp_norm.weight",
            "feed_forward.w_gate.weight": "mlp.gate_proj.weight",
            "feed_forward.w_in.weight": "mlp.up_proj.weight",
            "feed_forward.w_out.weight": "mlp.down_proj.weight",
        }.items():
            found[block + ours] = given.pop(block + theirs)
        attention = {
            name.removeprefix(f"{block}attn."): given.pop(name)
            for name in list(given)
            if name.startswith(f"{block}attn.")
        }
        memory = converted.weights(attention)
        found |= {f"{block}memory.{name}": x for name, x in memory.items()}
        given |= {f"{block}attn.{name}": x for name, x in attention.items()}
    return found
