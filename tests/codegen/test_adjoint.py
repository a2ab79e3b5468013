"""Reverse mode on plans: every spec's forms, and expressions of one's own, beside autograd."""

import pytest
from adjoints import adjoint_of, asked, by_adjoint, by_autograd, memories, symmetric
from conformance import Case, close, compiled, every_form

from mnemic.codegen.adjoint import NoAdjoint
from mnemic.codegen.adjoint.constants import INDICES

TOLERANCE = 1e-10

LATER = "has no rule yet"
WITHOUT: dict[str, str] = {}
"""Functions without a rule, and why: forms that call one have no adjoint."""


def conforms(case: Case, form: str) -> None:
    """The adjoint of every call that the operator makes, beside autograd of the form."""
    options = {"chunk_size": 8} if form == "chunk" else {}
    for call in asked(case, form, 19 if form == "chunk" else 11, **options):
        found = symmetric(by_adjoint(adjoint_of(memories(case)[call.memory], form), call))
        expected = symmetric(by_autograd(call))
        unread = {n for n, x in expected.items() if n not in found and not x.any()}
        compared = {n: x for n, x in expected.items() if n not in {*unread, *INDICES}}
        assert compared
        close(found, compared, TOLERANCE)


@pytest.mark.parametrize(("name", "form"), every_form())
def test_adjoint_is_autograd(name: str, form: str) -> None:
    case = compiled(name)
    try:
        conforms(case, form)
    except NoAdjoint as missing:
        assert missing.function in WITHOUT


OWN = {
    "logcosh": {"bias": {"expr": "log(cosh(e))"}, "optimizer": {"rate": "token"}},
}
