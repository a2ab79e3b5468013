"""How far a point is over the budget: a figure that shows that it is."""

from mnemic.search.study.budget import beyond


def test_what_is_just_over_is_not_shown_as_once_the_budget():
    limits = {"parameters": 1000.0, "state_bytes": 1000.0, "flops": 1000.0, "step_seconds": 1000.0}
    costs = {"parameters": 1004.0, "state_bytes": 1000.0, "flops": 1349.0, "step_seconds": 1000.2}
    assert beyond(costs, limits) == ("parameters 1.004x", "flops 1.3x", "step_seconds 1.0002x")
