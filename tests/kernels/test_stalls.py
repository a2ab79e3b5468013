"""Cycles by a simulation of machine code: short sequences whose cycles can be counted by hand."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mnemic import pipeline
from mnemic.errors import UsageError
from mnemic.kernels import build, cycle_table
from mnemic.kernels.limits import target
from mnemic.kernels.offline import compiling
from mnemic.kernels.resumed_table import parsed
from mnemic.kernels.stalls.cycles import Cycles, Machine, estimated, rows_of
from mnemic.kernels.stalls.instructions import Control, Instruction, decode
from mnemic.kernels.stalls.multiprocessor import END, Simulated, Step, simulate
from mnemic.kernels.stalls.path import path
from mnemic.kernels.stalls.shapes import Shape, Work, calls, part, work_of
from mnemic.kernels.stalls.units import ACCUMULATED, BARRIER, SHARED, Unit, clock, use, width

HOPPER = target("sm_90")


def one(text: str, stall: int = 1, **control: object) -> Instruction:
    """An instruction as written, with its control."""
    name, *operands = text.replace(",", " ").split()
    return Instruction(name, tuple(operands), Control(stall, **control))


def turn(
    *code: Instruction, warps: int = 1, programs: int = 1, whole: bool = False
) -> Simulated:  # fmt: skip
    steps = [Step.of(x, HOPPER) for x in code] + [END] * whole
    return simulate(steps, warps, programs)


# -- what is read ------------------------------------------------------------------------------

CODE = """
.text.some:
        /*0000*/                   LDG.E.128 R4, desc[UR8][R2.64] ;       /* 0x0000000402047981 */
                                                                          /* 0x000ea2000c1e1900 */
