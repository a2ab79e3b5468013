"""What cannot be exported, each as one message that says what is in the way and what is allowed."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.export import ExportedProgram, default_decompositions
from torch.fx import GraphModule

from mnemic.errors import UsageError

_OPERATOR: Final = re.compile(r"No ONNX function found for <OpOverload\(op='([\w.]+)'")
LONGEST: Final = 200
"""Characters of what torch says."""

ALLOWED: Final = "allowed: memories whose state has one size, of operators that ONNX has"


def refuse_growing(
    layers: Sequence[str],
    before: Sequence[Mapping[str, Tensor]],
    after: Sequence[Mapping[str, Tensor]],
) -> None:
    """Refuse a model one of whose states has another shape after more tokens.

    Raises:
        UsageError: it has.
    """
    for block, (name, start, later) in enumerate(zip(layers, before, after, strict=True)):
        for key in later:
            one, other = (list(s[key].shape) if key in s else [] for s in (start, later))
            if one != other:
                raise UsageError(
                    f"block {block}, {name}: its state {key!r} grows with the tokens, from {one} "
                    f"to {other}; {ALLOWED}"
                )


@contextmanager
def one_refusal(layers: Sequence[str]) -> Iterator[None]:
    """Tell in one line why a model of these memories has no graph.

    Raises:
        UsageError: an operator that ONNX lacks, or a rule that torch.export cannot trace.
    """
    what = ", ".join(dict.fromkeys(layers))
    try:
        yield
    except torch.onnx.errors.OnnxExporterError as error:
        if found := _OPERATOR.search(str(error)):
            raise UsageError(f"{what}: ONNX has no operator for {found[1]}; {ALLOWED}") from error
        raise UsageError(f"{what}: torch.onnx refuses it: {_reason(error)}; {ALLOWED}") from error
    except (RuntimeError, ValueError, TypeError, AssertionError) as error:
        ours = type(error).__name__ == "ArgumentError"  # of a compiled rule, which says its name
        told = "" if ours else f"{what}: torch.export refuses it: "
        raise UsageError(f"{told}{_reason(error)}; {ALLOWED}") from error


def refuse_lacking(layers: Sequence[str], program: ExportedProgram) -> None:
    """Refuse a program with an operator that ONNX's exporter neither knows nor takes apart.

    Raises:
        UsageError: the first such.
    """
    from torch.onnx._internal.exporter import _registration

    known, apart = _registration.ONNXRegistry.from_torchlib(), default_decompositions()
    for graph in program.graph_module.modules():
        nodes = graph.graph.nodes if isinstance(graph, GraphModule) else ()
        for target in [n.target for n in nodes if isinstance(n.target, OpOverload)]:
            if known.is_registered(target) or target in apart or target._can_decompose():
                continue
            if target._schema.returns:  # others check, and are left out
                what, name = ", ".join(dict.fromkeys(layers)), str(target).removesuffix(".default")
                raise UsageError(f"{what}: ONNX has no operator for {name}; {ALLOWED}")


def _reason(error: BaseException) -> str:
    """Return in a line what is behind an error of torch, which tells it behind a title."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    shown = [line for line in lines[:2] if line.startswith("Explanation: ")] or lines[:1]
    told = shown[0].removeprefix("Explanation: ") if shown else type(error).__name__
    return told if len(told) <= LONGEST else f"{told[:LONGEST]}…"
