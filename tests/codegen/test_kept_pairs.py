"""Memories of kept pairs: any similarity in every form, states that grow, solvers, limits."""

import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conformance import (
    Sizes,
    Tensors,
    agree,
    compiled,
    error,
    gradients,
    inputs,
    interpreted,
    run,
    unit,
    weighed,
)  # fmt: skip
from test_own_expressions import conforms
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

VECTORS = Path(__file__).parents[1] / "data" / "vectors"

LOCAL: dict[str, Any] = {"name": "local", "weights": "similarity", "bias": "l2", "window": "all"}
BANDWIDTH = {"from": "input", "activation": "softplus"}
CG = {"method": "nonparametric", "solver": {"kind": "conjugate-gradients", "tolerance": 1e-12,
                                            "iterations": 80}}  # fmt: skip


def local(similarity: str = "exp(s)", degree: int = 0, **more: Any) -> dict[str, Any]:
    memory = {"kind": "nonparametric", "similarity": similarity, "degree": degree, "ridge": 0.3}
    return {**LOCAL, "memory": memory, **more}


SIMILARITIES = [
    "exp(s)", "exp(-d2)", "exp(-d2/a)", "exp(a*s - d2/2)", "exp(s**2 - s)", "exp(-sqrt(d2 + a))",
    "sigmoid(3*s)", "1/(1 + a*d2)", "relu(s + 1)", "exp(s) + a", "s**2",
]  # fmt: skip


@pytest.mark.few
@pytest.mark.parametrize("setting", ["plain", "decay", "fixed decay", "window", "both"])
@pytest.mark.parametrize("degree", [0, 1, "cg"])
@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_every_similarity_in_every_form(similarity: str, degree: int | str, setting: str) -> None:
    more: dict[str, Any] = {}
    if "a" in similarity.replace("abs", "").replace("sqrt", ""):
        more["coefficients"] = {"a": BANDWIDTH}
    if setting in ("decay", "both"):
        more["retention"] = {"decay": "token"}
    if setting == "fixed decay":
        more["retention"] = {"decay": {"expr": "1 - 2**(-2 - h)"}}
    if setting in ("window", "both"):
        more["window"] = 4
    if degree == "cg":
        more["optimizer"] = CG
    conforms(local(similarity, 1 if degree == "cg" else int(degree), **more))


@pytest.mark.parametrize("features", ["elu", "relu", {"kind": "polynomial", "degree": 2}])
@pytest.mark.parametrize("degree", [0, 1])
def test_features_before_the_similarity(features: object, degree: int) -> None:
    conforms(local(degree=degree, features=features))


def test_values_of_ones_own() -> None:
    conforms(local(keys={"value": {"expr": "a*v"}}, coefficients={"a": "token"}))


@pytest.mark.parametrize("kernel", ["exp(s)", "exp(-d2/2)", "1 + s", "(1 + s)**2", "1/(1 + d2)"])
@pytest.mark.parametrize("ridge", [0.05, 1.0])
def test_kernels_that_interpolate(kernel: str, ridge: float) -> None:
    memory = {"kind": "interpolation", "kernel": kernel, "ridge": ridge}
    conforms({"name": "kernel", "memory": memory, "bias": "l2", "window": "all"})


# -- what is known from elsewhere ------------------------------------------------------------


@pytest.mark.parametrize("form", ["recurrent", "chunk"])
@pytest.mark.parametrize("name", ["softmax-attention", "gated-softmax"])
def test_vectors(name: str, form: str) -> None:
    with np.load(VECTORS / f"{name}.npz") as file:
        data = {key: torch.tensor(file[key]) for key in file.files}
    expected = data.pop("y")
    assert error(compiled(name).operator(**data, form=form)[0], expected) <= 1e-9


def _by_torch(x: Tensors) -> Tensor:
    heads_first = [x[n].transpose(1, 2) for n in "qkv"]
    return scaled_dot_product_attention(*heads_first, is_causal=True).transpose(1, 2)


@pytest.mark.parametrize("form", ["recurrent", "chunk"])
def test_softmax_attention_is_torchs(form: str) -> None:
    case = compiled("softmax-attention")
    arguments = inputs(case, 37)
    found = run(case, arguments, form)
    leaves = {n: x.clone().requires_grad_() for n, x in arguments.items()}
    expected = _by_torch(leaves)
    assert error(found.out, expected) <= 1e-12
    loss = weighed(expected) + weighed(leaves["k"].transpose(1, 2))
    loss = loss + weighed(leaves["v"].transpose(1, 2))
    for name, x in gradients(loss, leaves).items():
        assert error(found.gradients[name], x) <= 1e-10


