"""Reverse mode on plans: every spec's forms, and rules of one's own, beside autograd."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import sympy as sp
import test_deep
import torch
from adjoints import (
    adjoint_of,
    asked,
    by_adjoint,
    by_autograd,
    memories,
    plan_of,
    printed,
    symmetric,
)
from conformance import Case, close, compiled, every_form
from test_own_expressions import FAILED, GENERATORS, LOSSES, SETTINGS, check_drawn
from tiers import examples

from mnemic.codegen import emit
from mnemic.codegen.adjoint import NoAdjoint, adjoint
from mnemic.codegen.adjoint.reverse import INDICES
from mnemic.codegen.cut import cut
from mnemic.codegen.derivative import derivative
from mnemic.codegen.ops import OPERATIONS
from mnemic.codegen.ops.pulled import whole
from mnemic.codegen.plan import Call, Given, Map, Plan, Read
from mnemic.codegen.support import ops
from mnemic.codegen.support.pulled_back import FUNCTIONS as PULLED
from mnemic.codegen.torch_printer import print_torch
from mnemic.compiler import symbols as sym
from mnemic.compiler.rule import Levels

TOLERANCE = 1e-10
WHOLE = {name for name, operation in OPERATIONS.items() if operation.adjoint is whole}
TILED = ("additive", "affine", "residual", "frozen", "second-order")
"""Classes whose adjoints are made of rules alone: no function is differentiated by PyTorch."""


def conforms(case: Case, form: str, tolerance: float = TOLERANCE) -> None:
    """The adjoint of every call that the operator makes, beside autograd of the form."""
    options = {"chunk_size": 8} if form == "chunk" else {}
    adjoints = [adjoint_of(rule, form) for rule in memories(case)]
    for call in asked(case, form, 19 if form == "chunk" else 11, **options):
        found = symmetric(by_adjoint(adjoints[call.memory], call))
        expected = symmetric(by_autograd(call))
        missing = expected.keys() - found.keys()
        assert all(n in INDICES or not expected[n].any() for n in missing), missing
        assert found
        close({n: found[n] for n in found}, {n: expected[n] for n in found}, tolerance)


def own_conforms(spec: Mapping[str, Any]) -> None:
    """The same for every form of a spec of one's own."""
    case = compiled({"name": "own", **spec}, kernels=False)
    for form in case.forms:
        conforms(case, form)


@pytest.mark.parametrize(("name", "form"), every_form())
def test_adjoint_is_autograd(name: str, form: str) -> None:
    conforms(compiled(name), form)


@pytest.mark.some(5)
@pytest.mark.parametrize("loss", LOSSES)
def test_losses_of_ones_own(loss: str) -> None:
    own_conforms({**LOSSES[loss], **SETTINGS["gated before"]})


@pytest.mark.some(5)
@pytest.mark.few
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("loss", ["log(cosh(e))", "where(n<=delta, n**2/2, delta*(n-delta/2))"])
def test_settings_of_ones_own(loss: str, setting: str) -> None:
    own_conforms({**LOSSES[loss], **SETTINGS[setting]})


def test_a_root_of_a_loss_of_ones_own() -> None:
    own_conforms({"bias": {"expr": "(e**2+0.01)**0.5"}, **SETTINGS["momentum"]})


@pytest.mark.some(1)
@pytest.mark.parametrize("loss", ["log(cosh(e))", "abs(e)", "softplus(y)-v*y"])
def test_implicit_steps_of_losses_of_ones_own(loss: str) -> None:
    optimizer = {"method": "implicit", "rate": "token"}
    own_conforms({"bias": {"expr": loss}, "optimizer": optimizer})


@pytest.mark.parametrize("text", ["x*sigmoid(x)", "exp(x)", "relu(x)**2"])
def test_features_of_ones_own(text: str) -> None:
    own_conforms({"bias": "l2", "features": {"expr": text}, **SETTINGS["by channel"]})


