"""Gradients of fused kernels are not differentiated again: asked for, that is told, never zero."""

import pytest
from classes import KINDS, representative

from mnemic import pipeline


def told(folder: str) -> list[str]:
    from pathlib import Path

    import torch

    from mnemic.codegen.package import load
    from mnemic.codegen.support.sizes import eval_size

    rule = load(Path(folder)).rule
    torch.manual_seed(0)
    sizes = {"k": 16, "D": eval_size(rule.signature.features, 16), "v": 16, "K": 16}

    def given(*lead: int, axes: str) -> torch.Tensor:
        return torch.rand(*lead, *(sizes[a] for a in axes), dtype=torch.float64)

    arguments = {n: given(1, 3, 1, axes="k") for n in ("q", "k", "v", *rule.signature.keys)}
    arguments |= {
        c.name: (-0.1 if c.high == 0 else 0.1) * given(1, 3, 1, axes=c.axes)
        for c in rule.signature.coefficients
    }
    params = {p.name: given(1, axes="vk") for p in rule.signature.params}
    leaves = {n: x.requires_grad_() for n, x in arguments.items()}
    out, _ = rule(**leaves, form="triton", **({"params": params} if params else {}))
    (slope,) = torch.autograd.grad(out.sum(), leaves["v"], create_graph=True)
    try:
        torch.autograd.grad(slope.square().sum(), leaves["q"])
    except NotImplementedError as error:
        return [str(error)]
    return []


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_derivative_of_each_class_is_refused(interpreter, kind: str) -> None:
    folder = pipeline.compile(representative(kind)).folder
    (text,) = interpreter(told, folder=str(folder))
    assert 'form="recurrent"' in text