def test_gaussian_is_softmax_on_unit_vectors() -> None:
    gaussian, softmax = compiled("gaussian-attention"), compiled("softmax-attention")
    x = {n: unit(y) if n in ("q", "k") else y for n, y in inputs(softmax, 23).items()}
    wide = torch.full(x["k"].shape[:3], 2 * math.sqrt(x["k"].shape[-1]), dtype=torch.float64)
    for form in ("recurrent", "chunk"):
        found = gaussian.operator(**x, bandwidth=wide, form=form)[0]
        assert error(found, softmax.operator(**x, form=form)[0]) <= 1e-12


def _local_linear(x: Tensors, ridge: float) -> Tensor:
    """(52)-(53) of Test-time regression with a ridge on the slope, one query at a time."""
    q, k, v = x["q"], x["k"], x["v"]
    out = torch.zeros_like(v)
    for b, t, h in np.ndindex(*v.shape[:3]):
        apart = k[b, : t + 1, h] - q[b, t, h]
        s = torch.exp(k[b, : t + 1, h] @ q[b, t, h] / math.sqrt(k.shape[-1]))
        design = torch.cat([torch.ones(t + 1, 1, dtype=torch.float64), apart], 1)
        rows = (s / s.max()).sqrt()[:, None]
        slope = math.sqrt(ridge) * torch.eye(design.shape[1], dtype=torch.float64)[1:]
        left = torch.cat([rows * design, slope])
        right = torch.cat([rows * v[b, : t + 1, h], torch.zeros(len(slope), v.shape[-1]).double()])
        out[b, t, h] = torch.linalg.lstsq(left, right, driver="gelsd").solution[0]
    return out


@pytest.mark.parametrize("form", ["recurrent", "chunk"])
def test_local_linear_is_the_weighted_least_squares(form: str) -> None:
    case = compiled("local-linear-attention")
    arguments = inputs(case, 17)
    arguments["ridge"] = torch.full_like(arguments["ridge"], 0.7)
    expected = _local_linear(arguments, 0.7)
    assert error(case.operator(**arguments, form=form)[0], expected) <= 1e-10


def test_local_linear_reads_a_line_exactly() -> None:
    """Values that are affine in the keys, hardly any ridge: the line itself, at any query."""
    case = compiled("local-linear-attention")
    x = inputs(case, 40)
    x["v"] = x["k"] @ torch.randn(4, 3, dtype=torch.float64) + 2.0
    x["v"] = x["v"].contiguous()
    matrix = torch.linalg.lstsq(
        torch.cat([x["k"], torch.ones_like(x["k"][..., :1])], -1).reshape(-1, 5),
        x["v"].reshape(-1, 3),
    ).solution
    x["ridge"] = torch.full_like(x["ridge"], 1e-9)
    expected = torch.cat([x["q"], torch.ones_like(x["q"][..., :1])], -1) @ matrix
    for form in ("recurrent", "chunk"):
        found = case.operator(**x, form=form)[0]
        assert error(found[:, 10:], expected[:, 10:]) <= 1e-6


def test_kernel_regression_is_the_papers() -> None:
    case = compiled("kernel-regression")
    x = inputs(case, 13)
    for form in ("recurrent", "chunk"):
        out = case.operator(**x, form=form)[0]
        for t in range(13):
            keys, values = (x[n][:, : t + 1].transpose(1, 2) for n in "kv")
            kernel = torch.exp(keys @ keys.mT) + 0.1 * torch.eye(t + 1, dtype=torch.float64)
            asked = torch.exp(keys @ x["q"][:, t][..., None])
            expected = values.mT @ torch.linalg.inv(kernel) @ asked
            assert error(out[:, t], expected[..., 0]) <= 1e-10


# -- states ----------------------------------------------------------------------------------


