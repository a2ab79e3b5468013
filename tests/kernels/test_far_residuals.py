"""Kernels of losses by exponentials, at residuals whose exponentials float32 does not have."""

import pytest


def differences(loss: str, folder: str) -> dict[str, float]:
    """How far a kernel in float32 is from the recurrence in float64, by name; gradients too."""
    import torch
    from conformance import Sizes, fused, inputs

    bias = {"bias": {"expr": loss}, "optimizer": {"rate": 0.01}}
    case = fused({"mnemic": 1, "name": "far", **bias}, f"{folder}/far")
    single = inputs(case, 11, sizes=Sizes(1, 11, 1, 5, 6), dtype=torch.float32)
    single["v"] = 3e2 * single["v"]
    found = []
    for form, dtype in (("triton", torch.float32), ("recurrent", torch.float64)):
        own = {n: x.to(dtype).requires_grad_() for n, x in single.items()}
        y, states = case.generated(**own, form=form, output_final_state=True)
        slopes = torch.autograd.grad(y.sum() + states["W"].sum(), [*own.values()])
        found.append([y, states["W"], *slopes])
    names = ("y", "W", *(f"gradient of {n}" for n in single))
    return {n: float((one - two).abs().max() / (1 + two.abs().max()))
            for n, one, two in zip(names, *found, strict=True)}  # fmt: skip


@pytest.mark.parametrize("loss", ["log(1 + exp(e) + exp(-e))", "e**2/(1 + exp(-e))"])
def test_a_kernel_is_the_recurrence_where_exponentials_overflow(
    interpreter, tmp_path, loss: str
) -> None:
    found = interpreter(differences, loss=loss, folder=str(tmp_path))
    assert {n: x for n, x in found.items() if not x <= 1e-4} == {}
