"""Which form a call runs: never fused kernels that have not passed their checks here."""

from collections.abc import Collection

import torch
from torch import Tensor

from . import verified, versions
from .arguments import fail
from .signature import Signature


def form(signature: Signature, asked: str, forms: Collection[str], like: Tensor) -> str:
    """Choose the form for arguments like v: ``triton`` if asked for, or for ``auto`` if verified.

    On a GPU an ``auto`` that goes on without them says so, once. Raises ``ArgumentError`` where
    ``triton`` was asked for and cannot run.
    """
    if asked == "triton":
        why = versions.unusable(like.device)
        if why is not None:
            raise fail(signature, f"form: read 'triton', but {why}; 'auto' takes what runs here")
    if asked != "auto" or "triton" not in forms or like.device.type != "cuda":
        return asked
    why = versions.unusable(like.device)
    if why is None and passed(like.dtype, like.device):
        return "triton"
    why = why or f"no record says that they passed in {like.dtype} here (run mnemic verify)"
    versions.announce(f"{signature.name}: its fused kernels are not used: {why}")
    return asked


@versions.constant
def passed(dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether fused kernels passed their checks in this dtype on this device."""
    return verified.passed("triton", dtype, device)