def test_rows_of_different_lengths_go_on_together() -> None:
    case = compiled("gated-softmax")
    first = inputs(case, 11)
    mask = torch.ones(2, 11, dtype=torch.bool)
    mask[1, 4:] = False
    _, state = case.operator(**first, mask=mask, output_final_state=True)
    assert state["keys"].shape == (2, 2, 11, 4)
    assert state["position"].tolist() == [11, 4]
    assert not state["keys"][1, :, 4:].any()
    then = inputs(case, 6, seed=5)
    for form in ("recurrent", "chunk"):
        out, last = case.operator(
            **then, form=form, initial_state=state, output_final_state=True
        )  # fmt: skip
        for row, kept in ((0, 11), (1, 4)):
            joined = {
                n: torch.cat([first[n][row : row + 1, :kept], x[row : row + 1]], 1)
                for n, x in then.items()
            }
            expected, state_ = interpreted(case, joined)
            assert error(out[row], expected[0, kept:]) <= 1e-9
            assert error(last["log_kept"][row, :, : kept + 6], state_["log_kept"][0]) <= 1e-9


def test_a_window_keeps_no_more_than_it_needs() -> None:
    case = compiled("swa")
    out, state = case.operator(**inputs(case, 100), output_final_state=True)
    assert state["keys"].shape == (2, 2, 15, 4)
    assert torch.isfinite(out).all()


def test_weights_may_be_left_out_of_a_state() -> None:
    """One number a pair starts at zero, the logarithm of a weight of one."""
    case = compiled("gated-softmax")
    x = inputs(case, 5)
    kept = {"keys": torch.randn(2, 2, 3, 4).double(), "values": torch.randn(2, 2, 3, 3).double()}
    found = case.operator(**x, initial_state=kept)[0]
    whole = {**kept, "log_kept": torch.zeros(2, 2, 3).double(), "position": torch.tensor([3, 3])}
    assert error(found, case.operator(**x, initial_state=whole)[0]) <= 1e-12


WRONG: dict[str, tuple[Mapping[str, Tensor], str]] = {
    "values": ({"keys": torch.zeros(2, 2, 3, 4)}, "kept pairs without their values"),
    "fewer": (
        {
            "keys": torch.zeros(2, 2, 3, 4),
            "values": torch.zeros(2, 2, 3, 3),
            "position": torch.tensor([5, 5]),
        },
        "read 3 pairs, the position tells 5",
    ),
    "none": ({"position": torch.tensor([5, 5])}, "a position without the kept pairs"),
    "shape": (
        {"keys": torch.zeros(2, 2, 4), "values": torch.zeros(2, 2, 3, 3)},
        r"read shape \[2, 2, 4\], expected \[B, H, n, d_k\]",
    ),
    "channels": (
        {"keys": torch.zeros(2, 2, 3, 5), "values": torch.zeros(2, 2, 3, 3)},
        r"initial_state\['keys'\]: read shape \[2, 2, 3, 5\], expected \[2, 2, 3, 4\]",
    ),
}


@pytest.mark.parametrize("which", WRONG)
def test_states_that_do_not_fit_are_refused(which: str) -> None:
    case = compiled("softmax-attention")
    state, words = WRONG[which]
    with pytest.raises(ValueError, match=words):
        case.operator(**inputs(case, 4), initial_state=state)


# -- solvers ---------------------------------------------------------------------------------


def test_conjugate_gradients_are_the_direct_solve() -> None:
    direct = compiled(local(degree=1, retention={"decay": "token"}))
    iterated = compiled(local(degree=1, retention={"decay": "token"}, optimizer=CG))
    arguments = inputs(direct, 40, sizes=Sizes(key=6, value=5))
    agree(run(iterated, arguments, "chunk"), run(direct, arguments, "chunk"), 1e-10)


def test_what_has_not_converged_is_told_once() -> None:
    solver = {"kind": "conjugate-gradients", "tolerance": 1e-8, "iterations": 2}
    spec = local(degree=1, optimizer={"method": "nonparametric", "solver": solver})
    spec["memory"]["ridge"] = 1e-4
    case = compiled(spec)
    arguments = inputs(case, 40, sizes=Sizes(key=8))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(2):
            case.operator(**arguments, form="chunk")
    (one,) = told
    assert "conjugate gradients left a relative residual of" in str(one.message)
    assert "after 2 iterations; raise optimizer.solver.iterations" in str(one.message)


