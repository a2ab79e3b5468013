"""The packaged papers: what is audited, how much of each, and that no entry fails."""

import pytest
from tiers import first_only

from mnemic.audit import papers
from mnemic.audit.catalogue import chosen
from mnemic.audit.judge import judge
from mnemic.dsl import catalogue
from mnemic.errors import UsageError

LINES = [
    pytest.param(paper, line, id=f"{paper.id} {line.where}")
    for paper in papers().values() for line in paper.equations
]  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize(("paper", "line"), LINES)
def test_no_entry_fails(paper, line):
    assert judge(paper, line).fails == ()


@pytest.mark.parametrize("paper", papers().values(), ids=lambda paper: paper.id)
def test_every_numbered_equation_has_an_entry_and_no_place_has_two(paper):
    assert paper.uncovered == ()
    places = [line.where for line in paper.equations]
    assert len(set(places)) == len(places)
    assert max(paper.covered) == paper.numbered


def test_lines_name_packaged_specs_alone():
    named = {name for _, line in chosen(()) for name in line.specs}
    assert named <= set(catalogue.names())


def test_lines_by_paper_and_by_spec():
    assert set(papers()) == {"associative-memory", "atlas", "miras", "test-time-regression"}
    assert {paper.id for paper, _ in chosen(("miras",))} == {"miras"}
    both = chosen(("longhorn", "miras"))
    assert len(both) == len({id(line) for _, line in both})
    with pytest.raises(UsageError, match="did you mean 'miras'"):
        chosen(("mirass",))


VERDICTS = (
    ("miras", "(7)", "differs", None),
    ("miras", "(33)", "agrees under", "eta → 2*eta"),
    ("miras", "Table 1, Moneta", "not judged", None),
    ("atlas", "(45)-(46)", "differs", None),
    ("associative-memory", "Table 2, Gated Softmax Attention", "differs", None),
    ("test-time-regression", "(41)", "agrees", None),
    ("miras", "(27), f = (x − 1)²", "differs", None),
    ("miras", "Table 1, LaCT", "agrees under", "theta → 1, S → -S"),
)


@pytest.mark.parametrize(("paper", "where", "kind", "change"), first_only(VERDICTS, *VERDICTS[:-2]))
def test_verdicts_that_were_wrong_before(paper, where, kind, change):
    (line,) = (line for line in papers()[paper].equations if line.where == where)
    found = judge(papers()[paper], line)
    assert (found.kind, found.change, found.fails) == (kind, change, ())
