"""The generated operators against implementations that others wrote.

fla-core's naive references are in float32 and have states K × V; ONNX's reference evaluator runs
the operator ``LinearAttention`` of opset 27. Each reference is called as an operator of ours is,
in its layout and with its states; where it is differentiable, every gradient is compared.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import numpy
import onnx
import pytest
import torch
from conformance import (
    Case,
    Result,
    Sizes,
    Tensors,
    agree,
    compiled,
    error,
    gradients,
    inputs,
    start,
    weighed,
)  # fmt: skip
from onnx.reference import ReferenceEvaluator
from torch import Tensor

pytest.importorskip("triton", reason="fla-core cannot be imported without Triton")

PLACES = {
    "naive_parallel_based": "based.naive",
    "naive_chunk_comba": "comba.naive",
    "naive_recurrent_comba": "comba.naive",
    "delta_rule_chunkwise": "delta_rule.naive",
    "delta_rule_parallel": "delta_rule.naive",
    "delta_rule_recurrence": "delta_rule.naive",
    "naive_forgetting_attn": "forgetting_attn.naive",
    "naive_recurrent_gated_delta_product": "gated_delta_product.naive",
    "naive_chunk_gated_delta_rule": "gated_delta_rule.naive",
    "naive_recurrent_gated_delta_rule": "gated_delta_rule.naive",
    "naive_recurrent_gdn2": "gdn2.naive",
    "dplr_chunkwise": "generalized_delta_rule.dplr.naive",
    "dplr_recurrence": "generalized_delta_rule.dplr.naive",
    "naive_recurrent_gla": "gla.naive",
    "naive_recurrent_gsa": "gsa.naive",
    "naive_recurrent_hgrn": "hgrn.naive",
    "naive_chunk_kda": "kda.naive",
    "naive_recurrent_kda": "kda.naive",
    "naive_chunk_linear_attn": "linear_attn.naive",
    "naive_recurrent_linear_attn": "linear_attn.naive",
    "naive_mesa_net_exact": "mesa_net.naive",
    "chunk_momentum_delta_rule_ref": "momentum_delta_rule.naive",
    "recurrent_momentum_delta_rule_ref": "momentum_delta_rule.naive",
    "naive_path_attn": "path_attn.naive",
    "naive_retention": "retention.naive",
    "naive_recurrent_rwkv6": "rwkv6.recurrent_naive",
    "naive_chunk_simple_gla": "simple_gla.naive",
    "naive_parallel_simple_gla": "simple_gla.naive",
    "naive_recurrent_simple_gla": "simple_gla.naive",
}
"""The modules of ``fla.ops`` by the references that the tests take of them."""


class Fla:
    """The references of fla-core by name, imported when the first is called: it takes seconds."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        with warnings.catch_warnings():
            # fla warns that it found neither a GPU nor FlashAttention, and calls
            # torch.jit.script_method; its references need none of them.
            warnings.simplefilter("ignore")
            found: Callable[..., Any] = getattr(import_module(f"fla.ops.{PLACES[name]}"), name)
        setattr(self, name, found)
        return found


fla = Fla()

TOLERANCE = 1e-5
"""Relative: the references are in float32."""

TOKENS = 64
"""Two chunks of the references that cut into 32, one of those that cut into 64."""

SIZES = Sizes(batch=2, heads=3, key=8, value=6)

Outcome = tuple[Tensor, Tensors]
Spec = str | Mapping[str, Any]

SCALAR: Spec = {
    "mnemic": 1, "name": "scalar-decay", "bias": "dot", "retention": {"decay": "token"},
}  # fmt: skip
"""Simple GLA: linear attention with a decay a token, which no packaged spec has alone."""

COMBA_BEFORE: Spec = {
    "mnemic": 1, "name": "comba-before", "bias": "l2",
    "retention": {"decay": "token", "order": "after"},
    "optimizer": {"rate": "token"}, "keys": {"predict": "own"},
}  # fmt: skip
"""Comba that predicts from the memory before its decay."""


