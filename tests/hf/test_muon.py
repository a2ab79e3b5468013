"""Muon takes the weights of the blocks' linear maps, and AdamW all else."""

from __future__ import annotations

import torch
from small_models import small

from mnemic.hf.muon import Both, make_optimizer


def test_what_filters_each_channel_by_itself_is_not_orthogonalised() -> None:
    """A short convolution's weight has two axes, of which none is a space that it maps to."""
    model = small("titans", blocks=1)
    optimizer = make_optimizer(model, "muon", 0.01, 0.1)
    assert isinstance(optimizer, Both)
    muon, adamw = (
        {id(p) for group in part.param_groups for p in group["params"]} for part in optimizer.parts
    )
    assert not muon & adamw
    assert muon | adamw == set(map(id, model.parameters()))
    named = dict(model.named_parameters())
    vectors = "model.layers.0.memory.vectors"
    assert named[f"{vectors}.convolution.weight"].ndim == 2
    assert id(named[f"{vectors}.convolution.weight"]) in adamw
    assert id(named["lm_head.weight"]) in adamw
    assert all(id(p) in adamw for name, p in named.items() if ".start." in name)
    maps = {name for name, module in model.model.named_modules()
            if isinstance(module, torch.nn.Linear)}  # fmt: skip
    assert maps
    assert muon == {id(named[f"model.{name}.weight"]) for name in maps}
