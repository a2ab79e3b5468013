"""`mnemic verify`: what it says of a rule whose numbers can grow."""

import json

import pytest

from mnemic.cli import verify

GROWS = {"mnemic": 1, "name": "grows", "bias": {"expr": "log(cosh(e))"},
         "features": {"expr": "log(1 + exp(x))"}}  # fmt: skip


@pytest.mark.parametrize(("spec", "told"), [(GROWS, True), ("gated-deltanet", False)])
def test_a_failure_of_a_rule_that_may_grow_is_explained(mnemic, monkeypatch, spec, told, tmp_path):
    """Rounding grows there, so that forms part which compute the same."""
    wrong = {"setting": {}, "left out": [], "passed": False, "forms": {}}
    monkeypatch.setattr("mnemic.kernels.verifying.entries", lambda *a: iter([wrong]))
    monkeypatch.setattr(verify, "_show", lambda *a: None)
    monkeypatch.setattr("mnemic.kernels.verifying.lines", lambda entry: [])
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps(spec))
    done = mnemic("verify", str(path) if isinstance(spec, dict) else spec)
    assert done.code == 4
    assert ("may leave its stable range, where rounding errors grow" in done.err) is told