@dataclass(frozen=True)
class Reference:
    """An outside implementation of a spec's rule, called with float32 arguments in our layout."""

    title: str
    spec: Spec
    call: Callable[[Tensors, Tensors], Outcome]
    started: bool = True
    """Whether it takes an initial state."""
    square: bool = False
    """Whether it needs d_k = d_v."""
    near_one: bool = False
    """Whether it loses too many digits unless the momentum's factor is near one."""

    def __str__(self) -> str:
        name = self.spec if isinstance(self.spec, str) else self.spec["name"]
        return f"{name}-{self.title}"


REFERENCES: list[Reference] = []


def reference(
    title: str, *specs: Spec, **options: bool
) -> Callable[[Callable[..., Outcome]], Callable[..., Outcome]]:
    """Note a function as the reference of specs."""

    def note(call: Callable[..., Outcome]) -> Callable[..., Outcome]:
        REFERENCES.extend(Reference(title, spec, call, **options) for spec in specs)
        return call

    return note


def root(x: Tensors) -> Tensor:
    """Queries that undo a fixed scale of d^-½."""
    return x["q"] * x["q"].shape[-1] ** 0.5


def heads_first(*tensors: Tensor) -> tuple[Tensor, ...]:
    """[B, T, H, …] as [B, H, T, …]."""
    return tuple(x.transpose(1, 2) for x in tensors)


def past(state: Tensors) -> Tensor | None:
    """Our memory as K × V."""
    return state["W"].mT if state else None


def matrix(out: Tensor, final: Tensor) -> Outcome:
    """An output with a state K × V."""
    return out, {"W": final.mT}


def decay_of(x: Tensors) -> Tensor:
    """log α, zero where the rule has no decay."""
    return x["log_alpha"] if "log_alpha" in x else torch.zeros_like(x["eta"])


# -- without an error: linear attention and its gates ------------------------------------------


@reference("recurrent", "linear-attention")
def _linear(x: Tensors, state: Tensors) -> Outcome:
    found = fla.naive_recurrent_linear_attn(x["q"], x["k"], x["v"], 1.0, past(state), True)
    return matrix(*found)


@reference("chunk", "linear-attention", started=False)
def _linear_chunk(x: Tensors, state: Tensors) -> Outcome:
    return fla.naive_chunk_linear_attn(x["q"], x["k"], x["v"], 1.0), {}


@reference("normalised", "linear-attention-elu")
def _linear_normalised(x: Tensors, state: Tensors) -> Outcome:
    q, k = (torch.nn.functional.elu(x[n]) + 1 for n in ("q", "k"))
    first = (past(state), state["n"][:, None]) if state else None
    out, (final, total) = fla.naive_recurrent_linear_attn(q, k, x["v"], 1.0, first, True, True)
    return out, {"W": final.mT, "n": total[:, 0]}


@reference("parallel", "based", started=False)
def _based(x: Tensors, state: Tensors) -> Outcome:
    q, k, v = heads_first(x["q"], x["k"], x["v"])
    return fla.naive_parallel_based(q, k, v, 1.0).transpose(1, 2), {}


@reference("parallel", "retnet", started=False)
def _retention(x: Tensors, state: Tensors) -> Outcome:
    return fla.naive_retention(*heads_first(root(x), x["k"], x["v"])).transpose(1, 2), {}


def _gates(x: Tensors, spec: str) -> tuple[Tensor, Tensor]:
    """Keys and log decays of rules with one decay a head."""
    heads = torch.arange(x["k"].shape[2])
    if spec == "mamba2":
        return x["k"] * x["eta"][..., None], -x["eta"] * x["a"]
    if spec == "lightning-attention":
        slope = 2.0 ** (-8 * (heads + 1) / len(heads))
        return x["k"], (-slope).expand(x["k"].shape[:3])
    if spec == "retnet":
        return x["k"], torch.log1p(-(2.0 ** (-5.0 - heads))).expand(x["k"].shape[:3])
    return x["k"], x["log_alpha"]


