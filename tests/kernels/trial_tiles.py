"""Runs one tile function in a kernel of its own, on operands that are padded."""

import importlib.util
import itertools
import sys
import tempfile
from pathlib import Path

import torch
from torch import Tensor

from mnemic.codegen.support import ops

ROWS, WIDTH, CHANNELS = 5, 3, 5
SIZES = {"t": ROWS, "s": ROWS * WIDTH, "u": ROWS + WIDTH - 1, "k": CHANNELS, "r": WIDTH}
BLOCKS = {"t": 16, "s": 32, "u": 16, "k": 16, "r": 4}
EXTRAS = {
    "P": '"fp64"',
    "B": '"bf16"',
    "I": '"ieee"',
    "S": "32",
    "T": "16",
    "U": "16",
    "L": str(ROWS),
}

HEAD = """\
import triton
import triton.language as tl
from mnemic.codegen.support import tiles


@triton.jit
def trial({names}, out):
"""
number = itertools.count()


def drawn(takes: list[str]) -> list[tuple[str, Tensor]]:
    """Random operands with their axes."""
    torch.manual_seed(0)
    found: list[tuple[str, Tensor]] = []
    for kind in takes:
        found.append(_one(kind, found))
    return found


def _one(kind: str, before: list[tuple[str, Tensor]]) -> tuple[str, Tensor]:
    real = torch.float64
    match kind:
        case "n":
            return "", torch.randn((), dtype=real)
        case "d":
            return "tk", -torch.rand(ROWS, CHANNELS, dtype=real)
        case "g":
            return "t", -torch.rand(ROWS, dtype=real)
        case "t9":
            return "t", torch.rand(ROWS, dtype=real) + 3
        case "top":
            return "t", ops.running_maximum(before[0][1], before[1][1], torch.tensor(-9.0).double())
        case "p":
            root = torch.randn(CHANNELS, CHANNELS, dtype=real)
            return "kk", root @ root.mT + torch.eye(CHANNELS)
        case "l":
            root = torch.randn(ROWS, ROWS, dtype=real)
            return "tt", torch.linalg.cholesky(root @ root.mT + torch.eye(ROWS))
        case "mix":
            return "tt", torch.rand(ROWS, ROWS, dtype=real).tril()
        case "tk~":  # K P of the keys K that are drawn next: P = 1
            state = torch.get_rng_state()
            keys = torch.randn(ROWS, CHANNELS, dtype=real)
            torch.set_rng_state(state)
            return "tk", keys
    axes = kind.rstrip("+")
    x = torch.randn(*(SIZES[a] for a in axes), dtype=real)
    return axes, x.abs() + 0.5 if kind.endswith("+") else x


def expected(name: str, given: list[tuple[str, Tensor]], options: dict) -> Tensor:
    """What PyTorch's function gives; scores of windows take windows."""
    return getattr(ops, name)(*(x for _, x in given), **options)


def launched(name: str, given: list[tuple[str, Tensor]], extras: list, gives: str) -> Tensor:
    """What the tile function gives, without its padding."""
    names = [f"x{i}" for i in range(len(given))]
    lines = [f"    a{i} = {_load(axes, names[i])}" for i, (axes, _) in enumerate(given)]
    held = name in ("recall_rows", "pull_rows")
    arguments = [f"a{i}" for i in range(len(given))]
    if held:
        arguments[0] = f"tl.trans({arguments[0]})"  # memories are held the other way round
    arguments += [EXTRAS.get(str(extra), repr(extra)) for extra in extras]
    lines += [f"    y = tiles.{name}({', '.join(arguments)})", f"    {_store(gives)}"]
    source = HEAD.format(names=", ".join(names)) + "\n".join(lines) + "\n"
    out = torch.full([BLOCKS[a] for a in gives], float("nan"), dtype=torch.float64)
    _module(source).trial[(1,)](*(_padded(axes, x) for axes, x in given), out)
    return out[tuple(slice(0, SIZES[a]) for a in gives)]


def _padded(axes: str, x: Tensor) -> Tensor:
    """Zero beyond what is there; a factor is the unit's there, as a chunk's factor is."""
    found = torch.zeros([BLOCKS[a] for a in axes], dtype=x.dtype)
    found[tuple(slice(0, SIZES[a]) for a in axes)] = x
    if axes == "tt" and bool((x.diagonal() > 0).all()) and bool((x.triu(1) == 0).all()):
        found += torch.diag((torch.arange(BLOCKS["t"]) >= ROWS).double())
    return found


def _place(axes: str) -> str:
    index = [f"tl.arange(0, {BLOCKS[a]})" for a in axes]
    if len(index) == 2:
        return f"{index[0]}[:, None] * {BLOCKS[axes[1]]} + {index[1]}[None, :]"
    return index[0] if index else "0"


def _load(axes: str, name: str) -> str:
    return f"tl.load({name} + {_place(axes)})"


def _store(axes: str) -> str:
    return f"tl.store(out + {_place(axes)}, y)"


def _module(source: str):
    """A module of this source: Triton reads a kernel's file."""
    name = f"trial_{next(number)}"
    path = Path(tempfile.mkdtemp()) / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
