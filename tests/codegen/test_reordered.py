"""Plans rewritten for tiles: the same gradients as autograd of the form, with fewer products."""

from dataclasses import replace

import pytest
from adjoints import asked, by_adjoint, by_autograd, memories, plan_of
from conformance import close, compiled

from mnemic.codegen.adjoint import adjoint
from mnemic.codegen.plan import Call, Map, Plan, Product
from mnemic.codegen.tiled.reordered import reordered, tidied

NAMES = (
    "gated-deltanet", "titans-linear", "comba", "gdn2", "rwkv7", "retnet", "deltaproduct",
    "huber-coordinate", "omega-linear",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_rewritten_plan_has_the_gradients_of_the_form(name: str) -> None:
    case = compiled(name)
    (rule,) = memories(case)
    plan = plan_of(rule, "chunk")
    found = adjoint(reordered(plan))
    tidy = replace(found, plan=tidied(found.plan))
    assert {q.op for q in tidy.plan.ordered()} != {q.op for q in adjoint(plan).plan.ordered()}
    for call in asked(case, "chunk", 19, chunk_size=8):
        expected = by_autograd(call)
        gradients = by_adjoint(tidy, call)
        shared = gradients.keys() & expected.keys()
        assert {"k", "v"} <= shared
        close({n: gradients[n] for n in shared}, {n: expected[n] for n in shared}, 1e-10)


def products(plan: Plan) -> list[Product]:
    return [q.op for q in plan.ordered() if isinstance(q.op, Product)]


def test_the_delta_rule_has_the_products_of_one_written_by_hand() -> None:
    (rule,) = memories(compiled("gated-deltanet"))
    plan = reordered(plan_of(rule, "chunk"))
    assert len(products(tidied(plan))) == 7  # kk, kW, T(v − kW), qW, qk, (qk)u, kᵀu
    assert len(products(tidied(adjoint(plan).plan))) == 18  # of which 5 make the chunk anew


def test_an_inverse_has_no_gradient_of_its_own() -> None:
    (rule,) = memories(compiled("gated-deltanet"))
    plan = adjoint(reordered(plan_of(rule, "chunk"))).plan
    (inverse,) = [q.name for q in plan.ordered()
                  if isinstance(q.op, Call) and q.op.function == "unit_lower_inverse"]  # fmt: skip
    assert f"d_{inverse}" not in plan.graph


def test_loaded_rows_are_operands_as_they_are() -> None:
    (rule,) = memories(compiled("gated-deltanet"))
    plan = tidied(reordered(plan_of(rule, "chunk")))
    found = list(products(plan))
    assert found
    for product in found:
        for operand in (product.left, product.right):
            op = plan[operand].op
            assert not (isinstance(op, Map) and {"q", "k"} & {r.quantity for r in op.reads})
