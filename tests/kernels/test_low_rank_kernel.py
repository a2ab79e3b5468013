"""The kernel of a low-rank matrix beside a diagonal one, in Triton's interpreter."""

from typing import Any

import pytest

ANCHOR = {"anchor": {"chunk": 4}}


def differences(told: dict[str, Any]) -> dict[str, float]:
    """By how much the kernel differs from the recurrence, gradients too, from a state."""
    from conformance import Sizes, errors, fused, inputs, run, start

    case = fused(told)
    x = inputs(case, 7, sizes=Sizes(1, 7, 1, 4, 4))
    state = start(case, x)
    return errors(*(run(case, x, form, state=state) for form in ("triton", "recurrent")))


@pytest.mark.parametrize("optimizer", [{"rate": "token"}, {"rate": "token", **ANCHOR}])
def test_the_kernel(interpreter: Any, optimizer: dict[str, Any]) -> None:
    """By token, and by chunks at an anchor."""
    memory = {"kind": "low-rank", "rank": 0.5}
    told = {"mnemic": 1, "name": "low-rank", "bias": "l2", "memory": memory,
            "retention": {"decay": "token"}, "optimizer": optimizer}  # fmt: skip
    found = interpreter(differences, told=told)
    assert {"out", "gradient of k", "state W3"} <= {*found}
    assert max(found.values()) <= 1e-8, found
