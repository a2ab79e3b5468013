"""Sizes that kernels refuse: told by the tables, and nothing else runs there."""

import os
import warnings
from dataclasses import asdict
from importlib import import_module
from typing import Any

import pytest
import torch

from mnemic import pipeline
from mnemic.codegen.support import versions
from mnemic.codegen.support.narrower import TOLD
from mnemic.kernels import build, table
from mnemic.kernels.jobs import alone, compile_folder, count_folder


def compiled(job: dict) -> dict:
    return compile_folder(job)


def counted(job: dict) -> dict:
    return count_folder(job)


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
    module = pipeline.compile("linear-attention").module
    launch, kernels, place = (
        import_module(f"{module.__name__}.{part}")
        for part in ("support.launch", "kernels", "support.place")
    )
    kernel: Any = kernels.TOKEN
    rows = [torch.zeros(1, 32, 2, *[64] * len(row.sizes)) for row in kernel.rows]
    states = [torch.zeros(2, *[64] * len(state.sizes)) for state in kernel.states]
    found = launch.Launch.of(
        kernel, rows, states, None, None, place.Place().numbers(), gradient=False, dry=True
    )
    before = launch.Launch.spilled
    launch.Launch.spilled = lambda self, *, gradient: spilled
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            found._narrowed([found.cutting.chosen], place.Place(), gradient=False)
    finally:
        launch.Launch.spilled = before
    return [str(warning.message) for warning in told]


def test_many_spilled_registers_are_said(compiler) -> None:
    (told,) = compiler(said, spilled=TOLD)
    assert told.startswith("the kernel of a token at ")
    assert told.endswith(f"{TOLD} bytes a thread go through the cache")
    assert compiler(said, spilled=TOLD - 1) == []
