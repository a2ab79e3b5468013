"""Cuts that spill give way: which are tried, what is read back, and what launches take."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest
import torch
from tiers import first_only

from mnemic import pipeline
from mnemic.codegen.support import versions
from mnemic.codegen.support.configuration import LEANEST, Choices, Configuration
from mnemic.codegen.support.narrower import (
    FEW,
    HOPELESS,
    MUCH,
    TRIES,
    Order,
    leaner,
    least,
    narrower,
    of_chunks,
    of_gradient,
    of_pairs,
    of_sweeps,
    of_tokens,
    sparing,
)
from mnemic.codegen.support.stack import stack
from mnemic.kernels.jobs import Subject
from mnemic.kernels.limits import target
from mnemic.kernels.offline import compiling

WIDE = Configuration(64, 64, 8)


def tried(order: Order, cut: Configuration = WIDE) -> list[tuple[int, int, int]]:
    return [(c.rows, c.block, c.warps) for c in narrower(order, cut)]


def test_rows_come_before_blocks_and_warps() -> None:
    rows = [(32, 64, 8), (16, 64, 8)]
    whole, undivided = of_chunks(split=True, whole=True), of_chunks(split=False)
    assert tried(of_chunks(split=True)) == [*rows, (16, 32, 8), (16, 16, 8), (16, 16, 16)]
    assert tried(undivided) == [*rows, (16, 64, 16)]
    assert tried(whole) == [(64, 32, 8), (64, 16, 8), (64, 16, 16)]
    assert tried(undivided, replace(WIDE, rows=10)) == [(10, 64, 16)]


def test_along_memories_rows_and_blocks_shrink_together() -> None:
    rest = [(16, 16, 8), (16, 16, 16)]
    assert tried(of_sweeps()) == [(32, 32, 8), (32, 16, 8), (16, 32, 8), *rest]
    assert tried(of_sweeps(), Configuration(16, 64, 8)) == [(16, 32, 8), *rest]
    assert tried(of_sweeps(), Configuration(64, 16, 8))[:3] == [
        (32, 32, 8),
        (16, 64, 8),
        (16, 32, 8),
    ]


def test_over_kept_pairs_no_warps_are_added() -> None:
    assert tried(of_pairs()) == [(32, 64, 8), (16, 64, 8), (16, 32, 8), (16, 16, 8)]
    assert not tried(of_pairs(), Configuration(16, 16, 8))


def test_tokens_take_more_warps_first() -> None:
    four = replace(WIDE, warps=4)
    assert tried(of_tokens(split=False), four) == [(64, 64, 8), (64, 64, 16)]
    assert tried(of_tokens(split=True), four)[:3] == [(64, 64, 8), (64, 64, 16), (64, 32, 16)]
    assert not tried(of_tokens(split=False), replace(WIDE, warps=16))


def test_a_gradient_is_lean_where_more_warps_do_not_help() -> None:
    for order in (of_tokens(split=True), of_chunks(split=True)):
        found = [*narrower(of_gradient(order), replace(WIDE, warps=4))]
        lean = next(cut for cut in found if cut.lean)
        assert (lean.rows, lean.block) == (64, 64), "nothing else has become narrower"
        assert lean.warps == (16 if order == of_tokens(split=True) else 4)
    assert of_gradient(()) == (), "lanes have one cut"


def test_each_kind_of_kernel_has_its_order() -> None:
    kernels = import_module(f"{pipeline.compile('gla').module.__name__}.kernels")
    wide = kernels.CHUNK.narrowing, kernels.TOKEN.narrowing
    assert [[shrink.__name__ for shrink in order] for order in wide] == [
        ["fewer_rows", "narrower_block", "more_warps"], ["more_warps", "narrower_block"],
    ]  # fmt: skip
    lanes = import_module(f"{pipeline.compile('hgrn').module.__name__}.kernels").TOKEN
    assert lanes.lanes
    assert lanes.narrowing == (), "single numbers side by side have one cut"


def test_the_first_cut_without_spills_is_taken() -> None:
    cuts = [replace(WIDE, rows=n) for n in (64, 32, 16)]
    asked: list[int] = []

    def spilled(cut: Configuration) -> int:
        asked.append(cut.rows)
        return {64: 8, 32: 0, 16: 0}[cut.rows]

    assert least(cuts[0], cuts[1:], spilled) == (cuts[1], 0)
    assert asked == [64, 32]


def test_where_all_spill_the_least_is_taken_and_few_are_compiled() -> None:
    cuts = [replace(WIDE, rows=n) for n in range(99, 0, -1)]
    asked: list[int] = []

    def spilled(cut: Configuration) -> int:
        asked.append(cut.rows)
        return FEW + abs(cut.rows - 97) + 1

    assert least(cuts[0], cuts[1:], spilled) == (cuts[2], FEW + 1)
    assert len(asked) == 1 + TRIES


def test_of_cuts_that_spill_next_to_nothing_the_widest_is_taken() -> None:
    cuts = [replace(WIDE, rows=n) for n in (64, 32, 16)]
    spilled = {64: FEW + 8, 32: FEW, 16: 8}
    assert least(cuts[0], cuts[1:], lambda cut: spilled[cut.rows]) == (cuts[1], FEW)


@pytest.mark.full
def test_a_lean_cut_of_a_gradient_comes_first(compiler) -> None:
    assert leaner(replace(WIDE, stages=2)) == replace(WIDE, lean=1)
    assert leaner(leaner(WIDE)) == leaner(leaner(leaner(WIDE))) == replace(WIDE, lean=LEANEST)
    for lean in (1, LEANEST):
        found = compiler(lean_of, name="linear-attention", least=lean)
        assert found == [[64, 0], [64, 0], [64, lean]]


def lean_of(name: str, least: int) -> list[tuple[int, int]]:
    """Rows a chunk of a training step's kernels, and how lean they are, if all that are less so
    spill; of a form that is not divided into several kernels."""
    module = pipeline.compile(name).module
    subject = Subject.of(module, 64, torch.bfloat16)
    fused = import_module(f"{module.__name__}.support.fused")
    with (
        fused.in_several(always=False),
        spilling(module, "launch", lambda cut: 8 * (cut.lean < least)),
        compiling(target("sm_90")) as log,
    ):
        subject.backward()
    return [(int(k.constants["ROWS"]), int(k.constants.get("LEAN", 0))) for k in log.kernels]


def test_threads_have_all_registers_where_no_other_cut_is_without_spills(compiler) -> None:
    plain, full, last = "", "maxnreg", "ptx_options"
    for helps, expected in (
        (full, [plain, plain, full, full]),
        (last, [plain, full, last, last]),
        ("none", [plain, full, last, plain]),
    ):
        assert compiler(fuller_of, name="linear-attention", helps=helps) == expected


def fuller_of(name: str, *, helps: str) -> list[str]:
    """What the assembler is told of the last cuts that are asked for, and of the one that runs."""
    module = pipeline.compile(name).module
    subject = Subject.of(module, 64, torch.bfloat16)
    fused = import_module(f"{module.__name__}.support.fused")
    with (
        spilling(module, "launch", lambda cut: 8 * (told(cut) != helps)) as asked,
        fused.in_several(always=False), compiling(target("sm_90")), noting(module, "launch"),
    ):  # fmt: skip
        subject.forward()
        (settled,) = import_module(f"{module.__name__}.support.narrower")._settled.values()
    assert settled.options["num_warps"] == settled.warps
    return [*(told(cut) for cut in asked[-3:]), told(settled)]


def told(cut: Configuration) -> str:
    """What the assembler is told with a cut, behind warps and stages."""
    return " ".join(name for name in cut.options if not name.startswith("num_"))


def test_rows_are_loaded_for_each_block_of_a_gradient_that_spills(compiler) -> None:
    found = compiler(lean_along, name="huber-norm")
    assert found["settled"] == [True, 1]
    kinds = ("forward", "forward", "backward")
    assert found["launched"] == [[f"chunk_swept_{k}", int(k == "backward")] for k in kinds]


def lean_along(name: str) -> dict[str, Any]:
    """Whether a training step goes along memories, and how lean its gradient is, if all else
    spills; and the kernels that are launched. Nothing is compiled."""
    module = pipeline.compile(name).module
    subject = Subject.of(module, 64, torch.bfloat16)
    narrower, fused = (
        import_module(f"{module.__name__}.support.{part}") for part in ("narrower", "fused")
    )
    with (
        spilling(module, "launch", lambda c: (0 if c.lean else FEW) if c.swept else MUCH),
        fused.in_several(always=False), compiling(target("sm_80")),
        noting(module, "launch") as launched,
    ):  # fmt: skip
        subject.backward()
        (settled,) = narrower._settled.values()
    told = [(name, options.get("LEAN", 0)) for name, options in launched]
    return {"settled": [settled.swept, settled.lean], "launched": told}


@contextmanager
def noting(module: Any, part: str) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """Launches of ``support.<part>`` are noted, name and options, and nothing is compiled."""
    noted: list[tuple[str, dict[str, Any]]] = []
    launch = import_module(f"{module.__name__}.support.{part}")

    def begin(function: Any, grid: Any, arguments: Any, options: dict[str, Any]) -> None:
        noted.append((function.__name__, options))

    before, launch.begin = launch.begin, begin
    try:
        yield noted
    finally:
        launch.begin = before


def test_a_way_that_does_not_compile_is_not_taken(compiler) -> None:
    assert compiler(refused_of, name="linear-attention") == ["", "maxnreg", "ptx_options", ""]


def refused_of(name: str) -> list[str]:
    """The last cuts that are asked for, and the one that runs, if the assembler does not know what
    it is told."""

    def spilled(cut: Configuration) -> int:
        if cut.sparing:
            raise RuntimeError("ptxas: unknown option")
        return 8

    module = pipeline.compile(name).module
    subject = Subject.of(module, 64, torch.bfloat16)
    fused = import_module(f"{module.__name__}.support.fused")
    with (
        spilling(module, "launch", spilled) as asked,
        fused.in_several(always=False), compiling(target("sm_90")), noting(module, "launch"),
    ):  # fmt: skip
        subject.forward()
        (settled,) = import_module(f"{module.__name__}.support.narrower")._settled.values()
    found = [told(cut) for cut in asked]
    return [*dict.fromkeys(found), told(settled)]


def test_what_the_user_tells_the_assembler_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(versions.ASSEMBLER, "--verbose")
    assert replace(WIDE, sparing=True).options["ptx_options"].startswith("--verbose --register")


def test_triton_that_tells_the_assembler_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "tells_assembler", lambda: False)
    assert sparing(WIDE) == WIDE


def test_the_tuner_may_take_registers_back() -> None:
    choices = Choices((64,), (64,), (8,), (1,))
    assert [*choices.around(replace(WIDE, full=True))] == [WIDE]
    assert [*choices.around(WIDE)] == []


def test_twice_the_threads_that_spill_a_little_less_are_no_better() -> None:
    other = replace(WIDE, warps=16)
    assert least(WIDE, [other], lambda cut: {8: 1128, 16: 1080}[cut.warps]) == (WIDE, 1128)
    assert least(WIDE, [other], lambda cut: {8: 1128, 16: 560}[cut.warps]) == (other, 560)


def test_far_too_many_are_left_at_once() -> None:
    asked: list[int] = []

    def spilled(cut: Configuration) -> int:
        asked.append(cut.rows)
        return HOPELESS + 1

    assert least(WIDE, [replace(WIDE, rows=32)], spilled) == (WIDE, HOPELESS + 1)
    assert asked == [64]


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("left", "instead"),
    first_only([(MUCH - 1, False), (MUCH, True), (9_000, True)], (MUCH - 1, False), (MUCH, True)),
)
def test_where_much_is_left_another_kernel_runs(compiler, left: int, instead: bool) -> None:
    found = compiler(kernels_of, name="huber-norm", left=left, other=8)
    assert found == [
        f"chunk{'_swept' * instead}_{part}" for part in ("forward",) * 2 + ("backward",)
    ]


def test_the_other_kernel_does_not_run_if_it_spills_more(compiler) -> None:
    found = compiler(kernels_of, name="huber-norm", left=MUCH, other=MUCH + 8)
    assert set(found) == {"chunk_forward", "chunk_backward"}


def kernels_of(name: str, left: int, other: int) -> list[str]:
    """The kernels of a training step: those of memories in registers spill so many bytes, those
    that go along memories so many others."""
    module = pipeline.compile(name).module
    subject = Subject.of(module, 32, torch.bfloat16)
    fused = import_module(f"{module.__name__}.support.fused")
    with (
        spilling(module, "launch", lambda cut: other if cut.swept else left),
        fused.in_several(always=False), compiling(target("sm_90")),
        noting(module, "launch") as launched,
    ):  # fmt: skip
        subject.backward()
    return [name for name, _ in launched]


@contextmanager
def spilling(
    module: Any, part: str, spilled: Callable[[Any], int]
) -> Iterator[list[Configuration]]:  # fmt: skip
    """Launches of ``support.<part>`` spill so many bytes; the cuts of which that is asked."""
    launch, narrower, fused = (
        import_module(f"{module.__name__}.support.{name}") for name in (part, "narrower", "fused")
    )
    asked: list[Configuration] = []

    def told(self: Any, *_: Any, **__: Any) -> int:
        asked.append(self.cutting.chosen if part == "launch" else self.cut)
        return spilled(asked[-1])

    before, launch.Launch.spilled = launch.Launch.spilled, told
    narrower._settled.clear()
    fused._known.clear()
    try:
        yield asked
    finally:
        launch.Launch.spilled = before
        narrower._settled.clear()
        fused._known.clear()


def cut_of(name: str, rows: int, *, forced: bool = False) -> list[int]:
    """Rows a chunk of the kernels of a training step, where more than so many rows spill."""
    module = pipeline.compile(name).module
    tuned, configuration, fused = (
        import_module(f"{module.__name__}.support.{part}")
        for part in ("tuned", "configuration", "fused")
    )
    subject = Subject.of(module, 64, torch.bfloat16)
    if forced:
        tuned._forced["chunk", True] = configuration.Configuration(64, 64, 8)
    try:
        with (
            spilling(module, "launch", lambda cut: 8 * (cut.rows > rows)),
            fused.in_several(always=False), compiling(target("sm_90")),
            noting(module, "launch") as launched,
        ):  # fmt: skip
            subject.backward()
    finally:
        tuned._forced.clear()
    assert {name for name, _ in launched} == {"chunk_forward", "chunk_backward"}
    return [int(options["ROWS"]) for _, options in launched]


@pytest.mark.parametrize("rows", first_only([16, 32], 16))
def test_a_training_step_is_cut_alike_in_all_its_kernels(compiler, rows: int) -> None:
    assert set(compiler(cut_of, name="linear-attention", rows=rows)) == {rows}


def test_what_was_measured_is_left_as_it_is(compiler) -> None:
    assert set(compiler(cut_of, name="linear-attention", rows=16, forced=True)) == {64}


def asked(lengths: list[int], offset: int) -> int:
    """How often the compiler is asked for the stack over calls of these lengths."""
    module = pipeline.compile("swla").module
    subject = Subject.of(module, 64, torch.bfloat16)
    fused = import_module(f"{module.__name__}.support.fused")
    with (
        spilling(module, "launch", lambda _: 0) as seen,
        fused.in_several(always=False), compiling(target("sm_90")), noting(module, "launch"),
        torch.no_grad(),
    ):  # fmt: skip
        _, state = subject._call(subject.arguments, subject.params, {})
        for length in lengths:
            cut = {n: x[:, :length] for n, x in subject.arguments.items()}
            subject._call(cut, subject.params, state if offset else {})
    return len(seen)


def test_launches_alike_ask_once(compiler) -> None:
    assert compiler(asked, lengths=[240, 224, 176], offset=0) == 1, "multiples of 16"
    assert compiler(asked, lengths=[241, 223, 177], offset=0) == 2, "and others"
    assert compiler(asked, lengths=[240, 224, 176], offset=1) <= 2, "behind other tokens"


# -- kept pairs, and a layer's step ------------------------------------------------------------

PAIRED = {"alone": "deltaformer", "moving": "path"}


def pairs_of(name: str, rows: int) -> dict[str, list[int]]:
    """Rows a chunk of the kernels of a training step over kept pairs, where more spill."""
    module = pipeline.compile(name).module
    subject = Subject.of(module, 16, torch.bfloat16)
    with (
        spilling(module, "streamed", lambda cut: 8 * (cut.rows > rows)),
        compiling(target("sm_90")) as log,
    ):  # fmt: skip
        subject.backward()
    found: dict[str, list[int]] = {}
    for kernel in log.kernels:
        found.setdefault(kernel.name, []).append(int(kernel.constants["ROWS"]))
    return found


@pytest.mark.parametrize("kind", first_only(PAIRED, "alone"))
def test_kernels_over_kept_pairs_give_way(compiler, kind: str) -> None:
    found = compiler(pairs_of, name=PAIRED[kind], rows=16)
    kernels = {
        "alone": {"earlier", "making", "forward", "backward", "backward_pairs", "back_making",
                  "back_earlier", "back_rest", "back_pairs"},
        "moving": {"forward", "backward"},
    }  # fmt: skip
    assert {name: set(rows) for name, rows in found.items()} == {
        f"chunk_{name}": {16} for name in kernels[kind]
    }


def shapes_kept(name: str) -> list[list[list[int]]]:
    """Shapes of what a form keeps for its gradient: of tensors without data, and of real ones."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    module = pipeline.compile(name).module
    kernel = module.rule.kernels().CHUNK
    subject = Subject.of(module, 16, torch.bfloat16)
    rows = [subject.arguments[row.name] for row in kernel.rows]
    batch, _, heads, width = subject.arguments["q"].shape
    states = [torch.zeros(batch * heads, 0, width) for _ in kernel.kept]
    found = []
    with spilling(module, "streamed", lambda cut: 8 * (cut.rows > 16)), compiling(target("sm_90")):
        for mode in (FakeTensorMode(), nullcontext()):
            with mode:
                to = mode.from_tensor if isinstance(mode, FakeTensorMode) else torch.clone
                given, start = [to(x) for x in rows], [to(x) for x in states]
                out = kernel.operators.forward(given, start, None, None, [1, 0, 0, 0], True)
                found.append([list(x.shape) for x in out])
    return found


