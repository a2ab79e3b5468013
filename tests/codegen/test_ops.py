"""The support functions under one name: none hides another."""

import ast
import importlib
from pathlib import Path

import pytest

from mnemic.codegen.support import ops
from mnemic.codegen.support.signature import Coefficient, Signature

TREE = ast.parse(Path(ops.__file__).read_text(encoding="utf-8"))
STARS = [
    node.module
    for node in TREE.body
    if isinstance(node, ast.ImportFrom) and node.names[0].name == "*" and node.module
]


@pytest.mark.parametrize("name", STARS)
def test_no_star_import_is_shadowed(name: str) -> None:
    module = importlib.import_module(f"mnemic.codegen.support.{name}")
    public = {n: x for n, x in vars(module).items() if not n.startswith("_")}
    own = {n for n, x in public.items() if getattr(x, "__module__", None) == module.__name__}
    assert own, "a module without functions of its own"
    hidden = [n for n, x in public.items() if getattr(ops, n) is not x]
    assert not hidden, f"{name}: another module's {hidden} is what ops has"


AXES = {"": (), "k": (4,), "K": (15,), "v": (3,), "c": (5,), "s": (6,), "l": (7,)}


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("micro", [False, True])
def test_shapes_of_coefficients(axes: str, micro: bool) -> None:
    """After [B, T]: the step's axis, the heads, then what the coefficient's letter says."""
    one = Coefficient("x", "", axes, 0.0, 1.0, micro)
    told = Signature(
        "x", (one,), (), (), ("recurrent",), steps=2, window=5, slots=6, levels=7,
        features="monomials(2)",
    )  # fmt: skip
    assert told.shape(one, 2, 4, 3) == (*((2,) if micro else ()), 2, *AXES[axes])