def _simple(spec: Spec) -> None:
    name = spec if isinstance(spec, str) else ""

    @reference("simple_gla-recurrent", spec)
    def _recurrent(x: Tensors, state: Tensors) -> Outcome:
        k, g = _gates(x, name)
        return matrix(*fla.naive_recurrent_simple_gla(x["q"], k, x["v"], g, 1.0, past(state)))

    @reference("simple_gla-chunk", spec)
    def _chunk(x: Tensors, state: Tensors) -> Outcome:
        k, g = _gates(x, name)
        found = fla.naive_chunk_simple_gla(x["q"], k, x["v"], g, past(state), True, 16, 1.0)
        return matrix(*found)

    @reference("simple_gla-parallel", spec, started=False)
    def _parallel(x: Tensors, state: Tensors) -> Outcome:
        k, g = _gates(x, name)
        return fla.naive_parallel_simple_gla(x["q"], k, x["v"], g, 1.0)[0], {}


for _spec in (SCALAR, "mamba2", "lightning-attention", "retnet"):
    _simple(_spec)


@reference("recurrent", "hgrn2")
def _hgrn2(x: Tensors, state: Tensors) -> Outcome:
    """Its keys are what the decays let go."""
    return _gla({**x, "k": -torch.expm1(x["log_alpha"])}, state)


@reference("recurrent", "gla")
def _gla(x: Tensors, state: Tensors) -> Outcome:
    q, first = root(x), past(state)
    return matrix(*fla.naive_recurrent_gla(q, x["k"], x["v"], x["log_alpha"], first, True))


@reference("recurrent", "rwkv6")
def _rwkv6(x: Tensors, state: Tensors) -> Outcome:
    """The bonus is one for every sequence and token."""
    q, k, v, w = heads_first(x["q"], x["k"], x["v"], x["log_alpha"])
    bonus = x["bonus"][0, 0]
    out, final = fla.naive_recurrent_rwkv6(q, k, v, w, bonus, 1.0, past(state), True)
    return matrix(out.transpose(1, 2), final)


@reference("recurrent", "gsa")
def _gsa(x: Tensors, state: Tensors) -> Outcome:
    s, g = -torch.expm1(x["log_alpha"]), x["log_alpha"]
    first = (state["K"].mT, state["W"].mT) if state else None
    out, final = fla.naive_recurrent_gsa(x["q"], x["k"], x["v"], s, g, 1.0, first, True)
    return out, {"K": final[0].mT, "W": final[1].mT}


@reference("recurrent", "hgrn")
def _hgrn(x: Tensors, state: Tensors) -> Outcome:
    """Heads are only channels of its vector; the read-out is x ↦ q∘x."""
    g = x["log_alpha"]
    first = state["W"].flatten(1) if state else None
    write = -torch.expm1(g) * x["v"]
    h, final = fla.naive_recurrent_hgrn(write.flatten(2), g.flatten(2), first, True)
    return h.unflatten(2, g.shape[2:]) * x["q"], {"W": final.reshape(g.shape[0], *g.shape[2:], 1)}


# -- delta rules -----------------------------------------------------------------------------


@reference("recurrence", "deltanet", "deltanet-negative")
def _delta(x: Tensors, state: Tensors) -> Outcome:
    vectors = heads_first(root(x), x["k"], x["v"], x["eta"])
    out, final = fla.delta_rule_recurrence(*vectors, past(state))
    return matrix(out.transpose(1, 2), final)


@reference("recurrence", "efla")
def _efla(x: Tensors, state: Tensors) -> Outcome:
    """The delta rule with the rate that the gradient flow comes to."""
    square = x["k"].square().sum(-1)
    return _delta({**x, "eta": -torch.expm1(-x["eta"] * square) / square}, state)


@reference("recurrence", "longhorn")
def _longhorn(x: Tensors, state: Tensors) -> Outcome:
    """The delta rule with the rate that the proximal step comes to."""
    square = x["k"].square().sum(-1)
    return _delta({**x, "eta": x["delta"] / (1 + x["delta"] * square)}, state)


@reference("chunkwise", "deltanet", started=False)
def _delta_chunk(x: Tensors, state: Tensors) -> Outcome:
    out, final = fla.delta_rule_chunkwise(*heads_first(root(x), x["k"], x["v"], x["eta"]))
    return matrix(out.transpose(1, 2), final)


