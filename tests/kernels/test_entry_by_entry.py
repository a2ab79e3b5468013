"""Kernels of optimizers that act entry by entry, in Triton's interpreter."""

from typing import Any

import pytest

from mnemic.dsl.methods import ELEMENTWISE

COEFFICIENTS = {"theta": "momentum", "beta2": "beta2"}
MLP = {"memory": {"kind": "mlp", "residual": False, "activation": "tanh"}}
ANCHOR = {"anchor": {"chunk": 4}}


def spec(method: str, anchor: dict[str, Any], **told: Any) -> dict[str, Any]:
    own = {COEFFICIENTS[name]: "token" for name in ELEMENTWISE[method].coefficients}
    optimizer = {"method": method, "rate": "token", **own, **anchor}
    return {"mnemic": 1, "name": "by-entry", "bias": "l2", "optimizer": optimizer, **told}


def differences(told: dict[str, Any]) -> dict[str, float]:
    """By how much the kernel differs from the recurrence, gradients too, from a state."""
    from conformance import Sizes, errors, fused, inputs, run, start

    case = fused(told)
    x = inputs(case, 7, sizes=Sizes(1, 7, 1, 4, 4))
    state = start(case, x)
    return errors(*(run(case, x, form, state=state) for form in ("triton", "recurrent")))


@pytest.mark.some(3)
@pytest.mark.parametrize("method", ELEMENTWISE)
@pytest.mark.parametrize("memory", ["a matrix", "layers at an anchor"])
def test_the_kernel_of_tokens(interpreter: Any, method: str, memory: str) -> None:
    told = spec(method, {}) if memory == "a matrix" else spec(method, ANCHOR, **MLP)
    found = interpreter(differences, told=told)
    of = ("eta", "k", *ELEMENTWISE[method].coefficients)
    assert {"out", *(f"gradient of {name}" for name in of)} <= {*found}
    assert max(found.values()) <= 1e-8, found
