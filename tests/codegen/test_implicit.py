"""Errors at a new prediction: the root finder, and forms of losses that nobody listed."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from conformance import agree, compiled, error, gradients, inputs, interpreted, run, weighed
from torch import Tensor

from mnemic.codegen.module import source
from mnemic.codegen.support.implicit import new_error

Function = Callable[..., Tensor]

ERRORS: dict[str, tuple[Function, Function]] = {
    "tanh": (lambda u: torch.tanh(u) + u**3 / 2, lambda u: 1 - torch.tanh(u) ** 2 + 1.5 * u**2),
    "exp": (lambda u: torch.exp(u) - 1, torch.exp),
    "root": (lambda u: u / torch.sqrt(1 + u**2), lambda u: (1 + u**2) ** -1.5),
}
JUMPS: dict[str, tuple[Function, Function]] = {
    "sign": (torch.sign, torch.zeros_like),
    "elastic": (lambda u: torch.sign(u) + u, torch.ones_like),
}


def spec(loss: str, **more: Any) -> dict[str, Any]:
    optimizer = {"method": "implicit", "rate": "token", **more.pop("optimizer", {})}
    return {"name": "x", "bias": {"expr": loss}, "optimizer": optimizer, **more}


def solved(name: str, y: Tensor, c: Tensor) -> Tensor:
    table = {**ERRORS, **JUMPS}
    e, slope = table[name]
    return new_error(y, c, error=e, slope=slope, jumps=name in JUMPS)


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_root_solves_its_equation_at_every_size(name: str, dtype: torch.dtype) -> None:
    far = 10 ** torch.linspace(-6, 2.8, 23, dtype=dtype)
    y = torch.cat([-far, torch.zeros(1, dtype=dtype), far])[:, None]
    c = torch.cat([torch.zeros(1, dtype=dtype), 10 ** torch.linspace(-8, 6, 15, dtype=dtype)])
    s = solved(name, y, c)
    u = (y - c * s).double()
    left = ERRORS[name][0](u) - s.double()
    off = (left / (1 + c.double() * ERRORS[name][1](u))).abs() / (1 + s.abs().double())
    kept = (y < 80) | (c > 0)  # exp(ŷ) itself, with c = 0, is no number of float32
    assert float(off[kept].max()) < 50 * torch.finfo(dtype).eps


@pytest.mark.parametrize("name", JUMPS)
def test_jumps_are_the_soft_thresholds(name: str) -> None:
    y = torch.linspace(-3, 3, 400, dtype=torch.float64, requires_grad=True)
    c = torch.full_like(y, 0.8).detach().requires_grad_()
    expected = (y / c).clamp(-1, 1)
    if name == "elastic":  # u = soft(ŷ, c)/(1 + c)
        soft = torch.sign(y) * (y.abs() - c).clamp_min(0) / (1 + c)
        expected = (y - soft) / c
    found = solved(name, y, c)
    assert error(found, expected) < 1e-14
    mine, theirs = (torch.autograd.grad(weighed(z), (y, c)) for z in (found, expected))
    assert all(error(a, b) < 1e-13 for a, b in zip(mine, theirs, strict=True))


@pytest.mark.parametrize("name", ERRORS)
def test_both_derivatives_of_the_root(name: str) -> None:
    generator = torch.Generator().manual_seed(3)
    y = torch.randn(6, generator=generator, dtype=torch.float64).requires_grad_()
    c = torch.rand(6, generator=generator, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: solved(name, a, b), (y, c))
    assert torch.autograd.gradgradcheck(lambda a, b: solved(name, a, b), (y, c))


LOSSES = [
    "log(cosh(e)) + e**4/8",
    "sqrt(1+e**2) + e**2/10",
    "exp(e)-e-1",
    "softplus(y) - v*y",
    "abs(e)",
    "max(7*e/10, -3*e/10) + e**2/5",
    "n**3",
    "n + n**2/2",
    "sqrt(1+n**2)",
]


PENALTY = {"retention": {"global": {"l2": "token"}}}


@pytest.mark.some(3)
@pytest.mark.parametrize(
    ("loss", "more"),
    [*((loss, {}) for loss in LOSSES), ("log(cosh(e))", PENALTY), ("softplus(y) - v*y", PENALTY),
     ("e**2/2", PENALTY), ("log(cosh(e))", {"retention": {"local": {"bregman": "3*w**2"}}})],
)  # fmt: skip
def test_forms_and_interpreter_agree(loss: str, more: dict[str, Any]) -> None:
    case = compiled(spec(loss, **more))
    arguments = inputs(case, 11)
    first = run(case, arguments, "recurrent")
    if "chunk" in case.forms:
        agree(run(case, arguments, "chunk", chunk_size=4), first)
        agree(run(case, arguments, (("chunk", 6), ("recurrent", 5))), first)
    leaves = {n: x.clone().requires_grad_() for n, x in arguments.items()}
    out, _ = interpreted(case, leaves)
    assert error(first.out, out) <= 1e-9
    mine = {n: x.clone().requires_grad_() for n, x in arguments.items()}
    found = gradients(weighed(case.operator(**mine, form="recurrent")[0]), mine)
    expected = gradients(weighed(out), leaves)
    assert all(error(found[n], expected[n]) <= 1e-8 for n in expected)


def loop(x: dict[str, Tensor]) -> Tensor:
    """The step on exp(e) − e − 1 with its root by Lambert-free Newton steps, written by hand."""
    memory, outs = torch.zeros(2, 2, 3, 4, dtype=torch.float64), []
    for t in range(x["q"].shape[1]):
        q, k, v, delta = (x[n][:, t] for n in ("q", "k", "v", "delta"))
        y = torch.einsum("bhvk,bhk->bhv", memory, k)
        c = (delta * (k * k).sum(-1))[..., None]
        u = torch.minimum(y - v, torch.zeros_like(y))  # Newton from the left rises monotonically
        for _ in range(60):
            u = u - (u + c * (torch.exp(u) - 1) - (y - v)) / (1 + c * torch.exp(u))
        memory = memory - delta[..., None, None] * (torch.exp(u) - 1)[..., None] * k[..., None, :]
        outs.append(torch.einsum("bhvk,bhk->bhv", memory, q))
    return torch.stack(outs, 1)


def test_an_asymmetric_loss_is_a_loop_of_its_own() -> None:
    """LINEX, exp(e) − e − 1, against Newton's method unrolled and differentiated by autograd."""
    case = compiled(spec("exp(e)-e-1"))
    arguments = {n: x.requires_grad_() for n, x in inputs(case, 9).items()}
    expected = loop(arguments)
    theirs = torch.autograd.grad(weighed(expected), list(arguments.values()))
    for form in ("recurrent", "chunk"):
        out, _ = case.operator(**arguments, form=form)
        assert error(out, expected) < 1e-10
        mine = torch.autograd.grad(weighed(out), list(arguments.values()))
        assert all(error(a, b) < 1e-9 for a, b in zip(mine, theirs, strict=True))


