"""One sequence in several processes: each has a part, and states pass from one to the next."""

from mnemic.distributed.parts import part, shifted
from mnemic.distributed.sequence import AlongSequence, along_sequence

__all__ = ["AlongSequence", "along_sequence", "part", "shifted"]
