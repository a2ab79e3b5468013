"""Others' kernels for the same rules, called as their authors mean them to be.

flash-linear-attention (PyPI: flash-linear-attention or fla-core) has logarithms of decays, states
K × V and the scale as an argument. In a dry run its naive references stand for its kernels, so that
what is handed over is checked without a GPU.
"""

import importlib
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from on_gpu.rows import Row
from on_gpu.subject import Subject, Tensors

Run = Callable[[Tensors], Tensor]


@dataclass(frozen=True)
class Peer:
    """A function of the rule's arguments.

    ``what`` says what is called; ``same`` whether it computes the same as the rule.
    """

    what: str
    run: Run
    same: bool = True


class Missing(Exception):
    """A peer that this machine or row does not have, and why."""


def peer(name: str, row: Row, subject: Subject, dry: bool) -> Peer:
    """A peer of a row. Raises ``Missing``."""
    if name == "fla":
        return _fla(row, subject, dry)
    return {"sdpa": _sdpa, "flex": _flex}[name](row, dry)


# -- flash-linear-attention --------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """One of its operators: where it is, its naive reference, and the arguments of both by name."""

    module: str
    function: str
    naive: tuple[str, str]
    named: Callable[[Tensors], Mapping[str, Any]]
    plain: Callable[[Tensors], tuple[Any, ...]]
    same: bool = True


def _slopes(x: Tensors) -> Tensor:
    """log(1 − 2^(−5 − h)), of each token."""
    heads = torch.arange(x["k"].shape[2], device=x["k"].device)
    return torch.log1p(-(2.0 ** (-5.0 - heads))).expand(x["k"].shape[:3])


def _stepped(x: Tensors) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Mamba-2's keys times its step, and its decays."""
    key = (x["k"] * x["eta"][..., None]).to(x["k"].dtype)
    return x["q"], key, x["v"], -x["eta"] * x["a"]


def _vectors(x: Tensors) -> dict[str, Any]:
    return {"q": x["q"], "k": x["k"], "v": x["v"], "scale": 1.0}


def _delta(x: Tensors) -> dict[str, Any]:
    return {**_vectors(x), "g": x["log_alpha"], "beta": x["eta"].to(x["q"].dtype)}


def _mesa(x: Tensors) -> dict[str, Any]:
    one = torch.ones_like(x["k"][..., 0])
    ridge = torch.full(x["k"].shape[2:], 0.5, device=x["k"].device)
    return {"q": x["q"], "k": x["k"], "v": x["v"], "g": x["log_gamma"], "beta": one, "lamb": ridge}


def _root(x: Tensors) -> Tensor:
    """Queries that undo a fixed scale of d^-½."""
    return x["q"] * x["q"].shape[-1] ** 0.5


CALLS: Final[Mapping[str, Call]] = {
    "linear-attention": Call(
        "linear_attn", "chunk_linear_attn", ("linear_attn.naive", "naive_recurrent_linear_attn"),
        lambda x: {**_vectors(x), "normalize": False},
        lambda x: (x["q"], x["k"], x["v"], 1.0),
    ),
    "retnet": Call(
        "retention", "chunk_retention", ("simple_gla.naive", "naive_recurrent_simple_gla"),
        _vectors, lambda x: (x["q"], x["k"], x["v"], _slopes(x), 1.0),
    ),
    "mamba2": Call(
        "simple_gla", "chunk_simple_gla", ("simple_gla.naive", "naive_recurrent_simple_gla"),
        lambda x: dict(zip("qkvg", _stepped(x), strict=True)) | {"scale": 1.0},
        lambda x: (*_stepped(x), 1.0),
    ),
    "gla": Call(
        "gla", "chunk_gla", ("gla.naive", "naive_recurrent_gla"),
        lambda x: {**_vectors(x), "g": x["log_alpha"]},
        lambda x: (_root(x), x["k"], x["v"], x["log_alpha"]),
    ),
    "gated-deltanet": Call(
        "gated_delta_rule", "chunk_gated_delta_rule",
        ("gated_delta_rule.naive", "naive_recurrent_gated_delta_rule"),
        _delta, lambda x: (x["q"], x["k"], x["v"], x["eta"], x["log_alpha"], 1.0),
    ),
    "kda": Call(
        "kda", "chunk_kda", ("kda.naive", "naive_recurrent_kda"),
        _delta, lambda x: (x["q"], x["k"], x["v"], x["log_alpha"], x["eta"], 1.0),
    ),
    "rls-geometric": Call(
        "mesa_net", "chunk_mesa_net", ("mesa_net.naive", "naive_mesa_net_exact"),
        _mesa, lambda x: tuple(_mesa(x)[n] for n in ("q", "k", "v", "g", "lamb", "beta")),
        same=False,
    ),
}  # fmt: skip
"""By spec. Its least squares keep the ridge where ours forgets it: the like, not the same."""


