"""The recipes of docs/adding.md, tried: its spec, loss, retention, task and optimizer."""

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import mnemic
from mnemic.compiler.derive import derive_spec
from mnemic.compiler.oracle.interpret import interpret
from mnemic.compiler.oracle.samples import Sizes, draw
from mnemic.compiler.oracle.verify import verify
from mnemic.dsl.axis import Family, refresh
from mnemic.dsl.bias import Bias
from mnemic.dsl.load import load
from mnemic.dsl.methods import ELEMENTWISE
from mnemic.dsl.reading import read_yaml
from mnemic.dsl.retention import Local
from mnemic.search import tasks

PAGE = Path(__file__).parents[1] / "docs" / "adding.md"
FENCED = re.compile(r"^ *```(\w+)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def block(language: str, first: str) -> str:
    """Return the only block of a language that begins so."""
    found = [textwrap.dedent(text) for word, text in FENCED.findall(PAGE.read_text("utf-8"))
             if word == language]  # fmt: skip
    (text,) = (text for text in found if text.startswith(first))
    return text


@pytest.fixture
def added(request: pytest.FixtureRequest) -> Iterator[None]:
    """A kind that is there for one test, by the root of its family; its example derives."""
    root, name = request.param
    before = dict(root.registry)
    exec(block("python", f"# {name}"), {"__name__": f"added_{name}"})
    refresh()
    (kind,) = root.registry.keys() - before.keys()
    assert mnemic.derive({"name": "mine", **read_yaml(root.registry[kind].example, kind).data})
    yield
    root.registry.clear()
    root.registry.update(before)
    refresh()


def with_kind(root: type[Family], name: str) -> Any:
    """Parametrise the fixture."""
    return pytest.mark.parametrize("added", [(root, name)], indirect=True)


def conforms(spec: dict[str, Any]) -> None:
    """Compare the rule with the problem as written, and the generated forms with the rule."""
    rule = derive_spec(load({"name": "mine", **spec}))
    checks = verify(rule)
    assert checks
    assert all(check.passed for check in checks)
    x = draw(rule, Sizes(batch=1, length=9, heads=2, key=4, value=4))
    expected, _ = interpret(rule, x.q, x.k, x.v, x.coefficients, params=x.params)
    compiled = mnemic.compile({"name": "mine", **spec})
    for form in rule.structure.forms:
        found, _ = compiled(x.q, x.k, x.v, **x.coefficients, form=form)
        torch.testing.assert_close(found, expected)


@with_kind(Bias, "loss")
def test_a_loss(added: None) -> None:
    spec = {"bias": {"kind": "cauchy", "c": 2.0}, "optimizer": {"rate": "token"}}
    signal = derive_spec(load({"name": "mine", **spec})).error.signal
    y, v = (next(s for s in signal.free_symbols if s.name == name) for name in "yv")
    # c²/2 · 2e/c² / (1 + e²/c²) at e = 1, c = 2
    assert float(signal.subs({y: 1, v: 0})) == pytest.approx(1 / (1 + 1 / 4))
    conforms(spec)


@with_kind(Local, "retention")
def test_a_retention(added: None) -> None:
    spec = {"bias": "l2", "retention": {"local": "hypentropy"}, "optimizer": {"rate": "token"}}
    link = derive_spec(load({"name": "mine", **spec})).retained.link
    assert str(link.expr) == "sinh(a)"
    conforms(spec)


def test_a_spec(tmp_path: Path) -> None:
    path = tmp_path / "quantile-memory.yaml"
    path.write_text(block("yaml", "mnemic: 1"), encoding="utf-8")
    assert set(read_yaml(path.read_text("utf-8"), "page").data) > {"bias", "retention", "optimizer"}
    assert "chunk" in mnemic.derive(path).structure.forms


def test_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "_TASKS", dict(tasks._TASKS))
    path = tmp_path / "counting.py"
    path.write_text(block("python", "# task"), encoding="utf-8")
    task = tasks.get(str(path)).configure({}, "tiny")
    drawn = task.batch(task.generator(0, "test"), 3, "test")
    total = torch.zeros(3, dtype=torch.long)
    for t in range(8):
        total = (total + drawn.inputs[:, t]) % 5
        assert drawn.targets[:, t].equal(total)


def test_an_optimizer() -> None:
    """The page shows what stands in the package."""
    names: dict[str, Any] = {}
    exec(block("python", "# optimizer"), names)
    assert names["LION"] == ELEMENTWISE["lion"]
