"""The chunk form against flash-linear-attention's chunk references for the CPU, if installed."""

import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from mnemic.bench.report import Figure
from mnemic.bench.subject import Run, Subject, ratio

ABSENT = "fla-core is not installed: no comparison with it (pip install fla-core==0.6.0)"


def figures() -> Iterator[Figure | str]:
    """Time gated delta and delta rule against fla's references, forward and with backward."""
    found = references()
    if found is None:
        yield ABSENT
        return
    for name, reference in found.items():
        subject = Subject.named(name)
        runs = {"chunk": subject.form("chunk"), "fla": reference}
        yield ratio(f"{name}, chunk over fla's chunk, forward", subject.forward(runs), 1)
        yield ratio(f"{name}, chunk over fla's chunk, forward+backward", subject.both(runs), 1)


def references() -> dict[str, Run] | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that it falls back to the CPU
        try:
            from fla.ops.delta_rule.naive import delta_rule_chunkwise
            from fla.ops.gated_delta_rule.naive import naive_chunk_gated_delta_rule
        except ImportError:
            return None

    def gated(q: Tensor, k: Tensor, v: Tensor, log_alpha: Tensor, eta: Tensor) -> Tensor:
        out: Any = naive_chunk_gated_delta_rule(q, k, v, log_alpha, eta, scale=1.0)[0]
        return torch.as_tensor(out)

    def delta(q: Tensor, k: Tensor, v: Tensor, eta: Tensor) -> Tensor:
        q, k, v, eta = (x.transpose(1, 2) for x in (q, k, v, eta))
        scaled = q * q.shape[-1] ** 0.5  # it divides by that
        out: Any = delta_rule_chunkwise(scaled, k, v, eta)[0]
        return torch.as_tensor(out).transpose(1, 2)

    return {"gated-deltanet": gated, "deltanet": delta}