@pytest.mark.parametrize("form", ["recurrent", "chunk"])
def test_a_kernel_matrix_that_is_singular_is_told(form: str) -> None:
    memory = {"kind": "interpolation", "kernel": "exp(s)", "ridge": 0}
    case = compiled({"name": "exact", "memory": memory, "bias": "l2", "window": "all"})
    arguments = inputs(case, 8)
    arguments["k"] = arguments["k"][:, :1].expand(arguments["k"].shape)
    with pytest.raises(ValueError, match="is not positive definite"):
        case.operator(**arguments, form=form)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("form", ["recurrent", "chunk"])
def test_keys_that_nearly_repeat_are_refused_not_divided_by_noise(
    form: str, dtype: torch.dtype
) -> None:
    """The last key is so near to the first that its pivot, d², is some roundings."""
    memory = {"kind": "interpolation", "kernel": "exp(-d2/2)", "ridge": 0}
    case = compiled({"name": "exact", "memory": memory, "bias": "l2", "window": "all"})
    drawn = inputs(case, 16, sizes=Sizes(1, 16, 1, 15, 5))
    arguments = {n: x.to(dtype) for n, x in drawn.items()}
    arguments["k"][0, :15, 0] = torch.eye(15, dtype=dtype)

    def read(roundings: float) -> Tensor:
        arguments["k"][:, -1] = arguments["k"][:, 0]
        arguments["k"][:, -1, :, 1] = (roundings * torch.finfo(dtype).eps) ** 0.5
        out: Tensor = case.operator(**arguments, form=form)[0]
        return out

    assert bool(read(1e4).isfinite().all())
    with pytest.raises(ValueError, match="is not positive definite: keys repeat, or nearly so"):
        read(5)


def test_no_weight_at_all_reads_zero() -> None:
    for degree in (0, 1):
        case = compiled(local("relu(s)", degree))
        arguments = inputs(case, 9)
        arguments["k"] = -arguments["q"]  # the key of a query is its opposite
        arguments["q"] = arguments["q"][:, :1].expand(arguments["q"].shape)
        arguments["k"] = -arguments["q"]
        for form in ("recurrent", "chunk"):
            found = run(case, arguments, form)
            assert not found.out.any()
            assert all(torch.isfinite(x).all() for x in found.gradients.values())


# -- sizes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["softmax-attention", "swa", "gated-softmax", "path"])
def test_what_the_backward_pass_needs_does_not_grow_with_the_square(name: str) -> None:
    case, saved = compiled(name), {}
    tokens = 2048
    arguments = inputs(case, tokens, sizes=Sizes(1, heads=2, key=16, value=16), dtype=torch.float32)
    leaves = {n: x.requires_grad_() for n, x in arguments.items()}

    def keep(x: Tensor) -> Tensor:
        saved[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        case.operator(**leaves, form="chunk")[0]
    weights = 2 * tokens * tokens * 4
    assert sum(saved.values()) < weights / 2


def test_extreme_logits_stay_finite() -> None:
    for name in ("softmax-attention", "gaussian-attention", "local-linear-attention", "path"):
        case = compiled(name)
        arguments = inputs(case, 20, dtype=torch.float32)
        for n in "qk":
            arguments[n] = 60 * arguments[n]
        found = [run(case, arguments, form) for form in case.forms]
        for result in found:
            assert all(torch.isfinite(x).all() for _, x in result.parts())


@pytest.mark.some(3)
@pytest.mark.parametrize("name", ["swa", "gated-softmax", "path"])
@pytest.mark.parametrize("hybrid", ["gate", "layer", "context"])
def test_hybrids_keep_pairs_of_rows_that_differ(hybrid: str, name: str) -> None:
    import mnemic

    beside = {"segment": 4, "persistent": 2} if hybrid == "context" else {"attention_window": 6}
    spec = {"extends": name, "name": "beside", "block": {"hybrid": hybrid, **beside}}
    layer = mnemic.compile(spec).layer(16, heads=2).double()
    x = torch.randn(2, 21, 16, dtype=torch.float64)
    mask = torch.ones(2, 21, dtype=torch.bool)
    mask[1, 5:8] = False
    _, state = layer(x[:, :12], mask=mask[:, :12], output_state=True)
    y = layer(x[:, 12:], state=state, mask=mask[:, 12:])
    assert error(y[1], layer(x[1:, mask[1]])[0, 9:]) <= 1e-9
    assert error(y[0], layer(x[:1])[0, 12:]) <= 1e-9
