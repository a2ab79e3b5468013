"""The residuals of a chunk: rounding where keys repeat and features have no bound, derivatives of
every order, and rows that nothing behind them can touch."""

from typing import Any

import pytest
import torch
from conformance import Case, Sizes, compiled, errors, having, inputs, run, unit
from torch import Tensor

from mnemic.codegen.support.implicit import new_error
from mnemic.codegen.support.residuals import residual

LOSSES = (
    "sqrt(1 + n**2) - 1", "abs(e) - log(1 + abs(e))", "log(1 + exp(e))**2", "log(cosh(e))",
    "abs(e)**1.5",
)  # fmt: skip
"""Implicit steps on these are roots."""

TOKENS = 40
"""A chunk and a bit."""


def implicit(loss: str) -> dict[str, Any]:
    retention = {"decay": "token", "order": "before"}
    optimizer = {"method": "implicit", "rate": "token"}
    return {
        "name": "x", "features": "elu", "bias": {"expr": loss}, "retention": retention,
        "optimizer": optimizer,
    }  # fmt: skip


SIZES = Sizes(batch=1, heads=2, key=16, value=16)


def repeated(case: Case, length: float, tokens: int = TOKENS) -> dict[str, Tensor]:
    """Arguments in float32 of which four keys of a length, near each other, come again and
    again."""
    found = inputs(case, tokens, seed=3, sizes=SIZES)
    generator = torch.Generator().manual_seed(4)
    few = torch.randn(4, SIZES.key, generator=generator, dtype=torch.float64).abs()
    again = length * unit(few)[torch.arange(tokens) % 4]
    found["k"] = again[None, :, None].expand(found["k"].shape).clone()
    return {n: x.float() for n, x in found.items()}


def rounds_as_the_recurrence(case: Case, length: float) -> None:
    """The chunk form in float32 is about as exact as the recurrence in float32."""
    low = repeated(case, length)
    exact = run(case, {n: x.double() for n, x in low.items()}, "recurrent")
    plain = errors(run(case, low, "recurrent"), exact)
    found = errors(run(case, low, "chunk"), exact)
    wrong = {n: (e, plain[n]) for n, e in found.items() if not e <= 10 * plain[n] + 5e-6}
    assert not wrong, wrong


@pytest.mark.some(2)
@pytest.mark.parametrize("loss", LOSSES)
def test_implicit_steps_in_float32_on_keys_that_repeat(loss: str) -> None:
    rounds_as_the_recurrence(compiled(implicit(loss), kernels=False), length=6.0)


@pytest.mark.some(4)
@pytest.mark.parametrize("name", [*having("class residual"), *having("method implicit")])
def test_packaged_rules_in_float32_on_keys_that_repeat(name: str) -> None:
    rule = compiled(name).rule
    tame = rule.problem.spec.optimizer.method == "implicit"
    more: dict[str, Any] = {"extends": name, "name": "x", "features": "elu"}
    if not tame and rule.window == 1:  # rates of several keys are not normalised
        more["optimizer"], tame = {"rate": {"from": "input", "normalized": True}}, True
    rounds_as_the_recurrence(compiled(more, kernels=False), length=6.0 if tame else 1.0)


def test_long_chunks_in_float64() -> None:
    case = compiled(implicit(LOSSES[0]), kernels=False)
    arguments = {n: x.double() for n, x in repeated(case, 6.0, 64).items()}
    found = run(case, arguments, "chunk", chunk_size=64)
    assert max(errors(found, run(case, arguments, "recurrent")).values()) < 1e-10


# -- the system by itself --------------------------------------------------------------------


def cubed(y: Tensor, weight: Tensor) -> Tensor:
    return weight * y**3