def _fla(row: Row, subject: Subject, dry: bool) -> Peer:
    if row.spec == "deltaformer":
        return _deltaformer(dry)
    call = CALLS[row.spec]
    if dry:
        naive = _found(f"fla.ops.{call.naive[0]}", call.naive[1])
        if row.decode:
            raise Missing("a dry run has no state of its layout")
        return Peer(call.naive[1], lambda x: naive(*call.plain(x))[0], call.same)
    if row.decode:
        return _decode(subject)
    function = _found(f"fla.ops.{call.module}", call.function)
    return Peer(f"{_version()} {call.function}", lambda x: function(**call.named(x))[0], call.same)


def _decode(subject: Subject) -> Peer:
    """One token of the gated delta rule; its state is K × V."""
    name = "fused_recurrent_gated_delta_rule"
    function = _found("fla.ops.gated_delta_rule", name)
    state = subject.state["W"].mT.contiguous()

    def run(x: Tensors) -> Tensor:
        found: Tensor = function(**_delta(x), initial_state=state, output_final_state=True)[0]
        return found

    return Peer(f"{_version()} {name}", run)


def _deltaformer(dry: bool) -> Peer:
    """Its rows, read by PyTorch's attention: its own read-out needs the package flash-attn."""
    if dry:
        raise Missing("its naive reference computes another kernel")
    rows = _found("fla.ops.deltaformer.parallel", "ParallelDeltaformerFunction")

    def run(x: Tensors) -> Tensor:
        u = rows.apply(x["q"], x["k"], x["v"], x["eta"].to(x["q"].dtype), 512, None)
        return _attention(x["q"], x["k"], u)

    return Peer(f"{_version()} ParallelDeltaformerFunction and SDPA", run, same=False)


def _found(module: str, function: str) -> Callable[..., Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found: Callable[..., Any] = getattr(importlib.import_module(module), function)
        except (ImportError, AttributeError) as error:
            raise Missing(f"{module}.{function}: {error}") from None
    return found


def _version() -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return f"fla {importlib.import_module('fla').__version__}"


# -- PyTorch -----------------------------------------------------------------------------------


def _attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    heads_first = (x.transpose(1, 2) for x in (q, k, v))
    out = torch.nn.functional.scaled_dot_product_attention(*heads_first, is_causal=True)
    return out.transpose(1, 2)


def _sdpa(row: Row, dry: bool) -> Peer:
    """Softmax attention at the same sizes: what a transformer would run in this place."""
    return Peer("SDPA, causal softmax", lambda x: _attention(x["q"], x["k"], x["v"]), same=False)


def _flex(row: Row, dry: bool) -> Peer:
    """Softmax attention with Σ log α between the two tokens added to each score."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    if dry:
        raise Missing("it is compiled for a GPU")
    attend = torch.compile(flex_attention)
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, row.tokens, row.tokens)

    def run(x: Tensors) -> Tensor:
        total = x["log_alpha"].cumsum(1).transpose(1, 2).contiguous()

        def score(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return s + total[b, h, i] - total[b, h, j]

        q, k, v = (x[n].transpose(1, 2) for n in "qkv")
        return attend(q, k, v, score_mod=score, block_mask=mask, scale=1.0).transpose(1, 2)

    return Peer("FlexAttention, gates in the scores", run)