@reference("recurrent", "gated-deltanet", "deltanet")
def _gated_delta(x: Tensors, state: Tensors) -> Outcome:
    found = fla.naive_recurrent_gated_delta_rule(
        x["q"], x["k"], x["v"], x["eta"], decay_of(x), 1.0, past(state), True
    )
    return matrix(*found)


@reference("chunk", "gated-deltanet")
def _gated_delta_chunk(x: Tensors, state: Tensors) -> Outcome:
    found = fla.naive_chunk_gated_delta_rule(
        x["q"], x["k"], x["v"], x["log_alpha"], x["eta"], 16, 1.0, past(state), True
    )
    return matrix(*found)


@reference("recurrent", "gated-deltaproduct", "deltaproduct")
def _delta_product(x: Tensors, state: Tensors) -> Outcome:
    k, v, eta = (x[n].flatten(1, 2) for n in ("k", "v", "eta"))
    steps = x["k"].shape[2]
    found = fla.naive_recurrent_gated_delta_product(
        x["q"], k, v, x.get("log_alpha"), eta, 1.0, None, past(state), True, steps
    )
    return matrix(*found)


@reference("recurrent", "comba")
def _comba(x: Tensors, state: Tensors) -> Outcome:
    found = fla.naive_recurrent_comba(
        x["q"], x["k"], x["v"], x["predict"], x["eta"], x["log_alpha"], 1.0, past(state), True
    )
    return matrix(*found)


@reference("chunk", COMBA_BEFORE)
def _comba_chunk(x: Tensors, state: Tensors) -> Outcome:
    """fla's two forms disagree: its chunks predict from the memory before the decay."""
    found = fla.naive_chunk_comba(
        x["q"], x["k"], x["v"], x["predict"], x["log_alpha"], x["eta"], 16, 1.0, past(state), True
    )
    return matrix(*found)


@reference("recurrent", "kda")
def _kda(x: Tensors, state: Tensors) -> Outcome:
    found = fla.naive_recurrent_kda(
        x["q"], x["k"], x["v"], x["log_alpha"], x["eta"], 1.0, past(state), True
    )
    return matrix(*found)


@reference("chunk", "kda")
def _kda_chunk(x: Tensors, state: Tensors) -> Outcome:
    found = fla.naive_chunk_kda(
        x["q"], x["k"], x["v"], x["log_alpha"], x["eta"], 1.0, past(state), True, 16
    )
    return matrix(*found)


@reference("recurrent", "gdn2")
def _gdn2(x: Tensors, state: Tensors) -> Outcome:
    found = fla.naive_recurrent_gdn2(
        x["q"], x["k"], x["v"], x["log_alpha"], x["b"], x["w"], 1.0, past(state), True
    )
    return matrix(*found)


def _low_rank(x: Tensors) -> tuple[Tensor, ...]:
    """Arguments of S ← diag(α)S + βᵀ(S·a) + k vᵀ, for both rules named RWKV-7."""
    if "predict" in x:
        a, b, k = -x["predict"], x["a"] * x["predict"], x["k"]
    else:
        k = x["eta"][..., None] * x["k"]
        a, b = -x["k"], k
    return heads_first(root(x), k, x["v"], a, b, x["log_alpha"])


@reference("dplr-recurrence", "leaky-lms")
def _leaky(x: Tensors, state: Tensors) -> Outcome:
    """A decay of 1 − ηλ on every channel, after the error."""
    decay = torch.log1p(-x["eta"] * x["lam"])[..., None].expand(x["k"].shape)
    return _dplr({**x, "log_alpha": decay}, state)


@reference("dplr-recurrence", "rwkv7", "rwkv7-full")
def _dplr(x: Tensors, state: Tensors) -> Outcome:
    out, final = fla.dplr_recurrence(*_low_rank(x), past(state))
    return matrix(out.transpose(1, 2), final)


@reference("dplr-chunkwise", "rwkv7", "rwkv7-full")
def _dplr_chunk(x: Tensors, state: Tensors) -> Outcome:
    out, final = fla.dplr_chunkwise(*_low_rank(x), past(state), chunk_size=16)
    return matrix(out.transpose(1, 2), final)


