"""One operation printed on tiles as kernels print it, in a kernel of its own, with padding."""

import importlib.util
import itertools
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import torch
import triton.language as tl
from sampled import SIZES, Drawn, axes_of, drawn, plan_of
from torch import Tensor

from mnemic.codegen.ops import OPERATIONS
from mnemic.codegen.ops.operation import TOKEN
from mnemic.codegen.plan import Plan
from mnemic.codegen.support import interpreted
from mnemic.codegen.tiled.axes import joined
from mnemic.codegen.tiled.layout import ROWS, SOURCES, Layout, turned
from mnemic.codegen.tiled.statements import statement
from mnemic.codegen.tiled.windows import Windows

NAMES = {
    "t": ROWS, "s": ROWS, "c": ROWS, "n": "DN", "k": "DK", "v": "DV", "r": "DR", "l": "DL",
    "S": SOURCES, "U": SOURCES, "1": "D1",
}  # fmt: skip
BLOCKS = {ROWS: 16, SOURCES: 32, "DN": 16, "DK": 16, "DV": 16, "DR": 4, "DL": 8, "D1": 1}
WIDTHS = {"DN": SIZES["n"], "DK": SIZES["k"], "DV": SIZES["v"], "DR": SIZES["r"], "DL": SIZES["l"],
          "D1": 1}  # fmt: skip

HEAD = """\
import triton
import triton.language as tl
from mnemic.codegen.support import tiles


@triton.jit
def trial({pointers}, out, PRECISION: tl.constexpr, REAL: tl.constexpr, C: tl.constexpr,
          SOURCES: tl.constexpr):
    live = {live}
    live_SOURCES = {sources}
"""
number = itertools.count()


def difference(name: str, form: str, short: bool, precision: str = "fp64") -> float:
    """How far a tile function is from PyTorch's, in the entries that are there."""
    operation = OPERATIONS[name]
    given = drawn(operation, form, short=short, lead=())
    expected = given.run(given.tensors)
    tensors = given.tensors if precision == "fp64" else _short(given.tensors)
    with interpreted.products():
        found = _launched(given, tensors, form, precision)
    assert found.shape[found.ndim - expected.ndim :] == expected.shape
    assert bool(torch.isfinite(expected).all())
    return float((found - expected).abs().max() / (1 + expected.abs().max()))


def _short(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: x.float() for name, x in tensors.items()}


def _launched(given: Drawn, tensors: dict[str, Tensor], form: str, precision: str) -> Tensor:
    plan = plan_of(given)
    text = statement(_layout(given, plan, form), plan["y"], {})
    lines = [f"    {s} = {w}\n    in_{s} = tl.arange(0, {BLOCKS[s]}) < {w}"
             for s, w in WIDTHS.items()]  # fmt: skip
    lines += [f"    {n} = {_load(n, letters)}" for n, letters in given.letters.items()]
    blocks = [BLOCKS[NAMES[letter]] for letter in given.gives]
    shape = f"[{', '.join(map(str, _stored(given.gives, blocks)))}]"
    if blocks:
        text = f"tl.broadcast_to({text}, {shape})"
    lines += [f"    y = {text}", f"    tl.store(out + {_place(given.gives)}, y)"]
    sources = next((SIZES[x] for x in "".join((*given.letters.values(), given.gives))
                    if x in "SU"), 0)  # fmt: skip
    head = HEAD.format(pointers=", ".join(f"at_{n}" for n in given.letters),
                       live=SIZES["t"], sources=sources)  # fmt: skip
    out = torch.full(blocks, float("nan"), dtype=torch.float64)
    real = tl.float64 if precision == "fp64" else tl.float32
    padded = [_padded(x, given.letters[n]) for n, x in tensors.items()]
    kernel = _module(head + "\n".join(lines) + "\n").trial
    kernel[(1,)](*padded, out, precision, real, BLOCKS[ROWS], BLOCKS[SOURCES])
    return out[tuple(slice(0, SIZES[letter]) for letter in given.gives)]


def _layout(given: Drawn, plan: Plan, form: str) -> Layout:
    """The plan on tiles, with a name for the size of each axis."""
    axes = joined(plan, form, plan.ordered())
    names = {}
    for name, letters in {**given.letters, "y": given.gives}.items():
        for i, letter in enumerate(letters):
            names[axes.find((name, i))] = NAMES[letter]
    return Layout(plan, axes, form != TOKEN, names, (), (), plan.ordered(), "",
                  windows=Windows(SIZES["r"]))  # fmt: skip


def _stored(letters: str, sizes: list[int]) -> list[int]:
    return sizes[::-1] if turned(axes_of(letters)) else sizes


def _padded(x: Tensor, letters: str) -> Tensor:
    """Zero beyond what is there; a factor is the unit's there, as a chunk's factor is."""
    found = torch.zeros([BLOCKS[NAMES[letter]] for letter in letters], dtype=x.dtype)
    found[tuple(slice(0, SIZES[letter]) for letter in letters)] = x
    square = letters == "tt" and bool((x.diagonal() > 0).all())
    if square and bool((x.triu(1) == 0).all()):
        found += torch.diag((torch.arange(len(found)) >= len(x)).to(x.dtype))
    return found


def _place(letters: str) -> str:
    """The places of a tile's entries: a memory is held the other way round."""
    sizes = [BLOCKS[NAMES[letter]] for letter in letters]
    index = [f"tl.arange(0, {size})" for size in sizes]
    if len(index) < 2:
        return index[0] if index else "0"
    if turned(axes_of(letters)):
        return f"{index[0]}[None, :] * {sizes[1]} + {index[1]}[:, None]"
    return f"{index[0]}[:, None] * {sizes[1]} + {index[1]}[None, :]"


def _load(name: str, letters: str) -> str:
    return f"tl.load(at_{name} + {_place(letters)})"


def _module(source: str) -> ModuleType:
    """A module of this source: Triton reads a kernel's file."""
    name = f"trial_{next(number)}"
    path = Path(tempfile.mkdtemp()) / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
