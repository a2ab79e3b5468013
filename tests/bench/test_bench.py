"""The benchmark's own parts: references compute the rule they stand for, goals, tables."""

import pytest
import torch

from mnemic.bench import fla, loops
from mnemic.bench.report import Figure, Report
from mnemic.bench.subject import Subject, demand_agreement
from mnemic.bench.timing import side_by_side
from mnemic.compiler.oracle.samples import Sizes
from mnemic.errors import CheckFailed

SMALL = Sizes(2, 64, 3, 8, 5)
LOOPS = {
    "gated_delta": "gated-deltanet",
    "gated_delta_rows": "gated-deltanet",
    "huber": "huber-coordinate",
    "huber_rows": "huber-coordinate",
}


@pytest.mark.parametrize("loop", LOOPS)
def test_the_hand_loops_compute_the_rule(loop):
    subject = Subject.named(LOOPS[loop], SMALL)
    run = getattr(loops.reference(), loop)
    ours = subject.form("recurrent")
    with torch.no_grad():
        torch.testing.assert_close(run(**subject.arguments), ours(**subject.arguments))
    leaves = list(subject.leaves.values())
    weights = torch.randn(2, 64, 3, 5)
    wanted, found = (torch.autograd.grad(f(**subject.leaves), leaves, weights) for f in (ours, run))
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-4)


def test_fla_computes_the_rule():
    references = fla.references()
    if references is None:
        pytest.skip(fla.ABSENT)
    for name, run in references.items():
        subject = Subject.named(name, Sizes(2, 128, 3, 8, 8))
        with torch.no_grad():
            found, wanted = (f(**subject.arguments) for f in (run, subject.form("recurrent")))
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-4)


def test_what_differs_is_not_timed():
    with pytest.raises(CheckFailed, match=r"bench: a and b differ by 5\.0e-01"):
        demand_agreement({"a": torch.zeros(2), "b": torch.full((2,), 0.5)})


def test_goals():
    assert Figure("speed", 9.0, "x", least=8).met is True
    assert Figure("time", 0.7, "s", most=0.6).met is False
    assert Figure("time", 0.7, "s").met is None
    assert Figure("speed", 9.0, "x", least=8).goal == ">= 8 x"


def test_a_report_as_data():
    data = Report((Figure("time", 0.5, "s", "why", most=0.6),), ("a note",)).to_json()
    assert data == {
        "figures": [
            {
                "what": "time", "value": 0.5, "unit": "s", "detail": "why",
                "least": None, "most": 0.6, "goal": "<= 0.6 s", "met": True,
            }
        ],
        "notes": ["a note"],
    }  # fmt: skip


def test_times_are_the_least_of_several_in_turns():
    calls: list[str] = []
    times = side_by_side({name: lambda name=name: calls.append(name) for name in "ab"})
    assert calls[:6] == ["a", "b", "a", "b", "a", "b"]
    assert 0 < times["a"] < 1