def _momentum(x: Tensors, state: Tensors, call: Callable[..., Any], **options: Any) -> Outcome:
    """Its momentum has the opposite sign."""
    out, final = call(
        q=x["q"], k=x["k"], v=x["v"], p=x["k"], log_alpha=decay_of(x), log_mu=x["theta"].log(),
        eta=x["eta"], scale=1.0, initial_S=past(state),
        initial_M=-state["S"].mT if state else None, output_final_state=True, **options,
    )  # fmt: skip
    return out, {"W": final[0].mT, "S": -final[1].mT}


@reference("recurrent", "titans-linear")
def _titans(x: Tensors, state: Tensors) -> Outcome:
    beta = torch.ones_like(x["eta"])
    return _momentum(x, state, fla.recurrent_momentum_delta_rule_ref, beta=beta)


@reference("chunk", "titans-linear", near_one=True)
def _titans_chunk(x: Tensors, state: Tensors) -> Outcome:
    """It adds 1e-6 to β, here taken off first, and divides differences of sums by products of θ.

    With θ down to 0.01 in chunks of 16 its float32 keeps no digit; in chunks of 2 it keeps all.
    """
    beta = torch.ones_like(x["eta"]) - 1e-6
    return _momentum(x, state, fla.chunk_momentum_delta_rule_ref, beta=beta, chunk_size=16)


# -- regressions -------------------------------------------------------------------------------


@reference("mesa", "rls", started=False, square=True)
def _rls(x: Tensors, state: Tensors) -> Outcome:
    """The ridge stands outside of the moments."""
    one = torch.ones_like(x["k"][..., 0])
    ridge = torch.full(x["k"].shape[2:], 0.5)
    return fla.naive_mesa_net_exact(x["q"], x["k"], x["v"], 0 * one, ridge, one)[0], {}


@reference("mesa-moments", "rls", "rls-geometric", square=True)
def _moments(x: Tensors, state: Tensors) -> Outcome:
    """The ridge is inside the moments at the start, and is forgotten with the pairs."""
    one = torch.ones_like(x["k"][..., 0])
    batch, heads, width = x["k"].shape[0], *x["k"].shape[2:]
    if state:
        second = torch.linalg.inv(state["P"])
        cross = second @ state["W"].mT
    else:
        second = 0.5 * torch.eye(width).expand(batch, heads, width, width)
        cross = torch.zeros_like(second)
    none = torch.zeros(heads, width)
    gate = x.get("log_gamma", 0 * one)
    out, second, cross = fla.naive_mesa_net_exact(
        x["q"], x["k"], x["v"], gate, none, one, second, cross
    )
    inverse = torch.linalg.inv(second)
    return out, {"W": (inverse @ cross).mT, "P": inverse}


GATED_MESA: Mapping[str, Any] = {
    "mnemic": 1, "name": "gated-mesa", "extends": "mesa", "optimizer": {"rate": "token"},
}  # fmt: skip
"""MesaNet's input gate weighs both moments."""


@reference("mesa", "mesa", GATED_MESA, square=True)
def _mesa(x: Tensors, state: Tensors) -> Outcome:
    gate = x.get("eta", torch.ones_like(x["log_gamma"]))
    first = (state["H"], state["U"].mT) if state else (None, None)
    out, second, cross = fla.naive_mesa_net_exact(
        x["q"], x["k"], x["v"], x["log_gamma"], x["lam"][0, 0], gate, *first
    )
    return out, {"H": second, "U": cross.mT}


# -- comparing ---------------------------------------------------------------------------------


def example(case: Case, tokens: int = TOKENS, sizes: Sizes = SIZES) -> Tensors:
    """Valid arguments, a parameter's with one entry for all sequences and tokens."""
    arguments = inputs(case, tokens, seed=29, sizes=sizes)
    for scalar in case.rule.scalars:
        if scalar.declared.origin == "parameter":
            name = str(scalar.argument)
            arguments[name] = arguments[name][:1, :1].clone()
    return arguments


def whole(arguments: Tensors) -> Tensors:
    """Parameters spread over sequences and tokens."""
    lead = arguments["q"].shape[:2]
    narrow = (1, 1)
    return {
        n: x.expand(*lead, *x.shape[2:]) if x.shape[:2] == narrow else x
        for n, x in arguments.items()
    }


