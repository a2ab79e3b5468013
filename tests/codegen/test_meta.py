"""Layers keep to the device of their input.

Tensors on ``meta`` have shapes alone, and an operation on one of them and on a tensor of the CPU
with axes raises: as the same operation would on a GPU, which the machine of these tests lacks.
"""

import pytest
import torch
from packaged import NAMES

from mnemic import pipeline

READS_NUMBERS = {
    "f-divergence", "f-divergence-chi2", "f-divergence-hellinger", "f-divergence-jensen-shannon",
    "kernel-regression", "local-linear-attention", "mesa", "rls", "rls-geometric",
    "titans-mac",
}  # fmt: skip
"""Specs whose chunk form looks at the numbers themselves: whether a search has ended, digits are
lost, or rows stand at different positions. Shapes do not tell."""

DIM = 32


def called(name: str) -> torch.Tensor:
    """Call a layer on meta, forward and backward; return the gradient of its input."""
    layer = pipeline.compile(name).layer(DIM).to("meta")
    x = torch.empty(2, 19, DIM, device="meta", requires_grad=True)
    y, state = layer(x, output_state=True)
    assert y.shape == x.shape
    assert y.is_meta
    assert all(found.is_meta for found in state.values())
    y.sum().backward()
    assert all(p.grad is None or p.grad.is_meta for p in layer.parameters())
    assert x.grad is not None
    return x.grad


@pytest.mark.some(12)
@pytest.mark.parametrize("name", [name for name in NAMES if name not in READS_NUMBERS])
def test_a_layer_makes_no_tensor_on_another_device(name):
    assert called(name).is_meta


@pytest.mark.few
@pytest.mark.parametrize("name", sorted(READS_NUMBERS))
def test_what_reads_numbers_says_so(name):
    with pytest.raises(RuntimeError, match="cannot be called on meta tensors"):
        called(name)


def test_a_mix_of_devices_raises():
    with pytest.raises(RuntimeError, match="expected device meta"):
        torch.empty(3, device="meta") * torch.ones(3)
