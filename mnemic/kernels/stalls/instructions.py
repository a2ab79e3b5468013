"""Machine code as nvdisasm prints it with ``-c -hex`` → instructions with their control words.

An instruction has 128 bits. Of the higher 64, from the 42nd on, the assembler tells the schedulers
what no hardware looks up: cycles before the warp may issue again, and which of its six scoreboards
the instruction counts up (until its result is there; until its operands are read) or waits for.

    bits 41-44 stall   45 yield   46-48 written   49-51 read   52-57 awaited   58-61 reuse
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

BOARDS = 6
"""Scoreboards a warp; in three bits 7 says none."""

LINE = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;\s*/\* 0x([0-9a-f]{16}) \*/")
SECOND = re.compile(r"^\s*/\* 0x([0-9a-f]{16}) \*/\s*$")
LABEL = re.compile(r"^\s*(\.L_x_\d+):")
NAMED = re.compile(r"\(?(\.L_x_\d+)\)")
ALWAYS = ("@PT", "@UPT")
WORDS = re.compile(r"[\s,]+")


@dataclass(frozen=True)
class Control:
    """What the assembler tells the schedulers of an instruction.

    Args:
        stall: cycles until the warp may issue again.
        written: the scoreboard that counts until the result is there.
        read: the one that counts until operands are read.
        wait: scoreboards that must be empty before.
    """

    stall: int = 1
    written: int | None = None
    read: int | None = None
    wait: tuple[int, ...] = ()

    @classmethod
    def of(cls, word: int) -> "Control":
        """Decode the control part of an instruction's higher 64 bits."""
        stall, written, read = word >> 41 & 15, word >> 46 & 7, word >> 49 & 7
        wait = tuple(board for board in range(BOARDS) if word >> 52 + board & 1)
        return cls(stall, _board(written), _board(read), wait)


def _board(number: int) -> int | None:
    return number if number < BOARDS else None


@dataclass(frozen=True)
class Instruction:
    """One instruction: its name with what modifies it (``LDG.E.128``), its operands, its control.

    ``guarded`` says that a predicate decides whether it runs, ``target`` at which instruction a
    branch goes on.
    """

    name: str
    operands: tuple[str, ...] = ()
    control: Control = Control()
    guarded: bool = False
    target: int | None = None

    @property
    def kind(self) -> str:
        """The instruction's name without its modifiers."""
        return self.name.partition(".")[0]

    @property
    def modifiers(self) -> tuple[str, ...]:
        """The modifiers behind the instruction's name."""
        return tuple(self.name.split(".")[1:])


def decode(disassembly: str) -> tuple[Instruction, ...]:
    """Decode the instructions of a disassembly with ``-hex``, in their order."""
    labels = dict(_labels(disassembly))
    return tuple(_instruction(text, word, labels) for text, word in _lines(disassembly))


def _lines(disassembly: str) -> Iterator[tuple[str, int]]:
    """Yield each instruction's text and its higher 64 bits, which stand on the next line."""
    text = None
    for line in disassembly.splitlines():
        if found := LINE.match(line):
            text = found[2]
        elif text is not None and (found := SECOND.match(line)):
            yield text, int(found[1], 16)
            text = None


def _labels(disassembly: str) -> Iterator[tuple[str, int]]:
    """Yield labels with the number of the instruction behind them."""
    count = 0
    for line in disassembly.splitlines():
        if found := LABEL.match(line):
            yield found[1], count
        count += LINE.match(line) is not None


def _instruction(text: str, word: int, labels: dict[str, int]) -> Instruction:
    guard, _, rest = text.partition(" ") if text.startswith("@") else ("", "", text)
    name, *operands = [x for x in WORDS.split(rest) if x]
    target = NAMED.search(rest) if name.startswith("BRA") else None
    return Instruction(
        name, tuple(operands), Control.of(word), bool(guard) and guard not in ALWAYS,
        labels.get(target[1]) if target else None,
    )  # fmt: skip
