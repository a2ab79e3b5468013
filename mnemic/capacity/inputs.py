"""Arguments of a rule with the coefficients that a layer starts with, over vectors we choose."""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from mnemic.bench.started import Tensors, arguments
from mnemic.pipeline import Compiled

KEYS = ("predict", "erase", "carry", "write")


def of_layer(compiled: Compiled, x: Tensor, seed: int) -> tuple[Tensors, Tensors]:
    """Return the arguments of one head over x [1, T, dim], and a deep memory's parameters."""
    return arguments(compiled, x, heads=1, seed=seed)


def random_pairs(compiled: Compiled, tokens: int, dim: int, seed: int) -> tuple[Tensors, Tensors]:
    """Return arguments with random keys and Gaussian values; every key of its own is k.

    Keys are unit vectors where the spec's block makes them so, else Gaussian, and queries, the
    keys times the block's scale, stand under ``q``.
    """
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(1, tokens, dim, generator=rng, dtype=torch.float64)
    given, params = of_layer(compiled, x, seed)
    block = compiled.spec.block
    k = torch.randn(given["k"].shape, generator=rng, dtype=torch.float64)
    k = normalize(k, dim=-1) if block.qk_norm == "l2" else k
    v = torch.randn(given["v"].shape, generator=rng, dtype=torch.float64)
    own = {name: k for name in KEYS if name in given}
    q = (k[:, :, 0] if k.ndim == 5 else k) * (block.scale or 1.0)
    return {**given, "q": q, "k": k, "v": v, **own}, params
