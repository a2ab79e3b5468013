"""Muon for the linear maps of the blocks and AdamW for the rest, as one optimizer."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import AdamW, Muon, Optimizer

BETAS = (0.9, 0.95)


def make_optimizer(model: nn.Module, method: str, rate: float, decay: float) -> Optimizer:
    """Return the optimizer of a model; weight decay is on what has two axes or more.

    Args:
        model: to train.
        method: ``adamw``; or ``muon``, which orthogonalises the steps of the weights of the blocks'
            linear maps (Jordan et al. 2024) at the size of AdamW's (Moonlight's
            ``match_rms_adamw``), with AdamW for the rest: embedding, head, short convolutions,
            which filter each channel by itself, vectors and stacks of matrices.
        rate: the learning rate, that of both.
        decay: of weights.
    """
    named = dict(model.named_parameters())
    maps = {id(module.weight) for module in model.modules() if isinstance(module, nn.Linear)}
    matrices = [p for name, p in named.items() if id(p) in maps and ".layers." in name]
    if method == "adamw":
        return _adamw(list(named.values()), rate, decay)
    chosen = set(map(id, matrices))
    rest = [p for p in named.values() if id(p) not in chosen]
    muon = Muon(matrices, lr=rate, weight_decay=decay, adjust_lr_fn="match_rms_adamw")
    return Both(muon, _adamw(rest, rate, decay))


def _adamw(parameters: list[nn.Parameter], rate: float, decay: float) -> AdamW:
    groups: list[dict[str, Any]] = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return AdamW([group for group in groups if group["params"]], lr=rate, betas=BETAS)


class Both(Optimizer):
    """Two optimizers of different parameters that step together."""

    def __init__(self, first: Optimizer, second: Optimizer) -> None:
        self.parts = (first, second)
        super().__init__([*first.param_groups, *second.param_groups], {})
        self._share()

    def _share(self) -> None:
        """Make the parts' groups those of the whole, so that a schedule reaches both."""
        self.param_groups = [group for part in self.parts for group in part.param_groups]

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Step both optimizers; no closure is taken."""
        assert closure is None, "a closure would be called twice"
        for part in self.parts:
            part.step()
        return None

    def state_dict(self) -> dict[str, Any]:
        """Return the states of both optimizers."""
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the states of both optimizers."""
        for part, state in zip(self.parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)
        self._share()
