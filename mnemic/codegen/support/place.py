"""Where sequences lie in their documents and in a batch, for fused kernels."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Place:
    """Tokens of the documents before these, and where the sequences begin and end.

    ``positions`` [S] are on the device, or None where no kernel asks; ``position`` is theirs where
    the host must know it. ``anchor`` is the interval at whose ends memories move (1 where there is
    none), ``wanted`` how many rows a chunk the caller asks for. ``bounds`` [S + 1] are the ends of
    documents packed into one row of a batch, in tokens, none longer than ``longest`` (0: unknown);
    without them a row is a sequence.
    """

    anchor: int = 1
    wanted: int | None = None
    positions: Tensor | None = None
    position: int = 0
    bounds: Tensor | None = None
    longest: int = 0

    def tokens(self, rows: int, steps: int) -> int:
        """Return the tokens a chunk of at most so many rows; they divide the anchor."""
        most = max(1, min(rows, self.wanted or rows) // steps)
        if self.anchor == 1:
            return most
        return max(n for n in range(1, most + 1) if self.anchor % n == 0)

    def rows(self, rows: int, steps: int) -> int:
        """Return the rows a chunk: whole tokens, of at most so many rows."""
        return self.tokens(rows, steps) * steps

    def numbers(self) -> list[int]:
        """Return anchor, wanted, position and longest, as operators take them; 0 where not told."""
        return [self.anchor, self.wanted or 0, self.position, self.longest]

    @classmethod
    def of(cls, numbers: list[int]) -> "Place":
        """Make a place of the four numbers that ``numbers`` gave."""
        anchor, wanted, position, longest = numbers
        return cls(anchor, wanted or None, position=position, longest=longest)