.L_x_1:
        /*0010*/              @!P0 FADD R4, R4, R5 ;                      /* 0x0000000504047221 */
                                                                          /* 0x004fc80000000000 */
        /*0020*/                   BRA `(.L_x_2) ;                        /* 0x0000000000047947 */
                                                                          /* 0x000fea0003800000 */
        /*0030*/                   MUFU.EX2 R4, R4 ;                      /* 0x0000000400047308 */
                                                                          /* 0x000e240000000800 */
.L_x_2:
        /*0040*/                   FMUL R4, R4, R4 ;                      /* 0x0000000404047220 */
                                                                          /* 0x000fe20000400000 */
        /*0050*/              @P1  BRA `(.L_x_2) ;                        /* 0x0000000000047947 */
                                                                          /* 0x000fea0003800000 */
        /*0060*/              @P0  BRA `(.L_x_1) ;                        /* 0x0000000000047947 */
                                                                          /* 0x000fea0003800000 */
        /*0070*/                   EXIT ;                                 /* 0x000000000000794d */
                                                                          /* 0x000fea0003800000 */
"""


def loops(high: str, step: str = "%c1_i32") -> str:
    """Intermediate code with a loop inside one."""
    return f"""
    %c0_i32 = arith.constant 0 : i32
    %c1_i32 = arith.constant 1 : i32
    %c4_i32 = arith.constant 4 : i32
    %all = tt.get_num_programs y : i32
    scf.for %chunk = %c0_i32 to %chunks step {step} : i32 {{
      scf.for %j = %c0_i32 to {high} step %c1_i32 : i32 {{
      }}
    }}
"""


def test_control_words() -> None:
    """The load counts scoreboard 2 until it is there, the sum waits for it and then four cycles."""
    load, added, *_ = decode(CODE)
    assert load == Instruction(
        "LDG.E.128", ("R4", "desc[UR8][R2.64]"), Control(1, written=2, read=None, wait=())
    )
    assert (added.kind, added.control) == ("FADD", Control(4, wait=(2,)))
    assert added.guarded
    assert not load.guarded


def test_a_turn_goes_past_what_a_branch_skips() -> None:
    """The slow function is never reached; the inner loop turns four times, the outer one once."""
    code = decode(CODE)
    found = path(code, CODE, loops("%c4_i32"))
    assert found.places == (1, 2, *(4, 5) * 4, 6)
    assert (found.whole, found.shared, found.unknown) == (False, False, 0)


def test_inner_loops_of_unknown_turns() -> None:
    code = decode(CODE)
    assert path(code, CODE, loops("%pairs")).places == (1, 2, 4, 5, 6)
    three = path(code, CODE, loops("%pairs"), turns=3)
    assert (three.places, three.unknown) == ((1, 2, *(4, 5) * 3, 6), 1)


def test_programs_that_share_out_chunks_are_taken_whole() -> None:
    found = path(decode(CODE), CODE, loops("%c4_i32", step="%all"))
    assert found.places == (0, 1, 2, *(4, 5) * 4, 6, 7)
    assert (found.whole, found.shared) == (True, True)


def test_loops_as_long_as_a_program_is_late_in_the_text() -> None:
    """Each program has a chunk, and goes over the pairs before it."""
    late = "    %c = tt.get_program_id y : i32\n    %high = arith.muli %c, %rows : i32\n"
    told = late + loops("%c4_i32").replace("to %chunks", "to %high")
    found = path(decode(CODE), CODE, told, turns=2)
    assert found.places == (0, *(1, 2, *(4, 5) * 4, 6) * 2, 7)
    assert (found.whole, found.shared, found.unknown) == (True, True, 1)


# -- what it takes -----------------------------------------------------------------------------


def test_a_dependent_sum_waits_for_its_stall_count() -> None:
    assert turn(one("FFMA R1", 4), one("FFMA R1", 4)).cycles == 8


def test_a_scheduler_issues_one_instruction_a_cycle() -> None:
    """Four warps a scheduler hide each other's four cycles, eight take twice as long."""
    code = one("FFMA R1", 4), one("FFMA R1", 4)
    assert [turn(*code, warps=n).cycles for n in (4, 16, 32)] == [8, 8, 16]
    assert turn(*code, warps=16, programs=2).cycles == 16


@pytest.mark.parametrize(("name", "cycles"), [
    ("FADD", 1), ("IADD3", 2), ("FSEL", 2), ("MUFU.EX2", 8), ("HMMA.16816.F32.BF16", 7),
])  # fmt: skip
def test_units_are_taken_for_as_long_as_their_lanes_need(name: str, cycles: int) -> None:
    """Eight warps on each scheduler, and nothing that depends on anything."""
    assert turn(one(f"{name} R1"), warps=32).cycles == 8 * cycles


def test_a_load_is_awaited_at_its_scoreboard() -> None:
    """It moves 128 bytes in two cycles, and then it takes 600 of them."""
    load, used = one("LDG.E R1", written=0), one("FADD R2", 4, wait=(0,))
    assert turn(load, used).cycles == 602 + 4
    found = turn(one("LDS R1", written=0), used)
    assert found.cycles == SHARED + 4
    assert found.waits == {"shared memory": SHARED - 1, "fixed latencies": 3}


def test_loads_arrive_one_behind_the_other() -> None:
    """32 warps load 512 bytes four times, 64 of them a cycle; sixteen warps wait for the first."""
    loads = [one("LDG.E.128 R1", written=0)] * 4
    found = turn(*loads, one("FADD R2", wait=(0,)), warps=32)
    assert found.cycles == pytest.approx(32 * 4 * 8, rel=0.03)
    assert turn(loads[0], one("FADD R2", wait=(0,)), warps=16).cycles == pytest.approx(609, abs=2)


def test_shared_memory_moves_128_bytes_a_cycle() -> None:
    """Two warps on each scheduler, and 512 bytes a warp, through one unit."""
    assert turn(one("STS.128 [R1] R4"), warps=8).cycles == 8 * 4


def test_copies_are_awaited_group_by_group() -> None:
    """With one group left under way a turn waits for that of the turn before."""
    copy, ends = one("LDGSTS.E.128 [R1] R2"), one("LDGDEPBAR", written=0)
    last = turn(copy, ends, one("DEPBAR.LE SB0, 0x0"), one("FADD R1", 11))
    before = turn(copy, ends, one("DEPBAR.LE SB0, 0x1"), one("FADD R1", 11))
    assert last.cycles == pytest.approx(620, abs=4)
    assert before.cycles == pytest.approx(310, abs=4)


def test_a_barrier_waits_for_the_last_warp() -> None:
    """Of eight warps on four schedulers the second ones are two cycles later."""
    code = one("IADD3 R1"), one("BAR.SYNC.DEFER_BLOCKING 0x0")
    found = turn(*code, warps=8)
    assert found.cycles == BARRIER + 3
    assert found.waits["barriers"] > BARRIER - 2


def test_a_barrier_of_some_warps() -> None:
    """Two halves of a program do not wait for each other."""
    named = one("BAR.SYNC.DEFER_BLOCKING 0x1, 0x80")
    assert turn(one("FADD R1"), named, warps=8).cycles <= BARRIER + 3


def test_warps_that_wait_for_ever() -> None:
    with pytest.raises(UsageError, match="wait at a barrier for others that never come"):
        turn(one("BAR.SYNC.DEFER_BLOCKING 0x1, 0x80"), warps=2)


def test_products_of_warp_groups_are_awaited_together() -> None:
    """64 x 64 x 16 take 32 cycles of each of four tensor cores."""
    product = one("HGMMA.64x64x16.F32.BF16 R24 gdesc[UR4] R24")
    last = replace(product, operands=(*product.operands, "gsb0"))
    found = turn(product, product, product, last, one("WARPGROUP.DEPBAR.LE gsb0, 0x0"), warps=4)
    assert found.cycles == pytest.approx(4 * 32 + ACCUMULATED, abs=2)
    assert turn(product, warps=8).cycles == 64


def test_a_program_ends_with_its_last_warp() -> None:
    """Of two warps on a scheduler the second begins a cycle later, and both begin anew then."""
    assert turn(one("FADD R1", 10), warps=8, whole=True).cycles == 10 + 1 + 1


@pytest.mark.parametrize(("name", "bytes_"), [
    ("LDG.E", 4), ("LDG.E.128", 16), ("STS.64", 8), ("LDSM.16.M88.4", 16), ("LDSM.16.M88", 4),
])  # fmt: skip
def test_bytes_of_a_thread(name: str, bytes_: int) -> None:
    assert width(one(name)) == bytes_


@pytest.mark.parametrize(("name", "busy"), [
    ("HGMMA.64x256x16.F32.BF16 R24 gdesc[UR4] R24", 128),
    ("HGMMA.64x64x8.F32.TF32 R24 gdesc[UR4] R24", 32),
    ("HGMMA.64x16x16.F32.BF16 R24 gdesc[UR4] R24", 20),
    ("HGMMA.64x16x16.F32.BF16 R24 R4 gdesc[UR4] R24", 8),
])  # fmt: skip
def test_narrow_products_read_shared_memory_for_longer_than_they_work(name: str, busy: int) -> None:
    assert use(one(name), HOPPER).busy == busy


def test_what_is_not_known_takes_an_integer_unit() -> None:
    assert use(one("LOP3.LUT R1"), HOPPER).unit is Unit.INTEGER


def test_copies_by_an_engine_of_their_own_are_refused() -> None:
    with pytest.raises(UsageError, match=r"read UTMALDG.2D, whose engine beside the warps"):
        use(one("UTMALDG.2D [UR8] [UR6]"), HOPPER)


# -- a kernel, and calls of it -----------------------------------------------------------------


def test_cycles_of_a_machine() -> None:
    """A turn has a sum, a branch, four inner turns of a product and a branch, and a branch."""
    machine = Machine(CODE, loops("%c4_i32"), warps=4, beside=2, target=HOPPER)
    found = estimated(machine, rows=32, grid=(16, 2))
    assert (found.instructions, found.barriers, found.more) == (11, 0, None)
    assert found.alone == found.full == 4 + 5 + 4 * (1 + 5) + 5
    assert found.of_rows == found.full / 2 * 2 * 64 / 32
    unknown = estimated(replace(machine, ttgir=loops("%pairs")), rows=32, grid=(16, 2))
    assert unknown.more == 6


def test_targets_whose_units_are_not_known() -> None:
    allowed = "stalls: read target 'sm_120', allowed: sm_80, sm_90"
    with pytest.raises(UsageError, match=allowed):
        list(build.jobs(["gla"], "sm_120", stalls=True))


def test_rows_of_a_turn() -> None:
    assert rows_of("chunk_forward", {"C": 64, "ROWS": 48}) == 48
    assert rows_of("token_forward", {"C": 64}) == 1


def test_clocks_of_the_peaks() -> None:
    assert clock(HOPPER) == pytest.approx(1.83e9, rel=1e-3)
    assert clock(target("sm_80")) == pytest.approx(1.41e9, rel=1e-3)


ROW = {
    "spec": "some", "d": "128", "pass": "forward", "kernel": "chunk_scan", "sizes": "C=64 BV=64",
    "blocks": "2", "of a": "turn", "rows": "64", "programs": "2", "cycles": "3000", "alone": "2000",
    "inner": "",
}  # fmt: skip


def test_waves_of_a_call() -> None:
    """512 programs of 64 turns: a whole wave of 264, and 248, two on most multiprocessors."""
    found = part(ROW, Shape(8, 4096, 32, 128), HOPPER)
    assert found.programs == 512
    assert found.waves == pytest.approx(512 / 264)
    assert found.seconds == pytest.approx(2 * 3000 * 64 / clock(HOPPER))
    few = part(ROW, Shape(1, 8192, 8, 128), HOPPER)
    assert few.seconds == pytest.approx(2000 * 128 / clock(HOPPER))


def test_programs_of_a_chunk_each() -> None:
    row = ROW | {"of a": "program", "programs": "1", "blocks": "1", "cycles": "2000"}
    found = part(row, Shape(1, 8192, 8, 128), HOPPER)
    assert found.programs == 8 * 128
    assert found.seconds == pytest.approx(8 * 2000 / clock(HOPPER))


def test_chunks_that_go_over_all_pairs_before_them() -> None:
    row = ROW | {"inner": "100", "sizes": "C=64 BN=32", "blocks": "1", "cycles": "2000"}
    found = part(row, Shape(1, 8192, 8, 128), HOPPER)
    assert found.seconds == pytest.approx((2000 + 100 * 127) * 128 / clock(HOPPER))
    (call,) = (x for x in calls([row], HOPPER) if x.shape == Shape(1, 8192, 8, 128))
    assert not call.least
    (other,) = (x for x in calls([row | {"sizes": ""}], HOPPER) if x.shape == call.shape)
    assert other.least


def test_programs_of_a_block_of_pairs_each() -> None:
    """8,192 pairs are 256 blocks of 32; on the average 64 of 128 chunks are behind one. A short
    call's programs say nothing of it."""
    row = ROW | {"kernel": "chunk_backward_pairs", "sizes": "C=64 BN=32", "programs": "4"}
    found = part(row, Shape(1, 8192, 8, 128), HOPPER)
    assert found.programs == 8 * 256
    assert work_of(row, Shape(1, 8192, 8, 128)) == Work(1, 256, 64, 0)


def test_kernels_that_are_launched_part_by_part() -> None:
    """128 chunks in 16 parts of 8; half of 8,192 pairs are 64 blocks of 64, half a part's own 4."""
    shape, row = Shape(1, 8192, 8, 128), ROW | {"sizes": "C=64 BN=64 PART=8", "inner": "100"}
    told = {
        name: work_of(row | {"kernel": f"chunk_{name}"}, shape)
        for name in ("earlier", "making", "back_making", "back_earlier")
    }
    assert told == {
        "earlier": Work(16, 8, 64, 0), "making": Work(16, 1, 8, 4),
        "back_making": Work(16, 1, 8, 4), "back_earlier": Work(16, 64, 8, 0),
    }  # fmt: skip
    making = part(row | {"kernel": "chunk_making", "blocks": "1"}, shape, HOPPER)
    assert making.seconds == pytest.approx(128 * (2000 + 3 * 100) / clock(HOPPER))


def test_the_table_of_the_repository() -> None:
    """What stands there hangs together, and programs beside each other take no less than one."""
    file = Path(__file__).parents[2] / "benchmarks" / "kernels" / "cycles.md"
    rows = [
        dict(zip(cycle_table.HEADINGS, row, strict=True))
        for found in parsed(file.read_text(encoding="utf-8"), cycle_table.HEADINGS).values()
        for row in found
    ]
    assert len({row["spec"] for row in rows}) > 8
    for row in rows:
        cycles, alone, blocks, programs, size = (
            int(row[name]) for name in ("cycles", "alone", "blocks", "programs", "rows")
        )
        assert alone <= cycles < max(2, blocks) * alone
        assert int(row["64 rows"]) == pytest.approx(
            cycles / blocks * programs * 64 / size, rel=0.01
        )


def simulated(width: int, warps: int) -> dict:
    from dataclasses import asdict

    import samples

    with compiling(target("sm_90"), stalls=True) as log:
        q = torch.randn(2, 256, width, dtype=torch.bfloat16)
        samples.linear(q, q, q, torch.empty_like(q), warps=warps)
    (kernel,) = log.kernels
    assert kernel.cycles is not None
    return {**asdict(kernel.cycles), "of_rows": kernel.cycles.of_rows}


def test_a_compiled_kernel(compiler) -> None:
    """A turn of linear attention has at least its products, and at least its instructions."""
    found = compiler(simulated, width=64, warps=4)
    assert (found["whole"], found["rows"], found["programs"], found["more"]) == (False, 64, 1, None)
    products = 4 * 64 * 64 * 64 / (4 * 512)
    assert found["alone"] > max(products, found["instructions"])
    assert found["alone"] <= found["full"] < found["beside"] * found["alone"]
    assert found["alone"] < 10 * products
    assert found["barriers"] >= 1
    assert 0 < sum(found["waits"].values()) < 1


def ways(folder: str) -> dict[str, dict[str, float]]:
    """Cycles for 64 rows by kernel, in one kernel and in several."""
    from mnemic.codegen.package import load, support
    from mnemic.kernels.jobs import Subject, alone

    module = load(Path(folder))
    fused = support(module, "fused")
    subject = Subject.of(module, 64, torch.bfloat16)
    found = {}
    for name, several in (("one", False), ("several", True)):
        with compiling(target("sm_90"), stalls=True) as log, alone():
            with fused.in_several(always=several):
                subject.forward()
            cycles = {kernel.name: kernel.cycles for kernel in log.since(0)}
        found[name] = {n: x.of_rows for n, x in cycles.items() if isinstance(x, Cycles)}
    return found


@pytest.mark.full
def test_a_scan_takes_fewer_cycles_than_all_in_one_kernel(compiler) -> None:
    """What no state reaches is not in its loop, and products have more rows."""
    found = compiler(ways, folder=str(pipeline.compile("gated-deltanet").folder))
    assert set(found["several"]) == {"chunk_parallel", "chunk_scan"}
    assert found["several"]["chunk_scan"] < found["one"]["chunk_forward"] / 2
    assert sum(found["several"].values()) < found["one"]["chunk_forward"]
