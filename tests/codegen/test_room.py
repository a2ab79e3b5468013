"""Features in many dimensions: forms run where the states fit, and what cannot fit is refused."""

from typing import Any

import pytest
import torch
from conformance import Sizes, agree, compiled, inputs, run
from torch.utils._python_dispatch import TorchDispatchMode

CUBES: dict[str, Any] = {
    "name": "cubes", "features": {"kind": "polynomial", "degree": 3, "mode": "power"},
    "memory": {"kind": "mlp", "depth": 1, "norm": False, "residual": False},
    "optimizer": {"method": "implicit", "rate": "token"},
    "readout": {"levels": "token", "max_levels": 10},
}  # fmt: skip


def test_levels_of_many_features_run() -> None:
    case = compiled(CUBES, kernels=False)
    arguments = inputs(case, 20, sizes=Sizes(1, 20, 1, 12, 12))
    agree(run(case, arguments, "chunk", chunk_size=8), run(case, arguments, "recurrent"))


@pytest.mark.parametrize("form", ["recurrent", "chunk", "auto"])
def test_states_that_no_memory_holds_are_refused_before_anything_is_computed(form: str) -> None:
    case = compiled(CUBES, kernels=False)
    q = torch.zeros(1, 20, 1, 2048, requires_grad=True)
    gates = {"delta": torch.ones(1, 20, 1), "levels": torch.ones(1, 20, 1, 10)}
    with pytest.raises(ValueError, match=r"cubes: states take [\d,.]+ GB.*the device has"):
        case.operator(q, q, q, form=form, **gates)


def test_the_gradient_token_by_token_is_refused_where_states_of_all_tokens_do_not_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = compiled(CUBES, kernels=False)
    arguments = inputs(case, 20, sizes=Sizes(1, 20, 1, 6, 6))
    state = 5 * 6 * 6**3 * 8
    room = __import__(f"{type(case.generated).__module__.rpartition('.')[0]}.room", fromlist=["x"])
    monkeypatch.setattr(room, "memory", lambda _: 19 * state)
    case.operator(**arguments, form="recurrent")
    leaves = {n: x.requires_grad_() for n, x in arguments.items()}
    with pytest.raises(ValueError, match=r"each of 20 tokens.*take form='chunk'"):
        case.operator(**leaves, form="recurrent")
    case.operator(**leaves, form="chunk")


class Largest(TorchDispatchMode):
    """Remembers the numbers of the largest tensor that anything gives."""

    found = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, list | tuple) else [out]:
            self.found = max(self.found, x.numel() if isinstance(x, torch.Tensor) else 0)
        return out


@pytest.mark.parametrize("form", ["recurrent", "chunk"])
def test_levels_that_erase_hold_no_more_than_their_states_and_pairs(form: str) -> None:
    """Neither a matrix of features by features, nor a memory for each token at once."""
    case = compiled({**CUBES, "bias": "l2"}, kernels=False)
    arguments = inputs(case, 20, sizes=Sizes(1, 20, 1, 8, 8))
    with Largest() as largest:
        case.operator(**arguments, form=form)
    assert largest.found <= CUBES["readout"]["max_levels"] * 8 * 8**3