def cubed_adjoint(grad: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    return 3 * weight * y**2 * grad


def radial(e: Tensor, weight: Tensor) -> Tensor:
    return weight * e / torch.sqrt(1 + (e * e).sum(-1, keepdim=True))


def radial_adjoint(grad: Tensor, e: Tensor, weight: Tensor) -> Tensor:
    n = torch.sqrt(1 + (e * e).sum(-1, keepdim=True))
    return weight * (grad / n - (e * grad).sum(-1, keepdim=True) * e / n**3)


SIGNALS = {"elementwise": (cubed, cubed_adjoint), "radial": (radial, radial_adjoint)}


def system(rows: int, batch: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """L, base and the weights that both signals read."""
    generator = torch.Generator().manual_seed(2)

    def normal(*shape: int) -> Tensor:
        return torch.randn(batch, rows, *shape, generator=generator, dtype=torch.float64)

    mixing = normal(rows) / (2 + rows)
    return mixing.tril(-1), 0.5 * normal(3), normal(1).abs()


def root(signal: str, *arguments: Tensor) -> Tensor:
    error, adjoint = SIGNALS[signal]
    mixing, *rest = arguments
    return residual(mixing.tril(-1), *rest, error=error, adjoint=adjoint)


@pytest.mark.parametrize("signal", SIGNALS)
@pytest.mark.parametrize("rows", [1, 5, 16, 37])
def test_the_root_solves_its_system(signal: str, rows: int) -> None:
    mixing, base, weight = system(rows)
    y = root(signal, mixing, base, weight)
    torch.testing.assert_close(y, base + mixing @ SIGNALS[signal][0](y, weight))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # by torch itself
@pytest.mark.parametrize("signal", SIGNALS)
def test_derivatives_of_every_order(signal: str) -> None:
    arguments = [x.requires_grad_() for x in system(4, 1)]

    def solved(*given: Tensor) -> Tensor:
        return root(signal, *given)

    assert torch.autograd.gradcheck(solved, arguments, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(solved, arguments)
    (slope,) = torch.autograd.grad(solved(*arguments).square().sum(), arguments[1:2],
                                   create_graph=True)  # fmt: skip
    (curve,) = torch.autograd.grad(slope.square().sum(), arguments[1:2], create_graph=True)
    (third,) = torch.autograd.grad(curve.sum(), arguments[1:2])
    step = torch.zeros_like(third)
    step[0, 0, 0] = 1e-6

    def curved(base: Tensor) -> Tensor:
        base = base.detach().requires_grad_()
        whole = solved(arguments[0], base, arguments[2]).square().sum()
        (first,) = torch.autograd.grad(whole, base, create_graph=True)
        return torch.autograd.grad(first.square().sum(), base)[0].sum()

    found = (curved(arguments[1] + step) - curved(arguments[1] - step)) / 2e-6
    assert abs(float(found - third[0, 0, 0])) < 1e-6 * (1 + abs(float(found)))


def test_batches_and_transforms_of_functions() -> None:
    arguments = system(5, 3)
    whole = root("radial", *arguments)
    each = torch.func.vmap(lambda *x: root("radial", *x))(*arguments)
    torch.testing.assert_close(each, whole)
    slope = torch.func.grad(lambda base: root("radial", arguments[0], base, arguments[2]).sum())
    base = arguments[1].clone().requires_grad_()
    root("radial", arguments[0], base, arguments[2]).sum().backward()
    torch.testing.assert_close(slope(arguments[1]), base.grad)


def test_rows_behind_touch_none_before() -> None:
    """A value that is no number, and what overflows, stay where they are."""
    mixing, base, weight = system(20)
    whole = root("elementwise", mixing, base, weight)
    base[:, 9], base[:, 12] = torch.nan, 1e200
    touched = root("elementwise", mixing, base, weight)
    assert torch.equal(touched[:, :9], whole[:, :9])
    assert not bool(touched[:, 9:].isfinite().any())


@pytest.mark.parametrize("form", ["recurrent", "chunk"])
@pytest.mark.parametrize("spec", ["huber-norm", "lp", LOSSES[0], LOSSES[3]])
def test_no_sequences_at_all(spec: str, form: str) -> None:
    case = compiled(implicit(spec), kernels=False) if spec in LOSSES else compiled(spec)
    found = run(case, {n: x[:0] for n, x in inputs(case, 9).items()}, form)
    assert found.out.shape[0] == 0
    assert all(x.shape[0] == 0 for x in found.gradients.values())


def test_the_gradient_searches_for_all_rows_at_once() -> None:
    """A chunk's error is a root at every row; its gradient knows them all before its first row."""
    searched: list[int] = []

    def error(y: Tensor, c: Tensor) -> Tensor:
        def signal(u: Tensor) -> Tensor:
            searched.append(u.shape[-2])
            return torch.tanh(u)

        return new_error(y, c, error=signal, slope=lambda u: 1 - torch.tanh(u) ** 2, jumps=False)

    def adjoint(d: Tensor, y: Tensor, c: Tensor) -> Tensor:
        slope = 1 - error(y, c) ** 2
        return d * slope / (1 + c * slope)

    rows = 32
    generator = torch.Generator().manual_seed(0)
    key = torch.randn(1, rows, 8, generator=generator)
    base = torch.randn(1, rows, 4, generator=generator).requires_grad_()
    mixing, c = -(key @ key.mT).tril(-1) / 4, key.square().sum(-1, keepdim=True) / 4
    y = residual(mixing, base, c, error=error, adjoint=adjoint)
    assert set(searched) == {1}
    searched.clear()
    y.sum().backward()
    assert set(searched) == {rows}