def test_padding_and_closed_gates_write_nothing() -> None:
    """κ = 0 and δ = 0 are limits without 0/0: the error is finite, and so are its gradients."""
    case = compiled(spec("log(cosh(e)) + e**4/8"))
    arguments = inputs(case, 7)
    arguments["delta"][:, 3] = 0
    arguments["k"][:, 5] = 0
    for form in ("recurrent", "chunk"):
        found = run(case, arguments, form)
        assert all(torch.isfinite(x).all() for _, x in found.parts())
    mask = torch.ones(2, 7, dtype=torch.bool)
    mask[:, 3] = mask[:, 5] = False
    masked = run(case, arguments, "recurrent", mask=mask)
    assert error(run(case, arguments, "recurrent").states["W"], masked.states["W"]) < 1e-12


@pytest.mark.some(2)
@pytest.mark.parametrize("rate", [1e-9, 1e3, 1e9])
def test_no_rate_is_too_large_or_small(rate: float) -> None:
    """An implicit step never overshoots: the residual shrinks towards zero and keeps its sign."""
    case = compiled(spec("e**4/4 + log(cosh(e))", optimizer={"rate": rate}))
    arguments = inputs(case, 40)
    arguments["v"] = 30 * arguments["v"]
    first = run(case, arguments, "recurrent")
    assert all(torch.isfinite(x).all() for _, x in first.parts())
    agree(run(case, arguments, "chunk", chunk_size=8), first, 1e-8)


def test_numbers_of_a_piecewise_error_keep_their_dtype() -> None:
    """0.7 and 0.3 in double precision, not those of torch's default."""
    case = compiled(
        {"name": "x", "bias": {"expr": "max(7*e/10,-3*e/10)"}, "optimizer": {"rate": 1}}
    )
    arguments = inputs(case, 1)
    out, state = case.operator(**arguments, output_final_state=True)
    zero = torch.zeros_like(arguments["v"])
    e = torch.where(arguments["v"] < 0, zero + 0.7, zero - 0.3)
    expected = -e[:, 0, :, :, None] * arguments["k"][:, 0, :, None, :]
    assert error(state["W"], expected) < 1e-15
    assert out.dtype == torch.float64


@pytest.mark.parametrize("loss", ["log(cosh(e)) + e**4/8", "n + n**2/2", "abs(e)"])
def test_a_root_stands_in_the_kernel(loss: str) -> None:
    """A kernel solves for the error with the loss's own expression printed in."""
    forms = compiled(spec(loss), kernels=True).operator.forms
    assert forms == ("recurrent", "chunk", "triton")
    found = source(compiled(spec(loss)).rule, version="0", spec_hash="0", text="", numbers={})
    assert "def new_error(" in found.kernels


@pytest.mark.parametrize("default", [torch.float64, torch.float16])
@pytest.mark.parametrize("loss", ["abs(e)", "max(abs(e) - 1, 0)"])
def test_gradients_do_not_depend_on_the_default_dtype(loss: str, default: torch.dtype) -> None:
    """The slope of these errors is a number, and beside a jump another one."""
    case = compiled(spec(loss))
    given = {n: x.requires_grad_() for n, x in inputs(case, dtype=torch.float32).items()}

    def slopes() -> dict[str, Tensor]:
        return gradients(case.operator(**given, form="chunk")[0].sum(), given)

    wanted, before = slopes(), torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        found = slopes()
    finally:
        torch.set_default_dtype(before)
    assert all(torch.equal(found[name], wanted[name]) for name in given)


def test_cases_of_numbers_are_no_tensors_in_a_kernel() -> None:
    """``tl.where`` of two numbers takes no dtype from a tensor, as PyTorch's does."""
    loss = {"name": "x", "bias": {"expr": "max(7*e/10,-3*e/10)"}, "optimizer": {"rate": 1}}
    found = source(compiled(loss).rule, version="0", spec_hash="0", text="", numbers={})
    assert found.kernels
    assert ".to(e)" not in found.kernels
    assert "torch.where" not in found.kernels
    assert "tl.where" in found.kernels
