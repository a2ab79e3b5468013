"""Newton–Schulz on tiles: its gradient, that it compiles on either side, and what it holds."""

import re
from ast import literal_eval
from types import SimpleNamespace
from typing import Any

import pytest

from mnemic import pipeline
from mnemic.codegen import module
from mnemic.codegen.support.configuration import Configuration, entries

SHAPES = [(16, 32), (32, 16), (16, 16)]


def launch(rows: int, columns: int) -> tuple[Any, ...]:
    """A gradient, a matrix and the gradient before Newton–Schulz, from the tile function."""
    import samples
    import torch

    torch.manual_seed(0)
    d, matrix = (torch.randn(rows, columns, dtype=torch.float64) for _ in range(2))
    found = torch.full_like(d, torch.nan)
    samples.schulz_kernel[(1,)](d, matrix, found, A=rows, B=columns, num_warps=4)
    return d, matrix, found


def wrong(rows: int, columns: int) -> float:
    """How far it is from autograd of PyTorch's function of the transposed matrix, [V, K]."""
    import torch

    from mnemic.codegen.support import ops

    d, matrix, found = launch(rows, columns)
    x = matrix.mT.clone().requires_grad_()
    (expected,) = torch.autograd.grad(ops.newton_schulz(x, steps=5), x, d.mT)
    return float((found - expected.mT).abs().max() / expected.abs().max())


def compiled(rows: int, columns: int) -> list[str]:
    from mnemic.kernels.limits import target
    from mnemic.kernels.offline import compiling

    with compiling(target("sm_90")) as log:
        launch(rows, columns)
    return [kernel.name for kernel in log.kernels]


@pytest.mark.parametrize("shape", SHAPES)
def test_its_gradient_is_autograds(interpreter, shape: tuple[int, int]) -> None:
    assert interpreter(wrong, rows=shape[0], columns=shape[1]) <= 1e-12


@pytest.mark.parametrize("shape", SHAPES[:2])
def test_its_gradient_compiles_from_either_side(compiler, shape: tuple[int, int]) -> None:
    """Triton wants the same shapes of both branches of a condition that is no constant."""
    assert compiler(compiled, rows=shape[0], columns=shape[1]) == ["schulz_kernel"]


def test_what_it_holds_is_counted() -> None:
    rule = pipeline.derive("atlas")
    text = module.fused_kernels(rule, module.plans(rule), {}).text
    (found,) = re.findall(r"alive=(\(.*?\n    \)),", text[text.index("TOKEN = Kernel(") :], re.S)
    form, gradient = ([dict(moment) for moment in each] for each in literal_eval(found))
    assert any(moment.get(("K2|K3",) * 2) == 2 for moment in form)
    assert any(moment.get(("K2|K3",) * 2) == 3 for moment in gradient)


def test_the_lesser_side_is_that_of_the_sizes() -> None:
    tiles = ((("K", "V"), 1), (("K|V", "K|V"), 2))
    kernel = SimpleNamespace(
        blocked=(),
        along=(),
        alive=((tiles,), (tiles,)),
        split="",
        chunked=False,
        fits=lambda rows: rows,
    )
    cut = Configuration(64, 64, 8)
    for sizes in ({"K": 64, "V": 256}, {"K": 256, "V": 64}):
        assert entries(kernel, sizes, cut, gradient=False) == (64 * 256 + 2 * 64 * 64) // 256
