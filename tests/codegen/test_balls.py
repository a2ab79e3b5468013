"""A ball around zero: the solution without it, scaled into the ball where the problem allows."""

from typing import Any

import pytest
from conformance import Sizes, agree, beginning, compiled, error, inputs, interpreted, run
from tiers import first_only

from mnemic import pipeline
from mnemic.compiler.explain.equations import equations
from mnemic.compiler.oracle.stated import stated
from mnemic.compiler.oracle.verify import verify
from mnemic.errors import InvalidSpec

ALONE = Sizes(batch=1, heads=1)
"""One sequence of one head: the problem as written is minimised numerically, token by token."""

BALL = {"constraint": {"kind": "ball", "radius": 0.4}}
TERMS: dict[str, dict[str, Any]] = {
    "l2 of the token": {"global": {"l2": "token"}},
    "elastic": {"global": {"elastic": {"l1": 0.03, "l2": 0.2}}},
    "l1": {"global": {"elastic": {"l1": 0.03, "l2": 0}}},
    "leader": {"view": "ftrl", "global": {"l2": 0.7}},
    "leader, elastic": {"view": "ftrl", "global": {"elastic": {"l1": "learned", "l2": 0.2}}},
    "a generator of the same shape": {"local": {"bregman": "w**2"}},
}
STEPS: dict[str, dict[str, Any]] = {
    "tokens": {"optimizer": {"rate": "token"}},
    "chunks": {"optimizer": {"rate": "token", "anchor": {"chunk": 3}}},
    "layers": {"optimizer": {"rate": "token"}, "memory": {"kind": "mlp", "expansion": 1}},
}
CASES = [(term, step) for term in TERMS for step in STEPS]
FIRST = (("elastic", "chunks"), ("leader", "tokens"))


@pytest.mark.parametrize(("term", "step"), first_only(CASES, *FIRST))
def test_the_rule_solves_the_problem_in_the_ball(term: str, step: str) -> None:
    """Against a numerical minimiser of the problem as written, and form against form."""
    case = compiled(
        {"name": "ball", "bias": "l2", "retention": {**TERMS[term], **BALL}, **STEPS[step]}
    )
    arguments = inputs(case, 6, sizes=ALONE)
    params = beginning(case, arguments["k"], arguments["v"]) if step == "layers" else {}
    out, _ = case.operator(**arguments, params=params, output_final_state=True, form="recurrent")
    rest = {n: x for n, x in arguments.items() if n not in "qkv"}
    vectors = (arguments[n] for n in "qkv")
    assert error(out, stated(case.rule.problem, *vectors, rest, params)) <= 1e-7
    assert error(out, interpreted(case, arguments, params=params)[0]) <= 1e-10
    assert all(check.passed for check in verify(case.rule))
    if "chunk" in case.forms:
        agree(run(case, arguments, "chunk"), run(case, arguments, "recurrent"), 1e-9)


@pytest.mark.parametrize(
    "retention",
    [
        {"local": {"bregman": "w**2/2 + w**4/4"}},
        {"local": {"bregman": "where(w > 0, w**2, 2*w**2)"}},
        {"local": {"bregman": "w**2 + abs(w - 1)"}},
        {"local": "kl"},
    ],
    ids=str,
)
def test_a_ball_that_does_not_shrink_all_entries_alike_is_refused(retention: Any) -> None:
    with pytest.raises(InvalidSpec) as refusal:
        pipeline.derive({"name": "ball", "bias": "l2", "retention": {**retention, **BALL}})
    (issue,) = refusal.value.issues
    assert issue.where == "retention.constraint"
    assert "the multiplier μ of a ball adds μ w to the stationarity " in issue.message
    assert "shrinks all entries by one factor" in issue.message


def test_the_rule_is_told_with_what_is_scaled() -> None:
    rule = pipeline.derive({"name": "ball", "bias": "l2", "retention": {**TERMS["leader"], **BALL}})
    (link,) = (line.text for line in equations(rule) if "min(1" in line.text)
    assert link == "Wₜ = Uₜ min(1, 2/5/‖Uₜ‖),  Uₜ = 10·a/17,  a = Aₜ entry by entry"
