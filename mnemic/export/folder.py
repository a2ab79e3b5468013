"""The graphs of a model's folder: written whole or not at all, beside a card that tells of them."""

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mnemic.errors import CheckFailed, EnvironmentFailed, UsageError
from mnemic.export.agreement import compare
from mnemic.export.card_section import with_section
from mnemic.export.graph import Graphs, graphs_of
from mnemic.export.graph_files import write_graphs
from mnemic.hf.checks import Check
from mnemic.hf.folder import load

INSIDE: Final = "onnx"
"""The folder of the graphs in a model's."""

_CARD: Final = "README.md"


def export_folder(
    folder: Path, *, verify: bool = True, replace: bool = False
) -> tuple[Path, Graphs, tuple[Check, ...]]:
    """Write the graphs of a model's folder into its ``onnx``, and tell of them in its card.

    Args:
        folder: a model's, as ``mnemic model`` or a training wrote it.
        verify: whether to run them in ONNX Runtime beside PyTorch first.
        replace: whether graphs that are there may be written over.

    Raises:
        UsageError: no model, or one that has no graph; it says why.
        CheckFailed: a graph computes something else than PyTorch; nothing is written.
        EnvironmentFailed: the runtime does not run it, or the folder cannot be written.
    """
    folder = folder.expanduser().resolve()
    place = folder / INSIDE
    if place.exists() and not replace:
        raise UsageError(f"{place}: is there already; --replace writes over it")
    model = load(folder).float().eval()
    graphs = graphs_of(model)
    try:
        beside = Path(tempfile.mkdtemp(prefix=f".{INSIDE}.", dir=folder))
        try:
            write_graphs(graphs, beside)
            found = compare(model, beside) if verify else ()
            refuse_unequal(found)
            card = _card(folder, model.config.layers, graphs, found)
            (beside / _CARD).write_text(card, encoding="utf-8")
            beside.chmod(0o755)
            if place.exists():
                shutil.rmtree(place)
            os.replace(beside, place)
            os.replace(place / _CARD, folder / _CARD)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    except OSError as error:
        raise EnvironmentFailed(f"cannot write {place}: {error.strerror}") from None
    return place, graphs, found


def refuse_unequal(checks: Sequence[Check]) -> None:
    """Refuse graphs that differ from PyTorch by more than rounding.

    Raises:
        CheckFailed: they do.
    """
    wrong = [f"{c.name}: {c.error:.1e}, allowed {c.bound:.0e}" for c in checks if not c.passed]
    if wrong:
        raise CheckFailed(f"no graph is written, since these are not equal: {'; '.join(wrong)}")


def _card(folder: Path, layers: Sequence[str], graphs: Graphs, found: Sequence[Check]) -> str:
    path = folder / _CARD
    was = path.read_text(encoding="utf-8") if path.is_file() else ""
    return with_section(was, layers, graphs.standard, found)
