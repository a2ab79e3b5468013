"""What a model's card says of its graphs."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

import onnxruntime
import torch

from mnemic.export.agreement import LEAST, NUDGED, TIMES
from mnemic.export.linear_attention import OPSET
from mnemic.export.standard_rules import Standard
from mnemic.hf.checks import Check

SECTION: Final = """## ONNX

`onnx/start.onnx`, `onnx/prefill.onnx` and `onnx/step.onnx`, in float32 over `onnx/weights.bin`.
{nodes}

{checks}
"""

_OLD: Final = re.compile(r"^## ONNX\n.*?(?=^## |\Z)", re.DOTALL | re.MULTILINE)
_BEFORE: Final = "## Costs\n"


def with_section(
    card: str, layers: Sequence[str], standard: Mapping[str, Standard], checks: Sequence[Check]
) -> str:
    """Return a card that tells of a model's graphs; what it said of earlier ones is gone."""
    told = SECTION.format(nodes=_nodes(layers, standard), checks=_table(checks))
    plain = _OLD.sub("", card)
    before, found, after = plain.partition(_BEFORE)
    if not found:
        return f"{plain.rstrip()}\n\n{told}"
    return f"{before}{told}\n{found}{after}"


def _nodes(layers: Sequence[str], standard: Mapping[str, Standard]) -> str:
    names = list(dict.fromkeys(layers))
    ours = [f"`{n}` (`{standard[n].update_rule}`)" for n in names if n in standard]
    others = [f"`{n}`" for n in names if n not in standard]
    lines = []
    if ours:
        lines.append(f"Nodes of `LinearAttention` (opset {OPSET}): {', '.join(ours)}.")
    if others:
        lines.append(f"Token by token, in a `Scan`: {', '.join(others)}.")
    return "\n".join(lines)


def _table(checks: Sequence[Check]) -> str:
    if not checks:
        return "They were not run when they were written."
    told = (
        f"ONNX Runtime {onnxruntime.__version__} on a processor, from PyTorch {torch.__version__} "
        "in float64: the largest difference in logits\nand states, relative to each one's largest "
        f"number. Allowed: {TIMES} times that of PyTorch's own float32 (the largest of\n"
        f"{NUDGED + 1} runs, {NUDGED} with parameters moved by a rounding), {LEAST:.0e} at least."
    )
    rows = [
        f"| {c.name} | {c.error:.1e} | {c.bound:.0e} | {'passed' if c.passed else 'FAILED'} |"
        for c in checks
    ]
    head = ["| equal | difference | allowed | |", "| --- | --- | --- | --- |"]
    return "\n".join([told, "", *head, *rows])
