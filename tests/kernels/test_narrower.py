"""Cuts that spill give way: which are tried, what is read back, and what launches take."""

from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mnemic import pipeline
from mnemic.codegen.support.configuration import Configuration
from mnemic.codegen.support.narrower import HOPELESS, TRIES, narrower, settled, stack
from mnemic.kernels.jobs import Subject
from mnemic.kernels.limits import target
from mnemic.kernels.offline import compiling

WIDE = Configuration(64, 64, 8)


def kernel(**told: Any) -> Any:
    return SimpleNamespace(**{"chunked": True, "split": "V", "lanes": False, **told})


def tried(cut: Configuration, *, whole: bool = False, **told: Any) -> list[tuple[int, int, int]]:
    return [(c.rows, c.block, c.warps) for c in narrower(kernel(**told), cut, whole=whole)]


def test_rows_come_before_blocks_and_warps() -> None:
    rows = [(32, 64, 8), (16, 64, 8)]
    assert tried(WIDE) == [*rows, (16, 32, 8), (16, 16, 8), (16, 16, 16)]
    assert tried(WIDE, split="") == [*rows, (16, 64, 16)]
    assert tried(WIDE, whole=True) == [(64, 32, 8), (64, 16, 8), (64, 16, 16)]
    assert tried(replace(WIDE, rows=10), split="") == [(10, 64, 16)]


def test_tokens_take_more_warps_first() -> None:
    four = replace(WIDE, warps=4)
    assert tried(four, chunked=False, split="") == [(64, 64, 8), (64, 64, 16)]
    assert tried(four, chunked=False)[:3] == [(64, 64, 8), (64, 64, 16), (64, 32, 16)]
    assert not tried(four, chunked=False, split="", lanes=True)


def test_the_first_cut_without_spills_is_taken() -> None:
    cuts = [replace(WIDE, rows=n) for n in (64, 32, 16)]
    asked: list[int] = []

    def spilled(cut: Configuration) -> int:
        asked.append(cut.rows)
        return {64: 8, 32: 0, 16: 0}[cut.rows]

    assert settled(cuts, spilled).rows == 32
    assert asked == [64, 32]


def test_where_all_spill_the_least_is_taken_and_few_are_compiled() -> None:
    cuts = [replace(WIDE, rows=n) for n in range(99, 0, -1)]
    asked: list[int] = []

    def spilled(cut: Configuration) -> int:
        asked.append(cut.rows)
        return abs(cut.rows - 97) + 1

    assert settled(cuts, spilled).rows == 97
    assert len(asked) == 1 + TRIES


def test_twice_the_threads_that_spill_a_little_less_are_no_better() -> None:
    cuts = [WIDE, replace(WIDE, warps=16)]
    assert settled(cuts, lambda cut: {8: 1128, 16: 1080}[cut.warps]) == WIDE
    assert settled(cuts, lambda cut: {8: 1128, 16: 560}[cut.warps]) == cuts[1]


def test_far_too_many_are_left_at_once() -> None:
    asked: list[int] = []

    def spilled(cut: Configuration) -> int:
        asked.append(cut.rows)
        return HOPELESS + 1

    assert settled([WIDE, replace(WIDE, rows=32)], spilled) == WIDE
    assert asked == [64]


def cut_of(name: str, rows: int, *, forced: bool = False) -> list[int]:
    """Rows a chunk of the kernels of a training step, where more than so many rows spill."""
    module = pipeline.compile(name).module
    launch, tuned, configuration = (
        import_module(f"{module.__name__}.support.{part}")
        for part in ("launch", "tuned", "configuration")
    )
    subject = Subject.of(module, 64, torch.bfloat16)
    before = launch.Launch.spilled
    launch.Launch.spilled = lambda self, *, gradient: 8 * (self.cutting.chosen.rows > rows)
    launch._settled.clear()
    if forced:
        tuned._forced["chunk", True] = configuration.Configuration(64, 64, 8)
    try:
        with compiling(target("sm_90")) as log:
            subject.backward()
    finally:
        launch.Launch.spilled = before
        launch._settled.clear()
        tuned._forced.clear()
    assert {kernel.name for kernel in log.kernels} == {"chunk_forward", "chunk_backward"}
    return [int(kernel.constants["ROWS"]) for kernel in log.kernels]


@pytest.mark.parametrize("rows", [16, 32])
def test_a_training_step_is_cut_alike_in_all_its_kernels(compiler, rows: int) -> None:
    assert set(compiler(cut_of, name="linear-attention", rows=rows)) == {rows}


def test_what_was_measured_is_left_as_it_is(compiler) -> None:
    assert set(compiler(cut_of, name="linear-attention", rows=16, forced=True)) == {64}


def asked(lengths: list[int], offset: int) -> int:
    """How often the compiler is asked for the stack over calls of these lengths."""
    module = pipeline.compile("swla").module
    launch = import_module(f"{module.__name__}.support.launch")
    subject = Subject.of(module, 64, torch.bfloat16)
    before, seen = launch.Launch.spilled, []
    launch.Launch.spilled = lambda self, *, gradient: seen.append(1) or 0
    launch._settled.clear()
    try:
        with compiling(target("sm_90")), torch.no_grad():
            _, state = subject._call(subject.arguments, subject.params, {})
            for length in lengths:
                cut = {n: x[:, :length] for n, x in subject.arguments.items()}
                subject._call(cut, subject.params, state if offset else {})
    finally:
        launch.Launch.spilled = before
        launch._settled.clear()
    return len(seen)


def test_launches_alike_ask_once(compiler) -> None:
    assert compiler(asked, lengths=[240, 224, 176], offset=0) == 1, "multiples of 16"
    assert compiler(asked, lengths=[241, 223, 177], offset=0) == 2, "and others"
    assert compiler(asked, lengths=[240, 224, 176], offset=1) <= 2, "behind other tokens"


def stacks(width: int) -> list[int]:
    """A thread's stack, as the binary's attributes tell and as the compiler's own tool does."""
    import samples

    from mnemic.kernels import offline

    plain, binaries = offline._kernel, []

    def noted(function: Any, compiled: Any, *others: Any) -> Any:
        binaries.append(compiled.asm["cubin"])
        return plain(function, compiled, *others)

    offline._kernel = noted
    try:
        with compiling(target("sm_80")) as log:
            q = torch.randn(2, 256, width, dtype=torch.bfloat16)
            samples.linear(q, q, q, torch.empty_like(q), warps=8)
    finally:
        offline._kernel = plain
    return [stack(binaries[0]), log.kernels[0].resources.stack, log.kernels[0].resources.spill]


def test_the_stack_is_read_from_the_binary(compiler) -> None:
    assert compiler(stacks, width=32) == [0, 0, 0]
    found, told, spilled = compiler(stacks, width=128)
    assert found == told > 0
    assert spilled > 0
