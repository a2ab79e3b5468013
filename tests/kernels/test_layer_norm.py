"""A layer norm of the memory's rows in kernels that hold it whole, against the recurrence."""

from typing import Any

import torch
from conformance import Sizes, fused, inputs, run, start

SPEC: dict[str, Any] = {
    "mnemic": 1, "name": "rows-of-a-layer-norm", "bias": "l2",
    "memory": {"kind": "mlp", "norm": False},
    "retention": {"decay": "token", "normalize": "layer-norm"},
    "optimizer": {"rate": "token", "anchor": {"chunk": 4}},
}  # fmt: skip


def apart() -> dict[str, float]:
    """What differs by name, with all gradients, at sizes that are no powers of two."""
    case = fused(SPEC)
    given = inputs(case, 14, sizes=Sizes(1, 14, 1, 5, 5))
    state = start(case, given)
    expected = run(case, given, "recurrent", state=state)
    parts = dict(run(case, given, "triton", state=state).parts())
    return {
        name: float((parts[name] - x).abs().max() / (1 + x.abs().max()))
        for name, x in expected.parts()
        if isinstance(x, torch.Tensor) and x.numel()
    }


def test_it_is_the_recurrence(interpreter: Any) -> None:
    found = interpreter(apart)
    assert any("W2" in name for name in found)
    assert {name: error for name, error in found.items() if not error <= 1e-11} == {}