@pytest.mark.few
@pytest.mark.parametrize("view", ["ftrl", "learning-retaining"])
@pytest.mark.parametrize("generator", GENERATORS)
def test_links_of_ones_own(generator: str, view: str) -> None:
    retention = {"local": {"bregman": generator}, "view": view, "decay": "token"}
    own_conforms(
        {"bias": "l2", "retention": retention, "optimizer": SETTINGS["anchor"]["optimizer"]}
    )


@pytest.mark.some(4)
@pytest.mark.parametrize("title", test_deep.TITLES)
def test_deep_memories_of_ones_own(title: str) -> None:
    own_conforms({"bias": "l2", **test_deep.L2[title]})


@pytest.mark.some(4)
@pytest.mark.parametrize("wrong", FAILED)
def test_rules_whose_forms_failed_once(wrong: str) -> None:
    own_conforms(FAILED[wrong])


def test_drawn_specs() -> None:
    def compared(spec: Mapping[str, Any]) -> bool:
        own_conforms(spec)
        return True

    check_drawn(compared, examples(15, 5))


# -- what an adjoint is made of --------------------------------------------------------------


@pytest.mark.few
@pytest.mark.parametrize(("name", "form"), every_form())
def test_an_adjoint_is_a_plan_of_the_states_before(name: str, form: str) -> None:
    for rule in memories(compiled(name)):
        plan, found = plan_of(rule, form), adjoint_of(rule, form)
        assert set(found.states) == set(plan.states())
        assert set(found.plan.states()) == set(found.carried.values())
        assert found.plan.following.keys() == set(found.carried.values())
        assert found.plan.results == found.gradients
        assert found.gradients.keys() <= set(plan.arguments())
        called = [q.op for q in found.plan.ordered() if isinstance(q.op, Call)]
        pulled = {dict(op.options)["of"] for op in called if op.function == "pulled_back"}
        primal = {q.op.function for q in plan.ordered() if isinstance(q.op, Call)}
        assert pulled <= primal & WHOLE  # PyTorch's own gradients, of nothing else
        if rule.structure.algebra in TILED and not isinstance(rule, Levels):
            assert pulled <= {"features"}


def test_every_function_without_a_tile_is_there() -> None:
    assert PULLED.keys() >= WHOLE


def test_a_function_without_a_rule_is_named() -> None:
    plan = Plan()
    x = plan.given("x", ("t",))
    plan.output = plan.add("y", ("t",), Call("unheard_of", (x,)))
    with pytest.raises(NoAdjoint, match="no rule for the gradient of unheard of"):
        adjoint(plan)


def test_a_constant_needs_no_rule() -> None:
    plan = Plan()
    x = plan.given("x", ("t",))
    ones = plan.add("ones", ("t",), Call("filled", (x,), (("value", 1.0),)))
    w = plan.given("W", ("t",), state=True)
    plan.following[w] = ones
    s = sp.Symbol("s", real=True)
    plan.output = plan.add("y", ("t",), Map(2 * s, (Read("s", x, ("t",)),)))
    found = adjoint(plan)
    assert found.gradients.keys() == {"x"}
    before = found.plan[found.plan.following["d_W"]]
    assert before.op == Call("filled", ("W",), (("value", 0.0),))
    assert all(isinstance(found.plan[n].op, Given) for n in ("W", "d_out", "d_W"))


@pytest.mark.parametrize("name", ["based", "performer", "cosformer", "gated-deltanet", "kda"])
def test_a_plan_that_is_cut_gives_the_gradients_where_it_was_cut(name: str) -> None:
    """Cut at all that no state reaches: those quantities are arguments like any other."""
    case = compiled(name)
    plan = plan_of(case.rule, "chunk")
    hoisted = [q.name for q in plan.phases().before if not isinstance(q.op, Given)]
    read = [n for q in plan.phases().scan for n in q.reads()]
    inside = [n for n in hoisted if n in read]
    short = cut(plan, inside)
    assert set(inside) <= set(short.arguments())
    assert not {q.op.function for q in short.ordered() if isinstance(q.op, Call)} & {"features"}
    form = printed(emit.loop(short, {}, "", "chunk", "chunk"), plan.functions)["chunk"]
    for call in asked(case, "chunk", 19, chunk_size=8):
        made = printed(_before(plan, inside), plan.functions)["before"]
        rows = {n: x for n, x in call.arguments.items() if n in plan.arguments()}
        every = {**rows, **made(**rows)}
        given = {n: every[n] for n in short.arguments()}
        whole = replace(call, form=form, arguments=given)
        found, expected = by_adjoint(adjoint(short), whole), by_autograd(whole)
        assert set(inside) - found.keys() <= {n for n in inside if not expected[n].any()}
        close(found, {n: expected[n] for n in found}, TOLERANCE)


