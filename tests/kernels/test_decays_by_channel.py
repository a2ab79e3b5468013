"""Scores and states under a decay by channel in a kernel, against the recurrence: a chunk halved
again and again, where some rows forget next to everything and the rest next to nothing.

Nothing is taken away from a sum of logarithms, so that a row's −10⁴ costs its neighbours no digit.
"""

import pytest

from mnemic import pipeline


def differences(strongest: float, tokens: int, chunk: int) -> list[float]:
    """How far output, state and every gradient are from the recurrence's, in gla's chunks."""
    import torch

    torch.manual_seed(0)
    rule = pipeline.compile("gla").operator
    shape = (1, tokens, 2, 8)
    given = {n: torch.randn(shape, dtype=torch.float64) for n in ("q", "k", "v")}
    given["log_alpha"] = -1e-3 * torch.rand(shape, dtype=torch.float64)
    given["log_alpha"][:, ::5] = strongest
    found = []
    for form in ("recurrent", "triton"):
        leaves = {name: x.clone().requires_grad_() for name, x in given.items()}
        y, state = rule(**leaves, form=form, chunk_size=chunk, output_final_state=True)
        ends = [y, *state.values()]
        loss = sum(x.cos().sum() for x in ends)
        gradients = torch.autograd.grad(loss, list(leaves.values()))
        found.append((*(x.detach() for x in ends), *gradients))
    return [float((a - b).abs().max()) for a, b in zip(*found, strict=True)]


@pytest.mark.few
@pytest.mark.parametrize("strongest", [-1.0, -50.0, -1e4])
@pytest.mark.parametrize(("tokens", "chunk"), [(40, 64), (64, 64), (52, 16)])
def test_strong_decays_leave_every_digit(
    interpreter, strongest: float, tokens: int, chunk: int
) -> None:
    found = interpreter(differences, strongest=strongest, tokens=tokens, chunk=chunk)
    assert max(found) <= 1e-12
