"""Loops found in machine code, and what a turn of the longest costs."""

from mnemic.kernels.loops import Chunk, chunk

CODE = """
        /*0000*/                   S2R R0, SR_TID.X ;
.L_x_1:
        /*0010*/                   LDG.E R1, [R2.64] ;
        /*0020*/                   FADD R1, R1, R1 ;
.L_x_2:
        /*0030*/                   FMUL R1, R1, R1 ;
        /*0040*/                   NOP ;
        /*0050*/              @!P0 BRA `(.L_x_2) ;
        /*0060*/                   STG.E [R2.64], R1 ;
        /*0070*/              @P1  BRA `(.L_x_1) ;
        /*0080*/                   BRA `(.L_x_3) ;
.L_x_3:
        /*0090*/                   EXIT ;
"""

TURNS = """
    %c0_i32 = arith.constant 0 : i32
    %c16_i32 = arith.constant 16 : i32
    %c2_i32 = arith.constant 2 : i32
    scf.for %chunk = %c0_i32 to %chunks step %c2_i32 : i32 {
      scf.for %block = %c0_i32 to %c16_i32 step %c2_i32 : i32 {
        %x = arith.addf %x, %x
      }
      %y = arith.addf %x, %x
    }
"""


def test_inner_loops_count_by_their_turns() -> None:
    assert chunk(CODE, TURNS) == Chunk(written=6, executed=6 + 7 * 2, inner=(2,))


def test_turns_that_are_not_known() -> None:
    unknown = TURNS.replace("to %c16_i32", "to %blocks")
    assert chunk(CODE, unknown) == Chunk(written=6, executed=None, inner=(2,))


def test_turns_that_there_are_or_not() -> None:
    """As many as a constant says, times what is one or none."""
    block = "      scf.for %block"
    bound = f"      %end = arith.muli %some, %c16_i32 : i32\n{block}"
    hidden = TURNS.replace("to %c16_i32", "to %end").replace(block, bound)
    assert chunk(CODE, hidden) == chunk(CODE, TURNS)


def test_a_kernel_without_loops() -> None:
    assert chunk(CODE.replace("BRA", "MOV"), "") is None