def _before(plan: Plan, names: list[str]) -> str:
    """A function of what no state reaches."""
    lines = [f"def before({', '.join(plan.arguments())}):"]
    lines += emit.block(plan, plan.phases().before, 4, {})
    return "\n".join([*lines, f"    return dict({', '.join(f'{n}={n}' for n in names)})"])


# -- kinks -----------------------------------------------------------------------------------

X, Y = sp.symbols("x y", real=True)
KINKED = (
    sp.Abs(X), sp.sign(X) * X, sp.Max(X, 0), sp.Min(X, 1), sp.Max(X, Y), sp.Min(X, Y, 1),
    sp.Abs(X) ** 3, sp.Max(sp.Abs(X) - 1, 0) ** 2, sp.Piecewise((X**2, X > 0), (Y * X, True)),
    sp.Piecewise((sp.sqrt(X), X > 0), (0, True)), sp.exp(sp.Min(0, X)) * Y,
    Y / sp.Max(sp.Abs(X), 1),
    sym.round(X) * Y, sp.sqrt(X**2 + Y**2 + sp.Rational(1, 100)),
    sp.sqrt(1 - X**2), Y * sp.sqrt(X - 1), (X + Y) ** sp.Rational(1, 3), X / (1 + sp.sqrt(Y + 1)),
    sp.sqrt(sp.Abs(X)), sp.Abs(X) ** sp.Rational(3, 2), sp.sqrt(1 - sp.Max(X, Y)),
)  # fmt: skip


@pytest.mark.parametrize("expr", KINKED, ids=str)
def test_derivatives_at_kinks_are_those_of_the_printed_expression(expr: Any) -> None:
    points = torch.tensor([-1.0, 0.0, 0.5, 1.0, 2.0], dtype=torch.float64)
    grid = torch.cartesian_prod(points, points)
    x, y = (z.clone().requires_grad_() for z in grid.unbind(-1))
    scope = {"torch": torch, "ops": ops, "TINY": ops.TINY}
    value = eval(print_torch(expr, {}), {**scope, "x": x, "y": y})
    leaves = {s: z for s, z in ((X, x), (Y, y)) if expr.has(s)}
    expected = torch.autograd.grad(value.sum(), list(leaves.values()))
    for symbol, gradient in zip(leaves, expected, strict=True):
        text = print_torch(derivative(expr, symbol), {})
        found = eval(text, {**scope, "x": x.detach(), "y": y.detach()})
        torch.testing.assert_close(torch.as_tensor(found).expand_as(gradient).double(), gradient)


def test_numbers_of_branches_keep_the_digits_of_float64() -> None:
    """A threshold of η/20: its slopes are the numbers ±1/20 and 0."""
    expr = sp.sign(X) * sp.Max(sp.Abs(X) - Y / 20, 0)
    for each in (derivative(expr, Y), sp.Piecewise((0.1, X > 1), (0.3, X > 0), (0.7, True))):
        x = torch.tensor([-2.0, 0.5, 2.0], dtype=torch.float64)
        scope = {"torch": torch, "ops": ops, "x": x, "y": torch.ones_like(x)}
        found = eval(print_torch(each, {}), scope)
        assert found.dtype == torch.float64
        expected = [float(each.subs({X: float(v), Y: 1.0})) for v in x]
        assert found.tolist() == expected
