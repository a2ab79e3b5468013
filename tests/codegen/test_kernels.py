"""Memories behind a kernel against loops written from the paper, finite maps, and attention."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conformance import (
    Case,
    Sizes,
    Tensors,
    agree,
    beginning,
    close,
    compiled,
    error,
    gradients,
    in_pieces,
    inputs,
    interpreted,
    run,
    start,
    unit,
    weighed,
)  # fmt: skip
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from mnemic.codegen.support import kernels

VECTORS = Path(__file__).parents[1] / "data" / "vectors"
TOKEN = {"rate": "token"}
FAST = {"method": "momentum", "momentum": "token", **TOKEN}
DECAY = {"decay": "token"}
ANCHOR = {**TOKEN, "anchor": {"chunk": 5}}
HUBER = {"kind": "huber", "over": "norm", "delta": 0.5}


def mine(**entries: Any) -> Case:
    return compiled({"mnemic": 1, "name": "mine", **entries})


# -- DeltaFormer, as the paper writes it -----------------------------------------------------


def straight_through(s: Tensor) -> Tensor:
    return s + (torch.round(s) - s).detach()


KERNELS = {
    "linear": ("s", lambda s: s),
    "relu": ("relu(s)", torch.relu),
    "exp": ("exp(s)", torch.exp),
    "softmax": ("exp(s)", torch.exp),
    "round": ("round(3*s)", lambda s: straight_through(3 * s)),
    "own": ("s + tanh(s)**2", lambda s: s + torch.tanh(s) ** 2),
}


def weights(kernel: str, keys: Tensor, x: Tensor) -> Tensor:
    """κ(k_i, x) of every key, [n, d] and [d] → [n]."""
    found: Tensor = KERNELS[kernel][1](keys @ x)
    return found / found.sum() if kernel == "softmax" else found


def deltaformer(x: Tensors, one: str, two: str) -> tuple[Tensor, Tensor]:
    """(41)-(42), one head of one sequence after another: outputs [B, T, H, d_v] and rows u."""
    batch, length, heads = x["q"].shape[:3]
    outs, all_rows = [], []
    for b in range(batch):
        for h in range(heads):
            k, w, v, q = (x[n][b, :, h] for n in ("k", "predict", "v", "q"))
            rows: list[Tensor] = []
            reads = []
            for t in range(length):
                u = x["a"][b, t, h] * v[t]
                if t:
                    seen = weights(one, k[:t], w[t]) @ torch.stack(rows)
                    u = u - x["b"][b, t, h] * seen
                rows.append(u)
                reads.append(weights(two, k[: t + 1], q[t]) @ torch.stack(rows))
            outs.append(torch.stack(reads))
            all_rows.append(torch.stack(rows))
    shape = (batch, heads, length, -1)
    return torch.stack(outs).reshape(shape).transpose(1, 2), torch.stack(all_rows).reshape(shape)


def general(one: str, two: str) -> Case:
    """The general form: κ1 and κ2, gates a and b, a retrieval vector."""
    names = {n: "row" if n == "softmax" else "none" for n in (one, two)}
    read = {"kernel": KERNELS[two][0], "normalise": names[two]}
    return mine(
        features={"kernel": KERNELS[one][0], "normalise": names[one], "readout": read},
        bias="l2",
        keys={"predict": "own", "erase": "b*k", "value": "a*v"},
        coefficients={"a": "token", "b": "token"},
    )


PAIRS = [
    ("linear", "linear"), ("relu", "softmax"), ("exp", "exp"), ("softmax", "softmax"),
    ("round", "softmax"), ("softmax", "round"), ("round", "linear"), ("own", "relu"),
]  # fmt: skip


@pytest.mark.parametrize("chunk", [None, 4])
@pytest.mark.parametrize(("one", "two"), PAIRS)
def test_deltaformer_is_the_loop_of_the_paper(one: str, two: str, chunk: int | None) -> None:
    case = general(one, two)
    assert case.rule.structure.rows == "affine"
    arguments = inputs(case, 14, seed=3)
    leaves = {n: x.clone().requires_grad_() for n, x in arguments.items()}
    expected, rows = deltaformer(leaves, one, two)
    slopes = gradients(weighed(expected) + weighed(rows), leaves)
    form = {"form": "recurrent"} if chunk is None else {"form": "chunk", "chunk_size": chunk}
    out, state = case.operator(**leaves, output_final_state=True, **form)
    assert error(out, expected) <= 1e-9
    assert error(state["U"], rows) <= 1e-9
    found = gradients(weighed(out) + weighed(state["U"]), leaves)
    if "relu" not in (one, two) or chunk is not None:  # a kink may sit at a product of zero
        close(found, slopes)


def test_deltaformer_against_the_vectors() -> None:
    with np.load(VECTORS / "deltaformer.npz") as file:
        data = {name: torch.tensor(file[name]) for name in file.files}
    expected = data.pop("y")
    for form in ("recurrent", "chunk"):
        out, _ = compiled("deltaformer").operator(**data, form=form, chunk_size=8)
        assert error(out, expected) <= 1e-9


def test_a_rate_of_zero_writes_what_it_is_given() -> None:
    """Its write k/η cancels the rate before anything is divided by it."""
    case = compiled("deltaformer")
    arguments = {**inputs(case, 9), "eta": torch.zeros(2, 9, 2, dtype=torch.float64)}
    found = run(case, arguments, "chunk", chunk_size=4)
    assert all(bool(torch.isfinite(x).all()) for _, x in found.parts())
    assert torch.equal(found.states["U"], arguments["v"].transpose(1, 2))


# -- Theorem 1 -------------------------------------------------------------------------------


def states_and_swaps(count: int, swaps: int, dtype: torch.dtype) -> tuple[Tensors, Tensor]:
    """n keys and integer values, then swaps k_i − k_j; reads of random states, and their values."""
    rng = torch.Generator().manual_seed(5)
    keys = unit(torch.randn(count, 1024, generator=rng, dtype=torch.float64))
    apart = (keys @ keys.T - torch.eye(count)).abs().max()
    assert float(apart) < 1 / 8  # the theorem's first assumption
    values = torch.randint(-9, 10, (count, 3), generator=rng).double()
    held = values.clone()
    k, v, q, expected = list(keys), list(values), [keys[0]] * count, [values[0]] * count
    for _ in range(swaps):
        first, second = torch.randperm(count, generator=rng)[:2].sort(descending=True)[0].tolist()
        held[[first, second]] = held[[second, first]]
        k.append(keys[first] - keys[second])
        v.append(torch.zeros(3, dtype=torch.float64))
        asked = int(torch.randint(count, (1,), generator=rng))
        q.append(keys[asked])
        expected.append(held[asked].clone())
    stacked = {"q": torch.stack(q), "k": torch.stack(k), "v": torch.stack(v)}
    return {n: x[None, :, None].to(dtype) for n, x in stacked.items()}, torch.stack(expected)


@pytest.mark.parametrize(
    ("form", "swaps"), [("recurrent", 60), ("chunk", 60), ("chunk", 1500)], ids=str
)
def test_a_rounded_kernel_tracks_swaps_without_training(form: str, swaps: int) -> None:
    """Theorem 1: with keys almost at right angles every swap is followed, to the last bit."""
    case = mine(features={"kernel": "round(s)"}, bias="l2")
    arguments, expected = states_and_swaps(10, swaps, torch.float32)
    out, _ = case.operator(**arguments, form=form)
    assert torch.equal(out[0, 10:, 0].double(), expected[10:])


def test_the_linear_kernel_loses_track_of_swaps() -> None:
    """What rounding is for: the same keys without it (am, Figures 4 and 5)."""
    case = mine(features={"kernel": "s"}, bias="l2")
    arguments, expected = states_and_swaps(10, 60, torch.float64)
    out, _ = case.operator(**arguments)
    assert error(out[0, 10:, 0], expected[10:]) > 0.1


def test_rounding_goes_to_even_and_passes_the_gradient() -> None:
    x = torch.tensor([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 1.3], requires_grad=True)
    rounded = kernels.rounded(x)
    assert rounded.tolist() == [-2.0, -2.0, 0.0, 0.0, 2.0, 2.0, 1.0]
    rounded.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1.0] * 7


# -- kernels with a finite map: the dense compiler as the oracle ------------------------------

SQUARE = ({"kernel": "s**2"}, {"kind": "polynomial", "degree": 2, "mode": "power"})
LINEAR = ({"kernel": "s"}, "identity")

RULES: dict[str, dict[str, Any]] = {
    "dot": {},
    "dot-decay": {"optimizer": TOKEN, "retention": DECAY},
    "dot-decay-by-value": {"retention": {"decay": {"from": "input", "per": "value"}}},
    "dot-exponential-rate": {
        "optimizer": {"rate": {"from": "input", "activation": "exp"}}, "retention": DECAY,
    },
    "dot-window": {"optimizer": TOKEN, "window": 3, "weights": "window", "retention": DECAY},
    "dot-window-momentum": {"optimizer": FAST, "window": 3, "weights": "token"},
    "dot-before": {"optimizer": TOKEN, "readout": {"memory": "before"}, "retention": DECAY},
    "l2": {"bias": "l2", "optimizer": TOKEN},
    "l2-decay-before": {
        "bias": "l2", "optimizer": TOKEN, "retention": {**DECAY, "order": "before"},
    },
    "l2-decay-by-value": {
        "bias": "l2", "optimizer": TOKEN,
        "retention": {"decay": {"from": "input", "per": "value"}, "order": "before"},
    },
    "l2-momentum": {"bias": "l2", "optimizer": FAST, "retention": DECAY},
    "l2-momentum-on-write": {
        "bias": "l2",
        "optimizer": {**FAST, "momentum": {"from": "input", "on": "write"}}, "retention": DECAY,
    },
    "l2-window": {"bias": "l2", "optimizer": TOKEN, "window": 3, "weights": "window"},
    "l2-window-momentum": {
        "bias": "l2", "optimizer": FAST, "window": 3, "weights": "token", "retention": DECAY,
    },
    "l2-micro-steps": {
        "bias": "l2", "optimizer": {**TOKEN, "micro_steps": 2},
        "retention": {**DECAY, "order": "before"},
    },
    "l2-inner-steps": {"bias": "l2", "optimizer": {**TOKEN, "inner_steps": 2}},
    "l2-anchor": {"bias": "l2", "optimizer": {**FAST, **ANCHOR}, "retention": DECAY},
    "l2-anchor-window": {
        "bias": "l2", "optimizer": ANCHOR, "window": 3, "weights": "window", "retention": DECAY,
    },
    "l2-anchor-read": {"bias": "l2", "optimizer": ANCHOR, "readout": {"memory": "anchor"}},
    "l2-own-key": {"bias": "l2", "optimizer": TOKEN, "keys": {"predict": "own"}},
    "l2-gates": {
        "bias": "l2", "keys": {"predict": "own", "erase": "b*k", "value": "a*v"},
        "coefficients": {"a": "token", "b": "token"},
    },
    "l2-ridge": {"bias": "l2", "optimizer": TOKEN, "retention": {"global": {"l2": 0.3}}},
    "l2-leader": {
        "bias": "l2", "optimizer": TOKEN, "retention": {"view": "ftrl", "global": {"l2": 0.3}},
    },
    "normalised-rate": {"bias": "l2", "optimizer": {"rate": {"normalized": True}}},
    "implicit": {"bias": "l2", "optimizer": {"method": "implicit", "rate": "token"}},
    "flow": {"bias": "l2", "optimizer": {"method": "flow", "rate": "token"}},
    "huber": {"bias": HUBER, "optimizer": TOKEN, "retention": {**DECAY, "order": "before"}},
    "huber-momentum": {
        "bias": {"kind": "huber", "over": "coordinates", "delta": "token"}, "optimizer": FAST,
        "retention": DECAY,
    },
    "huber-anchor": {"bias": HUBER, "optimizer": ANCHOR},
    "huber-gate": {
        "bias": HUBER, "optimizer": TOKEN, "keys": {"erase": "b*k", "write": "erase"},
        "coefficients": {"b": "token"},
    },
    "own-loss-window": {
        "bias": {"expr": "log(cosh(e))"}, "optimizer": TOKEN, "window": 3, "weights": "window",
    },
    "norm": {
        "bias": "l2", "optimizer": ANCHOR,
        "memory": {"kind": "mlp", "depth": 1, "norm": True, "residual": False},
    },
}  # fmt: skip


@pytest.mark.some(6)
@pytest.mark.few
@pytest.mark.parametrize("maps", [SQUARE, LINEAR], ids=["square", "linear"])
@pytest.mark.parametrize("rule", RULES)
def test_a_kernel_of_a_finite_map_is_that_map(rule: str, maps: tuple[Any, Any]) -> None:
    """Rows over kept keys against a matrix over features: outputs and every gradient."""
    kept, dense = (mine(features=f, **RULES[rule]) for f in maps)
    assert kept.rule.structure.rows == dense.rule.structure.kind
    assert kept.forms == dense.forms
    arguments = inputs(kept, 21, seed=2)
    for form in kept.forms:
        found, expected = (outputs(case, arguments, form) for case in (kept, dense))
        close(found, expected)


def outputs(case: Case, arguments: Tensors, form: str) -> Tensors:
    leaves = {n: x.clone().requires_grad_() for n, x in arguments.items()}
    size = {"chunk_size": 4} if form == "chunk" and case.period == 1 else {}
    begun = beginning(case, arguments["k"], arguments["v"])
    empty = {name: torch.zeros_like(x) for name, x in begun.items()}  # as kept keys start
    out, _ = case.operator(**leaves, form=form, params=empty, **size)
    return {"out": out.detach(), **gradients(weighed(out), leaves)}


@pytest.mark.some(16)
@pytest.mark.parametrize("rule", RULES)
def test_every_rule_runs_in_pieces_and_from_a_state(rule: str) -> None:
    case = mine(features="exponential", **RULES[rule])
    arguments = inputs(case, 17, seed=4)
    state = start(case, arguments)
    expected = run(case, arguments, "recurrent", state=state)
    for pieces in ((("recurrent", 6), ("recurrent", 11)), *_mixed(case)):
        agree(run(case, arguments, pieces, state=state), expected)


def _mixed(case: Case) -> list[Any]:
    if "chunk" not in case.forms:
        return []
    return [(("chunk", 7), ("recurrent", 1), ("chunk", 9))]


# -- rows of weights over their sums ---------------------------------------------------------

ROWS: dict[str, Any] = {
    "both": {"kernel": "exp(2*s)", "normalise": "row"},
    "read": {"kernel": "s", "readout": {"kernel": "exp(2*s)", "normalise": "row"}},
    "relu": {"kernel": "relu(s)", "normalise": "row"},
    "other": {"kernel": "sigmoid(s)", "normalise": "row", "readout": {"kernel": "exp(-s**2)"}},
}

SUMS = {
    n: r
    for n, r in RULES.items()
    if "window" not in n
    and n not in ("dot-exponential-rate", "l2-momentum-on-write", "l2-ridge")
    and n not in ("normalised-rate", "implicit", "flow")
}
"""Rules whose rows over their sums have a meaning; the others are refused."""


@pytest.mark.some(6)
@pytest.mark.few
@pytest.mark.parametrize("kernel", ROWS)
@pytest.mark.parametrize("rule", SUMS)
def test_rows_over_their_sums_are_the_interpreted_rule(rule: str, kernel: str) -> None:
    case = mine(features=ROWS[kernel], **RULES[rule])
    arguments = {n: x.requires_grad_() for n, x in inputs(case, 12, seed=6).items()}
    expected, _ = interpreted(case, arguments)
    slopes = gradients(weighed(expected), arguments)
    for form in case.forms:
        size = {"chunk_size": 4} if form == "chunk" and case.period == 1 else {}
        out, _ = case.operator(**arguments, form=form, **size)
        assert error(out, expected) <= 1e-9
        close(gradients(weighed(out), arguments), slopes)
    agree(
        run(case, arguments, (("recurrent", 5), ("recurrent", 7))),
        run(case, arguments, "recurrent"),
    )


def test_the_dot_loss_over_sums_is_softmax_attention() -> None:
    case = mine(features={"kernel": "exp(s/2)", "normalise": "row"})
    arguments = inputs(case, 40, seed=7)
    q, k, v = (arguments[n].transpose(1, 2) for n in ("q", "k", "v"))
    expected = scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
    assert error(case.operator(**arguments, chunk_size=16)[0], expected) <= 1e-9


def test_a_decay_over_sums_is_gated_softmax() -> None:
    """Decay multiplies weights before they are summed, as the forgetting transformer does."""
    with np.load(VECTORS / "gated-softmax.npz") as file:
        data = {name: torch.tensor(file[name]) for name in file.files}
    expected = data.pop("y")
    kernel = {"kernel": f"exp({data['q'].shape[-1] ** -0.5!r}*s)", "normalise": "row"}
    case = mine(features=kernel, retention=DECAY)
    for form in ("recurrent", "chunk"):
        assert error(case.operator(**data, form=form, chunk_size=8)[0], expected) <= 1e-9


@pytest.mark.parametrize(("scale", "least"), [(300, 0.0), (200, -0.1), (20, -40.0)])
@pytest.mark.parametrize("form", ["recurrent", "chunk"])
def test_exponentials_over_sums_neither_overflow_nor_vanish(
    form: str, scale: int, least: float
) -> None:
    """Exponents up to 300, or decays down to e^-40 a token, in float32."""
    case = mine(features={"kernel": f"exp({scale}*s)", "normalise": "row"}, retention=DECAY)
    arguments = inputs(case, 33, seed=8)
    arguments["log_alpha"] = least * arguments["log_alpha"].abs() / 0.3
    q, k, v = (arguments[n].transpose(1, 2) for n in ("q", "k", "v"))
    gates = arguments["log_alpha"].transpose(1, 2).cumsum(-1)
    logits = scale * q @ k.mT + gates[..., :, None] - gates[..., None, :]
    future = torch.ones(33, 33, dtype=torch.bool).triu(1)
    expected = torch.softmax(logits.masked_fill(future, -torch.inf), -1) @ v
    leaves = {n: x.float().requires_grad_() for n, x in arguments.items()}
    out, _ = case.operator(**leaves, form=form, chunk_size=8)
    assert error(out, expected.transpose(1, 2)) <= 1e-4
    assert all(bool(torch.isfinite(g).all()) for g in gradients(weighed(out), leaves).values())


@pytest.mark.parametrize("name", ["deltaformer-softmax", "deltaformer-round"])
def test_queries_in_groups_share_keys_and_rows(name: str) -> None:
    case = compiled(name)
    arguments = inputs(case, 11, seed=9, sizes=Sizes(groups=3))
    plain = {n: x.repeat_interleave(3, 2) if n != "q" else x for n, x in arguments.items()}
    expected, _ = case.operator(**plain, form="recurrent")
    for form in case.forms:
        out, state = case.operator(**arguments, form=form, output_final_state=True)
        assert error(out, expected) <= 1e-9
        assert state["U"].shape[1] == arguments["k"].shape[2]


def test_shares_that_are_not_given_are_one() -> None:
    """Rows from elsewhere, of which everything is left."""
    case = mine(features={"kernel": "exp(s)", "normalise": "row"}, retention=DECAY)
    arguments = inputs(case, 8)
    state = start(case, arguments, tokens=4)
    assert state["shares"].shape == (2, 2, 4)
    whole = {n: torch.ones_like(x) if n == "shares" else x for n, x in state.items()}
    without = {n: x for n, x in state.items() if n != "shares"}
    first, _ = in_pieces(case, arguments, "chunk", without)
    second, _ = in_pieces(case, arguments, "chunk", whole)
    assert torch.equal(first, second)
