"""Kernels compiled without a device: what is read back, and what does not fit."""

from contextlib import nullcontext
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest
import torch
from tiers import first_only

from mnemic import pipeline
from mnemic.codegen.support import starting, versions
from mnemic.codegen.support.starting import WITHOUT_GROUPS
from mnemic.errors import CheckFailed, UsageError
from mnemic.kernels.counting import counted, size
from mnemic.kernels.limits import TARGETS, target
from mnemic.kernels.offline import compiling


def launched(name: str, width: int, warps: int) -> dict:
    import samples

    with compiling(target(name)) as log:
        q = torch.randn(2, 256, width, dtype=torch.bfloat16, requires_grad=True)
        samples.linear(q, q, q, torch.empty_like(q), warps=warps)
        samples.linear(q, q, q, torch.empty_like(q), warps=warps)
    (kernel,) = log.kernels
    launch = log.launches[0]
    return {
        "kernel": {**asdict(kernel), "troubles": kernel.troubles, "blocks": kernel.blocks},
        "launches": len(log.launches),
        "grid": launch.grid,
        "bytes": {x.name: x.bytes for x in launch.tensors},
    }


def there_and_back() -> dict:
    import samples

    found = {}
    q, k, v = (torch.randn(2, 128, 64, dtype=torch.bfloat16, requires_grad=True) for _ in "qkv")
    for name in ("sm_80", "sm_90"):
        with compiling(target(name)) as log:
            out = samples.Linear.apply(q, k, v)
            torch.autograd.grad(out, (v,), torch.ones_like(out))
        forward = counted(log.launches[:1], (q, k, v), (out,))
        tensor = set(log.kernels[0].resources.tensor)
        found[name] = {"launches": len(log.launches), "tensor": sorted(tensor),
                       "excess": forward.excess, "moved": forward.moved}  # fmt: skip
    return found


def turned(on_the_left: bool, warps: int) -> int:
    import samples

    with compiling(target("sm_90")) as log:
        x = torch.randn(64, 64, dtype=torch.bfloat16)
        samples.turned_kernel[(1,)](x, torch.empty(64, 64), on_the_left, num_warps=warps)
    (kernel,) = log.kernels
    return kernel.transposed


def traced() -> dict:
    import samples

    from mnemic.kernels.tracing import tracing

    q, k, v = (torch.randn(2, 130, 32) for _ in "qkv")
    with tracing() as found:
        samples.linear(q, k, v, torch.empty_like(v))
    return {"loaded": found.loaded, "stored": found.stored, "products": found.products}


def untraced() -> None:
    from mnemic.kernels.tracing import tracing

    with tracing():
        pass


def interpreted() -> None:
    with compiling(target("sm_90")):
        pass


def test_what_a_kernel_takes(compiler) -> None:
    found = compiler(launched, name="sm_90", width=64, warps=4)
    kernel, taken = found["kernel"], found["kernel"]["resources"]
    assert (kernel["name"], kernel["constants"]) == ("linear_kernel", {"C": 64, "K": 64, "V": 64})
    assert (kernel["num_warps"], kernel["num_stages"]) == (4, 2)
    assert taken["tensor"]["HGMMA"] >= 12
    assert taken["stack"] == taken["local_loads"] == taken["spill_stores"] == 0
    assert 64 <= taken["registers"] <= 255
    assert 0 < taken["shared"] < TARGETS["sm_90"].shared
    assert kernel["troubles"] == []
    assert kernel["blocks"] >= 1
    assert (found["launches"], found["grid"]) == (2, [2])
    assert set(found["bytes"]) == {"q", "k", "v", "o"}
    assert set(found["bytes"].values()) == {2 * 256 * 64 * 2}


def test_spills_are_told(compiler) -> None:
    kernel = compiler(launched, name="sm_80", width=128, warps=4)["kernel"]
    taken = kernel["resources"]
    assert taken["spill_stores"] > 0
    assert taken["local_loads"] > 0
    total = taken["spill_stores"] + taken["spill_loads"]
    assert kernel["troubles"] == [f"spills {total} bytes"]


def test_both_targets_and_a_backward_pass_in_one_process(compiler) -> None:
    found = compiler(there_and_back)
    assert found["sm_80"]["tensor"] == ["HMMA"]
    assert found["sm_90"]["tensor"] == ["HGMMA"]
    for one in found.values():
        assert one["launches"] == 2
        assert one["moved"] == 4 * 2 * 128 * 64 * 2
        assert one["excess"] == 1.0


def test_shared_memory_that_no_block_can_have(compiler) -> None:
    """Triton does not check it when it compiles."""
    from mnemic.kernels.binary import Resources
    from mnemic.kernels.offline import Kernel

    small = Resources(128, 0, 0, 0, 200_000, {}, 0, 0, 10)
    kernel = Kernel("k", {}, 8, 2, target("sm_90"), small, 0.1)
    assert kernel.troubles == ()
    told = replace(kernel, target=target("sm_80")).troubles
    assert told == ("shared memory 200000 of 166912 bytes",)
    wide = replace(kernel, num_warps=32).troubles
    assert wide == ("registers 131072 of 65536",)