def outcome(
    call: Callable[[Tensors, Tensors], Outcome], arguments: Tensors, state: Tensors,
    names: tuple[str, ...] | None, dtype: torch.dtype,
) -> Result:  # fmt: skip
    """A run with its gradients, through the output and those final states that are named."""
    leaves = {n: x.detach().to(dtype).requires_grad_() for n, x in arguments.items()}
    first = {n: x.detach().to(dtype).requires_grad_() for n, x in state.items()}
    out, final = call(whole(leaves), first)
    kept = {n: x for n, x in final.items() if names is None or n in names}
    loss = weighed(out) + sum((weighed(x) for x in kept.values()), torch.zeros((), dtype=dtype))
    grads = gradients(loss, {**leaves, **{f"initial {n}": x for n, x in first.items()}})
    return Result(out.detach(), {n: x.detach() for n, x in kept.items()}, grads)


@cache
def _expected(at: int) -> tuple[Case, Tensors, Tensors, Result]:
    other = REFERENCES[at]
    case = compiled(other.spec)
    sizes = Sizes(2, TOKENS, 3, 6, 6) if other.square else SIZES
    arguments = example(case, sizes=sizes)
    if other.spec == "deltanet-negative":  # up to almost 2, where the memory's signs flip
        arguments["eta"] = 3 * arguments["eta"]
    if other.near_one:
        arguments["theta"] = 0.9 + 0.1 * arguments["theta"]
    state = start(case, whole(arguments)) if other.started else {}
    return case, arguments, state, outcome(other.call, arguments, state, None, torch.float32)


FORMS = ("recurrent", "chunk")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("at", range(len(REFERENCES)), ids=[str(r) for r in REFERENCES])
def test_fla(at: int, form: str) -> None:
    case, arguments, state, expected = _expected(at)

    def ours(x: Tensors, first: Tensors) -> Outcome:
        found: Outcome = case.operator(
            **x, form=form, initial_state=first, output_final_state=True, chunk_size=24
        )
        return found

    found = outcome(ours, arguments, state, tuple(expected.states), torch.float64)
    agree(found, expected, TOLERANCE)


@pytest.mark.parametrize("form", FORMS)
def test_fla_delta_parallel(form: str) -> None:
    """It forbids gradients, being in place, and wants a multiple of 128 tokens."""
    case = compiled("deltanet")
    x = example(case, 128)
    vectors = [y.float().contiguous() for y in heads_first(root(x), x["k"], x["v"], x["eta"])]
    expected = fla.delta_rule_parallel(*vectors)[0].transpose(1, 2)
    out, _ = case.operator(**x, form=form)
    assert error(out, expected) <= TOLERANCE


def test_fla_comba_disagrees_with_itself() -> None:
    """Why the chunk form of fla's Comba stands for another order of decay and prediction."""
    x = {n: y.float() for n, y in example(compiled("comba")).items()}
    assert error(_comba_chunk(x, {})[0], _comba(x, {})[0]) > 1e-3


# -- ONNX --------------------------------------------------------------------------------------

OPSET = 27

RULES: tuple[tuple[str, Spec], ...] = (
    ("linear", "linear-attention"),
    ("gated", SCALAR),
    ("gated", "gla"),
    ("delta", "deltanet"),
    ("gated_delta", "gated-deltanet"),
    ("gated_delta", "kda"),
)
"""Update rules with a spec; a decay is one a head or one a key channel."""