def test_tensors_without_data_are_cut_alike(compiler) -> None:
    without, real = compiler(shapes_kept, name="path")
    assert without == real
    assert len(real) == 3 + 2 * 4, "64 of 256 rows a piece, in chunks of 16"


def step_of(name: str, spilled: int) -> tuple[list[tuple[int, int]], list[list[int]]]:
    """Block and warps of a layer's step, where fewer warps than these spill; and all asked for."""
    module = pipeline.compile(name).module
    subject = Subject.of(module, 64, torch.bfloat16)
    with (
        spilling(module, "step", lambda cut: max(0, spilled - cut.warps)) as seen,
        compiling(target("sm_90")) as log,
    ):  # fmt: skip
        subject.step()
        subject.step()
    return [(k.constants["BV"], k.num_warps) for k in log.kernels], [
        [cut.block, cut.warps] for cut in seen
    ]


def test_a_layers_step_takes_more_warps(compiler) -> None:
    kernels, asked = compiler(step_of, name="gla", spilled=8)
    assert kernels == [[64, 8]]
    assert asked == [[64, 4], [64, 8]], "once for tokens alike"


def compiled_and_launched(name: str, smallest: bool) -> list[str]:
    """Kernels of all passes that were compiled, and not launched; ``smallest``: of the cut that
    has none below it."""
    module = pipeline.compile(name).module
    subject = Subject.of(module, 16, torch.bfloat16)
    import_module(f"{module.__name__}.support.substituted").CHUNKS = 2  # all kernels of all parts
    if smallest:
        streamed = import_module(f"{module.__name__}.support.streamed")
        streamed.CUTS = streamed.CUTS[-1:]
    with compiling(target("sm_90")) as log:
        for part in subject.passes:
            getattr(subject, part)()
    assert len(log.known) > 2
    assert not any(kernel.resources.stack for kernel in log.kernels), "others are tried"
    return [other for other in log.seconds if other not in log.known]


@pytest.mark.some(1)
@pytest.mark.parametrize("name", ["retnet", *(name for name in PAIRED.values() if name != "path")])
def test_without_spills_nothing_else_is_compiled(compiler, name: str) -> None:
    assert compiler(compiled_and_launched, name=name, smallest=False) == []


@pytest.mark.full
def test_where_there_is_no_narrower_cut_there_are_other_ways(compiler) -> None:
    """The output's kernel spills 16 bytes unless it may have all registers."""
    assert len(compiler(compiled_and_launched, name="path", smallest=True)) == 1


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
