"""Sizes that kernels refuse: told by the tables, and nothing else runs there."""

import os
import warnings
from dataclasses import asdict

import pytest
import torch

from mnemic.codegen import module
from mnemic.codegen.support import versions
from mnemic.codegen.support.configuration import Configuration
from mnemic.codegen.support.narrower import TOLD, of_tokens, settled
from mnemic.kernels import build, table
from mnemic.kernels.jobs import alone, compile_folder, count_folder
from mnemic.pipeline import derive

L2 = {"bias": "l2", "optimizer": {"rate": "token"}}
KEPT = {
    "bias": "l2", "weights": "similarity", "window": "all", "keys": {"carry": "own"},
    "optimizer": {"method": "nonparametric", "rate": "token"},
}  # fmt: skip


def stepping(**more: object) -> dict:
    return {"bias": "l2", "optimizer": {"rate": "token", "anchor": {"chunk": 8}, **more}}


OF_EACH = "a matrix of its own for every token of a chunk; token by token there is one"
OTHERWISE = "otherwise than as they are, under features or expressions, or in roles that differ"
CARRIED = "keys that are carried on and compared by more than their products with queries"


@pytest.mark.parametrize(
    ("spec", "form", "why"),
    [
        ({**L2, "bias": {"expr": "n"}, "window": 4}, "token",
         "a loss of the error's norm in a window, where a token's step has an error a pair"),
        ({**L2, "window": 4, "keys": {"predict": "k/2"}}, "chunk",
         f"a window whose keys are read {OTHERWISE}"),
        ({**L2, "window": 4, "features": {"expr": "silu(x) + 1"}}, "chunk",
         f"a window whose keys are read {OTHERWISE}"),
        (stepping(method="adam"), "chunk", OF_EACH),
        (stepping(method="muon"), "chunk", OF_EACH),
        ({**stepping(method="momentum", momentum="token"), "retention": {"decay": "channel"}},
         "chunk", "momentum under a decay of each channel, which takes a matrix of a chunk's rows "
                  "a channel; token by token there is one"),
        ({**KEPT, "memory": {"kind": "nonparametric", "similarity": "exp(-d2)"}}, "chunk", CARRIED),
    ],
)  # fmt: skip
def test_why_there_is_no_kernel_is_told_in_a_user_s_words(spec: dict, form: str, why: str) -> None:
    """And where it says that the other form has one, it has."""
    rule = derive({"mnemic": 1, "name": "x", **spec})
    missing = module.fused_kernels(rule, module.plans(rule), {}).missing
    assert missing[form] == why
    assert "token by token there is one" not in why or "token" not in missing


def compiled(job: dict) -> dict:
    return compile_folder(job)


def counted(job: dict) -> dict:
    return count_folder(job)


@pytest.mark.some(1)
@pytest.mark.parametrize("name", ["atlas", "lact", "atlas-mag"])
def test_a_memory_too_large_for_a_chip_is_told_with_the_limit(compiler, name: str) -> None:
    (job,) = build.jobs([name], "sm_90", (64,))
    rows = list(table.rows(job, compiler(compiled, job=asdict(job))))
    assert [row[table.PASS] for row in rows][:3] == ["forward", "backward", "decode"]
    for row in rows:
        assert row[table.KERNEL] == ""
        assert row[table.TOLD].startswith("refused: ")
        limit = 110 if row[table.PASS] == "step" else 600
        assert row[table.TOLD].endswith(f"numbers, and {limit} are the limit")
    assert not table.wrong(rows)


def test_so_are_counts(interpreter) -> None:
    (job,) = build.jobs(["lact"], "sm_90", (64,))
    found = interpreter(counted, job=asdict(job))
    cells = list(table.counts(job, found))
    assert len(cells) == 4
    assert all(row[-1].startswith("refused: ") for row in cells)
    assert not table.miscounted(cells)


def test_what_is_wrong_is_amiss() -> None:
    assert table.amiss("spills 8 bytes")
    assert table.amiss("RuntimeError: refused: no")
    assert not table.amiss("")


def test_refusals_are_raised_only_where_kernels_are_looked_at() -> None:
    with alone(), pytest.raises(versions.Refused, match=r"^too large$"):
        versions.replaced("one", "too large", "PyTorch's form runs instead")
    assert versions.ALONE not in os.environ
    with pytest.warns(RuntimeWarning, match="^one: too large; PyTorch's form runs instead$"):
        versions.replaced("one", "too large", "PyTorch's form runs instead")


def said(spilled: int) -> list[str]:
    """What is said where every cut of a token's kernel spills so much."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        settled(
            Configuration(rows=64, block=64, warps=4, stages=1), of_tokens(split=True),
            lambda cut: spilled, what="token", sizes={"K": 64, "V": 32}, alike=spilled,
            device=torch.device("cuda"),
        )  # fmt: skip
    return [str(warning.message) for warning in told]


def test_many_spilled_registers_are_said(compiler) -> None:
    (told,) = compiler(said, spilled=TOLD)
    assert told.startswith("the kernel of a token at K = 64, V = 32 does not fit")
    assert told.endswith(f"{TOLD} bytes a thread go through the cache")
    assert compiler(said, spilled=TOLD - 1) == []
