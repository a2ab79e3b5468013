"""What a verdict says of how it was found: by algebra, by numbers, and where none were drawn."""

from typing import Any

import pytest

from mnemic import pipeline
from mnemic.compiler.compare import canonical
from mnemic.compiler.compare.verdict import BETWEEN


def _verdict(one: dict[str, Any], other: dict[str, Any]) -> Any:
    plain = {"name": "own", "bias": "l2", "optimizer": {"rate": "token"}}
    return pipeline.diff({**plain, **one}, {**plain, **other}).verdict


def test_single_numbers_where_cases_meet_are_told() -> None:
    found = _verdict({"bias": {"expr": "abs(e)"}}, {"bias": {"expr": "where(e > 0, e, -e)"}})
    assert found.kind == "equal"
    assert found.sentence.endswith(BETWEEN)
    assert BETWEEN not in _verdict({}, {"bias": {"expr": "e**2/2"}}).sentence


def test_algebra_ends_when_its_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = "x + tanh(x)", "x + 1 - 2/(1 + exp(2*x))"
    one, other = (pipeline.derive({"name": "own", "features": {"expr": text}}) for text in texts)
    forms = canonical.canonical(one), canonical.canonical(other)
    assert canonical.same(*forms).how == "algebra"
    monkeypatch.setattr(canonical, "ALGEBRA", 0.0)
    assert canonical.same(*forms).how == "random numbers"
