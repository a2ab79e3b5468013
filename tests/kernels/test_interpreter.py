"""The process that interprets: right numbers pass, and each kind of fault is seen."""

import pytest
import torch

from mnemic.codegen.support import buffers
from mnemic.errors import CheckFailed, EnvironmentFailed


def linear_error(tokens: int, width: int, dtype: str) -> float:
    import samples

    torch.manual_seed(0)
    q, k, v = (torch.randn(2, tokens, width, dtype=getattr(torch, dtype)) for _ in "qkv")
    with buffers.watched():
        out = samples.linear(*map(buffers.guarded, (q, k, v)), buffers.empty(tuple(v.shape), v))
    expected = samples.plain(q.double(), k.double(), v.double())
    return float((out.double() - expected).abs().max() / (1 + expected.abs().max()))


def faulty(kernel: str) -> list[str]:
    import samples

    x = torch.randn(30)
    with buffers.watched():
        y = buffers.empty((30,), x)
        getattr(samples, kernel)[(1,)](buffers.guarded(x), y, 30, 64)
    return list(buffers.unwritten({"y": y}))


def crash() -> None:
    import os

    os.abort()


@pytest.mark.parametrize("tokens", [1, 63, 64, 65, 131])
def test_a_kernel_in_float64(interpreter, tokens: int) -> None:
    assert interpreter(linear_error, tokens=tokens, width=16, dtype="float64") <= 1e-14


def test_entries_that_nothing_wrote(interpreter) -> None:
    assert interpreter(faulty, kernel="short_kernel") == ["y"]


def test_entries_beyond_a_buffer(interpreter) -> None:
    with pytest.raises(CheckFailed, match=r"written beyond buffers of \[30\] torch.float32"):
        interpreter(faulty, kernel="long_kernel")


def test_a_process_that_dies_fails_one_test(interpreter) -> None:
    with pytest.raises(EnvironmentFailed, match="crash: the process ended with -6"):
        interpreter(crash)
    assert interpreter(faulty, kernel="short_kernel") == ["y"]


def test_no_poison_outside_debug_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MNEMIC_DEBUG", raising=False)
    x = torch.randn(3)
    assert buffers.guarded(x) is x
    monkeypatch.setenv("MNEMIC_DEBUG", "1")
    assert buffers.empty((2, 3), x).isnan().all()
    assert buffers.empty((2, 3), x).is_contiguous()
    assert (buffers.empty((2,), x, torch.int64) == torch.iinfo(torch.int64).min).all()


def test_operands_are_rounded_as_tensor_cores_round_them() -> None:
    """To ten bits behind the leading one."""
    from mnemic.codegen.support.interpreted import tf32

    given = torch.tensor([1.0, 1 + 2**-12, 1 + 2**-11, -1 - 2**-11, 0.0])
    expected = torch.tensor([1.0, 1.0, 1 + 2**-10, -1 - 2**-10, 0.0])
    torch.testing.assert_close(torch.from_numpy(tf32(given.numpy())), expected, rtol=0, atol=0)