def test_an_accumulator_transposed_on_the_left(compiler) -> None:
    """Wrong for some versions where a warp group multiplies it; two warps are no group."""
    assert compiler(turned, on_the_left=True, warps=4) == 1
    assert compiler(turned, on_the_left=False, warps=4) == 0
    assert compiler(turned, on_the_left=True, warps=WITHOUT_GROUPS) == 0


class Function:
    """A kernel that notes how it is launched, compiled to some intermediate code."""

    __name__ = "trial"

    def __init__(self, ttgir: str) -> None:
        self.compiled = SimpleNamespace(hash=ttgir, asm={"ttgir": ttgir})
        self.launches: list[dict] = []
        self.asked = 0

    def warmup(self, *arguments, grid, **options) -> SimpleNamespace:
        self.asked += 1
        return self.compiled

    def __getitem__(self, grid):
        return lambda *arguments, **options: self.launches.append(options)


TURNED = """
%a = ttng.warp_group_dot %x, %y, %zero : tensor
%b = tt.trans %a {order = array<i32: 1, 0>} : tensor
%c = ttng.warp_group_dot %b, %y, %zero : tensor
"""


@pytest.mark.parametrize(("faulty", "ttgir", "warps"), [
    (True, TURNED, 2), (False, TURNED, 8), (True, TURNED.replace("tt.trans", "tt.load"), 8),
])  # fmt: skip
def test_a_launch_keeps_clear_of_the_fault(
    monkeypatch, faulty: bool, ttgir: str, warps: int
) -> None:
    monkeypatch.setattr(versions, "faulty", lambda device: faulty)
    versions.announced.cache_clear()
    function = Function(ttgir)
    expected = pytest.warns(RuntimeWarning, match="two warps") if warps == 2 else nullcontext()
    with expected:
        starting.begin(function, (1,), [torch.zeros(1)], {"num_warps": 8, "num_stages": 1})
    assert function.launches == [{"num_warps": warps, "num_stages": 1}]


def test_what_a_kernel_meets_is_asked_once_for_launches_alike(monkeypatch) -> None:
    """A launch whose kernel Triton would compile anew is another one."""
    monkeypatch.setattr(versions, "faulty", lambda device: True)
    function, options = Function(TURNED.replace("tt.trans", "tt.load")), {"num_warps": 4}
    x = torch.zeros(64)
    alike = ([x, 32, None], [torch.ones(64), 48, None])
    others = ([x[1:], 32, None], [x.double(), 32, None], [x, 1, None], [x, 3, None],
              [x, 2**31, None], [x, 32, x])  # fmt: skip
    for count, given in enumerate((alike[0], *others), 1):
        starting.begin(function, (1,), list(given), options)
        assert function.asked == count
    starting.begin(function, (1,), list(alike[1]), options)
    assert function.asked == count
    starting.begin(function, (1,), list(alike[1]), {"num_warps": 8})
    assert function.asked == count + 1
    assert len(function.launches) == count + 2


def test_what_kernels_ask_for(interpreter) -> None:
    """Three chunks of 64 rows for each of two memories; rows beyond the end are not asked for."""
    found = interpreter(traced)
    assert found["loaded"] == 3 * 2 * 130 * 32 * 4
    assert found["stored"] == 2 * 130 * 32 * 4
    scores, states = 64 * 64 * 32, 64 * 32 * 32
    assert found["products"] == 2 * 3 * 2 * (2 * scores + 2 * states)


def test_nothing_to_trace_where_triton_compiles(compiler) -> None:
    with pytest.raises(CheckFailed, match="counted where Triton interprets"):
        compiler(untraced)


def test_nothing_to_compile_where_triton_interprets(interpreter) -> None:
    with pytest.raises(CheckFailed, match="Triton interprets here"):
        interpreter(interpreted)


def test_expanded_tensors_count_once() -> None:
    x = torch.zeros(1, 5, dtype=torch.float32)
    assert size(x.expand(7, 5)) == 20
    assert size(x[:, :0]) == 0


def test_a_target_that_is_not_known() -> None:
    with pytest.raises(UsageError, match="read 'sm_70', allowed: sm_80, sm_90"):
        target("sm_70")


CHAIN = {
    "mnemic": 1, "name": "chain", "bias": "l2",
    "memory": {"chain": ["linear", {"kind": "mlp", "activation": "tanh", "expansion": 1}],
               "every": [2, 4]},
    "optimizer": {"rate": "token", "anchor": {"chunk": 8}},
}  # fmt: skip
"""Ends of the longer interval read what ends of the shorter one have put in place."""


def forward_of(folder: str, along: bool) -> list[str]:
    from pathlib import Path

    from mnemic.codegen.package import load, support
    from mnemic.kernels.jobs import Subject, alone

    module = load(Path(folder))
    sweeping = support(module, "fused").sweeping
    subject = Subject.of(module, 16, torch.bfloat16, heads=1)
    with compiling(target("sm_90")) as log, alone(), sweeping(always=along):
        subject.forward()
    return [kernel.name for kernel in log.kernels]


@pytest.mark.parametrize("along", first_only([False, True], True))
def test_a_chain_none_of_whose_intervals_is_a_token(compiler, along: bool) -> None:
    """Triton sees no name behind the branch that it is first given in; the interpreter does."""
    folder = pipeline.compile(CHAIN).folder
    names = compiler(forward_of, folder=str(folder), along=along)
    assert names == ["chunk_swept_forward" if along else "chunk_forward"]
