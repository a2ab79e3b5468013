"""Convert errors of torch and safetensors about a file to one-line messages."""

from __future__ import annotations

import errno
import pickle
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from safetensors import SafetensorError

from mnemic.errors import EnvironmentFailed, UsageError

ARCHIVE: Final = ("inline_container", "PytorchStreamWriter", "PytorchStreamReader")
"""Parts of torch that are named where it cannot end, or read, the archive that it saves in."""

REFUSED: Final = re.compile(r"([^:]+) \(os error \d+\)")
"""What the system said, as safetensors writes it."""

CUT: Final = "the checkpoint cannot be read: one of its files is truncated"


@contextmanager
def one_line_of(place: Path) -> Iterator[None]:
    """Convert an error in writing or reading below ``place`` to one line.

    Raises:
        EnvironmentFailed: the system does not let a file be written.
        UsageError: a file holds code, or is cut, or no file of tensors.
    """
    try:
        yield
    except pickle.UnpicklingError as error:
        raise UsageError(
            f"{place}: a file there is not a checkpoint of tensors and plain data alone, and is "
            "not loaded; remove the folder of the last checkpoint to go on from the one before"
        ) from error
    except SafetensorError as error:
        told = str(error)
        if found := REFUSED.search(told):
            raise EnvironmentFailed(f"cannot write {place}: {found[1].strip()}") from error
        raise UsageError(f"{place}: weights that cannot be read: {told}") from error
    except OSError as error:
        if error.filename is not None or error.errno != errno.EINVAL:
            raise
        raise UsageError(f"{place}: {CUT}") from error  # of an archive without its end
    except RuntimeError as error:
        told = str(error)
        if not any(part in told for part in ARCHIVE):
            raise
        if "Reader" in told:
            raise UsageError(f"{place}: {CUT}") from error
        raise EnvironmentFailed(
            f"cannot write {place}: a checkpoint could not be completed; is the disk full?"
        ) from error
