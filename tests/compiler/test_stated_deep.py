"""The problem of deep memories as written: against the vectors, and loops done by hand."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from mnemic.compiler.oracle.stated import Unstated, stated, stated_layers
from mnemic.compiler.oracle.stated_network import evaluate, orthogonalised, renormalised
from mnemic.compiler.oracle.stated_steps import Query
from mnemic.compiler.problem import state
from mnemic.dsl.load import load
from mnemic.dsl.spec import Spec

VECTORS = Path(__file__).parents[1] / "data" / "vectors"
DEEP: dict[str, tuple[str, Any]] = {
    "titans": ("titans", {"chunk": 8}),
    "titans-token": ("titans", "token"),
    "yaad": ("yaad", {"chunk": 8}),
    "moneta-token": ("moneta", "token"),
}
"""The vectors of deep memories: their specs, and the anchors that they were made with."""

Tensors = dict[str, Tensor]


def made(**spec: Any) -> Spec:
    return Spec.model_validate({"name": "made", **spec})


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def close(found: Tensor, expected: Tensor, tolerance: float = 1e-11) -> None:
    torch.testing.assert_close(found.detach(), expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("name", DEEP)
def test_vectors(name: str) -> None:
    with np.load(VECTORS / f"{name}.npz") as file:
        data = {n: torch.tensor(file[n]) for n in file.files}
    params = {n.removeprefix("params."): data.pop(n) for n in list(data) if n.startswith("params.")}
    expected, q, k, v = (data.pop(n) for n in "yqkv")
    base, anchor = DEEP[name]
    optimizer = {"anchor": anchor}
    spec = load({"mnemic": 1, "name": "made", "extends": base, "optimizer": optimizer})
    close(stated(state(spec), q, k, v, data, params), expected, 1e-9)


# -- the parts -------------------------------------------------------------------------------


def gelu(x: Tensor) -> Tensor:
    return functional.gelu(x)


def normed(x: Tensor) -> Tensor:
    return (x - x.mean()) / (x.var(correction=0) + 1e-5).sqrt()


def weights(*shapes: tuple[int, int], seed: int = 3) -> dict[str, Tensor]:
    return {f"W{i + 1}": normal(*shape, seed=seed + i) for i, shape in enumerate(shapes)}


def test_a_deep_perceptron() -> None:
    spec = made(memory={"kind": "mlp", "depth": 3, "norm": True})
    w, x, phi = weights((3, 7), (7, 6), (6, 5)), normal(3), normal(5, seed=1)
    hidden = gelu(w["W2"] @ gelu(w["W3"] @ phi))
    close(evaluate(spec, w, Query(phi, x)), x + normed(w["W1"] @ hidden))


def test_a_perceptron_of_one_layer() -> None:
    spec = made(memory={"kind": "mlp", "depth": 1, "residual": False}, optimizer={"every": 2})
    w, phi = weights((3, 5)), normal(5, seed=1)
    close(evaluate(spec, w, Query(phi, phi)), w["W1"] @ phi)


def test_a_gated_perceptron_of_an_own_activation() -> None:
    spec = made(memory={"kind": "glu", "activation": "x*sigmoid(2*x)", "norm": False})
    w, x, phi = weights((3, 6), (6, 5), (6, 5)), normal(3), normal(5, seed=1)
    gate = w["W2"] @ phi
    expected = x + w["W1"] @ (gate * torch.sigmoid(2 * gate) * (w["W3"] @ phi))
    close(evaluate(spec, w, Query(phi, x)), expected)


def test_a_chain_feeds_each_memory_with_the_last() -> None:
    chain = [{"kind": "mlp", "norm": True}, {"kind": "glu", "activation": "silu"}]
    spec = made(memory={"chain": chain, "every": [1, 4]})
    w = weights((3, 4), (4, 3), (3, 6), (6, 3), (6, 3))
    x = normal(3)
    first = x + normed(w["W1"] @ gelu(w["W2"] @ x))
    second = first + w["W3"] @ (functional.silu(w["W4"] @ first) * (w["W5"] @ first))
    close(evaluate(spec, w, Query(x, x)), second)


@pytest.mark.parametrize("shape", [(4, 4), (3, 7), (7, 3), (1, 4)])
def test_newton_schulz_maps_each_singular_value(shape: tuple[int, int]) -> None:
    matrix = normal(*shape)
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    values = values / (torch.linalg.vector_norm(matrix) + 1e-7)
    for _ in range(4):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    close(orthogonalised(matrix, 4), left @ torch.diag(values) @ right)
    assert torch.equal(orthogonalised(0 * matrix, 5), 0 * matrix)


def test_columns_at_their_first_norms() -> None:
    spec = made(retention={"normalize": "columns"})
    now, first = normal(3, 4), normal(3, 4, seed=1)
    now[:, 2] = 0
    found = renormalised(spec, now, first)
    sizes = torch.linalg.vector_norm(first, dim=0)
    sizes[2] = 0
    close(torch.linalg.vector_norm(found, dim=0), sizes)
    close(functional.cosine_similarity(found, now, dim=0)[:2], torch.ones(2).double())


# -- recurrences by hand ---------------------------------------------------------------------

T, D = 9, 3


def arguments(**more: Tensor) -> Tensors:
    """q, k, v of one head of one sequence, and coefficients in their ranges."""
    found = {n: normal(1, T, 1, D, seed=i) for i, n in enumerate("qkv")}
    for i, name in enumerate(("eta", "theta", "log_alpha")):
        x = torch.sigmoid(normal(1, T, 1, seed=10 + i))
        found[name] = x.log() if name == "log_alpha" else x
    return {**found, **more}


def asked(spec: Spec, x: Tensors, params: Mapping[str, Tensor]) -> tuple[Tensor, Tensors]:
    """Outputs and last state of the one head."""
    problem = state(spec)
    wanted = {s.argument for s in problem.scalars if s.argument is not None}
    rest = {n: y for n, y in x.items() if n in wanted}
    out, final = stated_layers(problem, x["q"], x["k"], x["v"], rest, params)
    return out[0, :, 0], {n: y[0, 0] for n, y in final.items()}


def at(x: Tensors, t: int) -> tuple[Tensor, ...]:
    named = (x[n][0, t, 0] for n in ("q", "k", "v", "eta", "theta", "log_alpha"))
    q, k, v, eta, theta, log_alpha = named
    return q, k, v, eta, theta, log_alpha.exp()


@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("momentum", [False, True])
def test_muon_on_a_matrix_that_is_held(momentum: bool, outside: bool) -> None:
    """O every three tokens; decays act together when it does."""
    spec = made(
        memory="linear", bias="l2", retention={"decay": "token"},
        optimizer={
            "method": "muon", "rate": "token", "every": 3, "ns_steps": 3,
            "momentum": "token" if momentum else None,
            "rate_at": "outside" if outside else "inside",
        },
    )  # fmt: skip
    x, first = arguments(), normal(1, D, D, seed=7)
    found, final = asked(spec, x, {"W": first})
    w, s, decay = first[0], torch.zeros(D, D).double(), torch.tensor(1.0).double()
    for t in range(T):
        q, k, v, eta, theta, alpha = at(x, t)
        gradient = torch.outer(w @ k - v, k)
        s = (theta if momentum else 1) * s - (1 if outside else eta) * gradient
        decay = decay * alpha
        if t % 3 == 2:
            w = decay * w + (eta if outside else 1) * orthogonalised(s, 3)
            decay = decay / decay
            s = s if momentum else 0 * s
        close(found[t], w @ q)
    close(final["W"], w)
    close(final["S"], s)


def test_anchors_norms_and_a_held_memory_of_a_chain() -> None:
    """Two linear maps with a tanh between, the outer of two moved every four tokens."""
    spec = made(
        memory={
            "chain": [
                {"kind": "mlp", "activation": "tanh", "residual": False},
                {"kind": "mlp", "depth": 1, "residual": True},
            ],
            "every": [1, 4],
        },
        bias="l2",
        retention={"decay": "token", "normalize": "rows"},
        optimizer={"method": "gd", "rate": "token", "anchor": {"chunk": 2}},
    )
    x = arguments()
    duals = {n: y[None] / 2 for n, y in weights((D, 4), (4, D), (D, D)).items()}
    found, final = asked(spec, x, duals)
    one, two, three = (duals[f"W{i}"][0] for i in (1, 2, 3))
    sizes = [torch.linalg.vector_norm(w, dim=1, keepdim=True) for w in (one, two, three)]
    anchor, gathered, decay = (one, two, three), torch.zeros(D, D).double(), 1.0
    for t in range(T):
        q, k, v, eta, _, alpha = at(x, t)
        a, b, c = anchor
        hidden = torch.tanh(b @ k)
        inner = a @ hidden
        error = c @ inner + inner - v
        into = c.T @ error + error
        gathered = gathered - eta * torch.outer(error, inner)
        decay = decay * alpha
        slope = (a.T @ into) * (1 - hidden**2)
        one = alpha * one - eta * torch.outer(into, hidden)
        two = alpha * two - eta * torch.outer(slope, k)
        if t % 4 == 3:
            three, gathered, decay = decay * three + gathered, 0 * gathered, 1.0
        if t % 2 == 1:
            one, two, three = (
                w / torch.linalg.vector_norm(w, dim=1, keepdim=True) * size
                for w, size in zip((one, two, three), sizes, strict=True)
            )
            anchor = (one, two, three)
        read = one @ torch.tanh(two @ q)
        close(found[t], three @ read + read)
    kept = {"W1": one, "W2": two, "W3": decay * three, "held3": three, "S3": gathered}
    for name, w in kept.items():
        close(final[name], w)


def test_a_window_sees_its_keys_at_the_current_memory() -> None:
    spec = made(
        memory={"kind": "mlp", "activation": "tanh", "residual": False}, bias="l2",
        window=3, weights="window", optimizer={"rate": "token", "momentum": "token",
                                               "method": "momentum", "anchor": {"chunk": 2}},
    )  # fmt: skip
    gamma = torch.sigmoid(normal(1, T, 1, 3, seed=20))
    x = arguments(gamma=gamma)
    duals = {n: y[None] / 2 for n, y in weights((D, 4), (4, D)).items()}
    found, _ = asked(spec, x, duals)
    one, two = duals["W1"][0], duals["W2"][0]
    s_one, s_two, anchor = 0 * one, 0 * two, (one, two)
    for t in range(T):
        q, _, _, eta, theta, _ = at(x, t)
        s_one, s_two = theta * s_one, theta * s_two
        for j in range(3):
            i = t - 2 + j
            if i < 0:
                continue
            k, v = x["k"][0, i, 0], x["v"][0, i, 0]
            a, b = anchor
            hidden = torch.tanh(b @ k)
            error = gamma[0, t, 0, j] * (a @ hidden - v)
            s_one = s_one - eta * torch.outer(error, hidden)
            s_two = s_two - eta * torch.outer((a.T @ error) * (1 - hidden**2), k)
        one, two = one + s_one, two + s_two
        close(found[t], one @ torch.tanh(two @ q))
        if t % 2 == 1:
            anchor = (one, two)


# -- laws ------------------------------------------------------------------------------------

BASE: dict[str, Any] = {
    "memory": {"kind": "mlp", "norm": True}, "bias": {"kind": "huber", "delta": "token"},
    "retention": {"decay": "token"},
    "optimizer": {"method": "momentum", "rate": "token", "momentum": "token"},
}  # fmt: skip


PARAMS = {n: y[None] / 2 for n, y in weights((D, 4), (4, D)).items()}


def test_a_chain_of_one_is_its_memory() -> None:
    chain = {**BASE, "memory": {"chain": [BASE["memory"]], "every": [1]}}
    x = arguments(delta=torch.sigmoid(normal(1, T, 1, seed=30)))
    close(asked(made(**chain), x, PARAMS)[0], asked(made(**BASE), x, PARAMS)[0].detach())


def test_an_anchor_of_one_is_the_last_token() -> None:
    anchored = {**BASE, "optimizer": {**BASE["optimizer"], "anchor": {"chunk": 1}}}
    x = arguments(delta=torch.sigmoid(normal(1, T, 1, seed=30)))
    close(asked(made(**anchored), x, PARAMS)[0], asked(made(**BASE), x, PARAMS)[0].detach())


def test_gradients_from_outside() -> None:
    """Through the inner gradients, against finite differences."""
    spec = made(**{**BASE, "bias": "l2", "memory": {"kind": "mlp", "activation": "tanh"}})
    names = ("q", "k", "v", "eta", "theta", "log_alpha")
    x = {n: y[:, :3] for n, y in arguments().items()}

    def outputs(one: Tensor, two: Tensor, *rest: Tensor) -> Tensor:
        given = dict(zip(names, rest, strict=True))
        out, final = asked(spec, given, {"W1": one, "W2": two})
        return torch.cat([out.flatten(), final["S2"].flatten()])

    leaves = [*PARAMS.values(), *(x[n] for n in names)]
    assert torch.autograd.gradcheck(outputs, [y.clone().requires_grad_() for y in leaves])


def test_what_is_minimised_has_no_gradients() -> None:
    spec = made(**{**BASE, "bias": "l2", "retention": {"view": "ftrl", "global": {"lq": 1.5}}})
    x = {n: y[:, :2] for n, y in arguments().items()}
    asked(spec, x, PARAMS)
    with pytest.raises(Unstated, match="minimised numerically"):
        asked(spec, {**x, "k": x["k"].clone().requires_grad_()}, PARAMS)


def test_missing_parameters() -> None:
    with pytest.raises(ValueError, match="params: missing W2"):
        asked(made(**BASE), arguments(delta=torch.ones(1, T, 1)), {"W1": PARAMS["W1"]})