def evaluated(rule: str, x: Tensors, state: Tensors) -> tuple[Tensor, Tensor]:
    """ONNX's ``LinearAttention`` with that update rule, in our layout."""
    feeds = {"query": x["q"], "key": x["k"], "value": x["v"], "decay": x.get("log_alpha")}
    packed = {n: y.flatten(2) for n, y in feeds.items() if y is not None and y.ndim == 4}
    packed |= {n: y for n, y in feeds.items() if y is not None and y.ndim == 3}
    packed |= {"beta": x["eta"]} if "eta" in x else {}
    packed |= {"past_state": state["W"].mT} if state else {}
    order = ("query", "key", "value", "past_state", "decay", "beta")
    float32 = onnx.TensorProto.FLOAT
    node = onnx.helper.make_node(
        "LinearAttention", [n if n in packed else "" for n in order], ["output", "present_state"],
        update_rule=rule, q_num_heads=x["q"].shape[2], kv_num_heads=x["k"].shape[2], scale=1.0,
    )  # fmt: skip
    shapes = {n: list(y.shape) for n, y in packed.items()}
    results = {
        "output": [*x["q"].shape[:2], x["q"].shape[2] * x["v"].shape[3]],
        "present_state": [x["k"].shape[0], *x["k"].shape[2:], x["v"].shape[3]],
    }
    graph = onnx.helper.make_graph(
        [node], "g",
        [onnx.helper.make_tensor_value_info(n, float32, shape) for n, shape in shapes.items()],
        [onnx.helper.make_tensor_value_info(n, float32, shape) for n, shape in results.items()],
    )  # fmt: skip
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", OPSET)])
    onnx.checker.check_model(model, full_check=True)
    arrays = {n: numpy.ascontiguousarray(y.float().numpy()) for n, y in packed.items()}
    out, final = (torch.from_numpy(y) for y in ReferenceEvaluator(model).run(None, arrays))
    return out.unflatten(2, (x["q"].shape[2], -1)), final.mT


@pytest.mark.skipif(
    onnx.defs.onnx_opset_version() < OPSET, reason=f"onnx without opset {OPSET}, LinearAttention"
)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize(
    ("rule", "spec"), RULES, ids=[s if isinstance(s, str) else s["name"] for _, s in RULES]
)
def test_onnx(rule: str, spec: Spec, started: bool, groups: int, form: str) -> None:
    case = compiled(spec)
    x = example(case, 29, Sizes(2, 29, 3, 8, 6, groups))
    state = start(case, x) if started else {}
    expected, last = evaluated(rule, x, state)
    out, final = case.operator(
        **x, form=form, initial_state=state, output_final_state=True, chunk_size=8
    )
    assert error(out, expected) <= TOLERANCE
    assert error(final["W"], last) <= TOLERANCE


# -- kept pairs ------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("form", ["recurrent", "chunk"])
def test_gated_softmax_is_the_forgetting_transformer(form: str, window: int | None) -> None:
    spec = {"extends": "gated-softmax", "name": "forgetting", "window": window or "all"}
    case = compiled(spec)
    x = {n: y.float().requires_grad_() for n, y in inputs(case, 29, sizes=Sizes(groups=2)).items()}
    out = case.operator(**x, form=form)[0]
    gate = x["log_alpha"].repeat_interleave(2, -1)
    expected = fla.naive_forgetting_attn(x["q"], x["k"], x["v"], gate, window_size=window)
    assert error(out, expected) <= 1e-5
    found, wanted = (gradients(weighed(y), x) for y in (out, expected))
    for name, gradient in wanted.items():
        assert error(found[name], gradient) <= 1e-5, name


@pytest.mark.parametrize("name", ["path", "path-fox"])
@pytest.mark.parametrize("form", FORMS)
def test_path_attention_is_flas(form: str, name: str) -> None:
    """Its scale multiplies the gates too, so that q brings it; chunks of 16, three with a rest."""
    case = compiled(name)
    arguments = inputs(case, 41, sizes=Sizes(groups=2))
    arguments["eta"] = 3 * arguments["eta"]
    x = {n: y.float().requires_grad_() for n, y in arguments.items()}
    out = case.operator(**x, form=form)[0]
    gate = x["log_alpha"] if "log_alpha" in x else torch.zeros_like(x["eta"])
    q = x["q"] / x["q"].shape[-1] ** 0.5
    vectors = (q, x["k"], x["v"], x["carry"], x["eta"], gate.repeat_interleave(2, -1))
    expected = fla.naive_path_attn(*vectors, scale=1.0, chunk_size=16)
    assert error(out, expected) <= TOLERANCE
    found, wanted = (gradients(weighed(y), x) for y in (out, expected))
    for argument, gradient in wanted.items():
        assert error(found[argument], gradient) <= TOLERANCE, argument
