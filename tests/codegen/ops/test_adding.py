"""An operation is added by one object (and its tile): everything that uses it follows."""

import ast
from pathlib import Path

import added
import pytest
import sympy as sp
import torch
from sampled import drawn
from test_operations import by_adjoint, by_autograd
from torch import Tensor

from mnemic import codegen
from mnemic.codegen import emit, tiled
from mnemic.codegen import ops as operations
from mnemic.codegen.ops import OPERATIONS, add
from mnemic.codegen.plan import Call, Map, Plan, Read
from mnemic.codegen.support import ops

CODEGEN = Path(codegen.__file__).parent
READING = ("adjoint", "streamed", "tiled")
"""Stages that read the objects."""


@pytest.fixture
def softened(monkeypatch: pytest.MonkeyPatch) -> str:
    """An operation that is there for one test."""
    monkeypatch.setitem(OPERATIONS, "softened", added.SOFTENED)
    monkeypatch.setattr(ops, "softened", added.softened, raising=False)
    return "softened"


def memory(function: str) -> Plan:
    """W ← W + v φ(k)ᵀ, y = W q, where φ is the operation."""
    plan = Plan()
    q, k, v = plan.given("q", ("k",)), plan.given("k", ("k",)), plan.given("v", ("v",))
    state = plan.given("W", ("v", "k"), state=True)
    key = plan.add("key", ("k",), Call(function, (k,)))
    new = plan.add("new", ("v", "k"), Call("outer", (v, key)))
    a, b = sp.symbols("a b", real=True)
    reads = (Read("a", state, ("v", "k")), Read("b", new, ("v", "k")))
    plan.following[state] = plan.add("W_next", ("v", "k"), Map(a + b, reads))
    plan.output = plan.add("y", ("v",), Call("recall", (plan.following[state], q)))
    return plan


def test_a_form_with_an_added_operation_runs(softened: str) -> None:
    text = emit.loop(memory(softened), {}, "A form.", "recurrent", "token")
    scope = {"torch": torch, "ops": ops}
    exec(text, scope)
    torch.manual_seed(0)
    q, k, v = (torch.randn(6, 2, n, dtype=torch.float64) for n in (3, 3, 4))
    start = torch.zeros(2, 4, 3, dtype=torch.float64)
    found, _ = scope["recurrent"](q, k, v, W=start, closes=lambda *_: False)
    torch.testing.assert_close(found, _expected(q, k, v))


def _expected(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """y_t = Σ_{s≤t} v_s (φ(k_s)·q_t)."""
    scores = torch.einsum("tmk,smk->mts", q, k / (1 + k.abs())).tril()
    return torch.einsum("mts,smv->tmv", scores, v)


@pytest.mark.parametrize("diagonal", [False, True])
def test_it_has_kernels_and_their_gradients(softened: str, diagonal: bool) -> None:
    plan = memory(softened)
    form = tiled.Form(plan, plan)
    found = tiled.kernels(None, form, frozenset(), 1, {}, diagonal=diagonal)
    assert found.missing == {"chunk": "no chunk form"}
    assert "= tiles.softened(k)" in found.text
    assert "def token_backward(" in found.text


def test_its_adjoint_is_tried(softened: str) -> None:
    given = drawn(OPERATIONS[softened])
    found, expected = by_adjoint(given), by_autograd(given)
    torch.testing.assert_close(found, expected)


def test_its_tile_is_tried(interpreter) -> None:
    assert interpreter(added.difference) < 1e-12


def test_two_of_one_name_are_refused() -> None:
    other = operations.Operation("recall", "k -> k")
    with pytest.raises(ValueError, match="there are two operations 'recall'"):
        add(other)
    assert OPERATIONS["recall"] is not other


@pytest.mark.parametrize("stage", READING)
def test_no_stage_has_a_table_of_operations(stage: str) -> None:
    """What a stage must know of several operations stands in their objects."""
    for path in sorted((CODEGEN / stage).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
                    named = parts
                case ast.Dict(keys=parts):
                    named = [part for part in parts if part is not None]
                case _:
                    continue
            found = [
                x.value for x in named if isinstance(x, ast.Constant) and x.value in OPERATIONS
            ]
            assert len(set(found) - {"total"}) < 2, (path.name, node.lineno, found)
