"""A rule in plain words: every equation and every class has its own."""

import ast
import re
from pathlib import Path

import pytest
from packaged import CORE, rule_of

from mnemic.compiler import explain
from mnemic.compiler.explain.equations import equations
from mnemic.compiler.explain.in_words import CLASSES, LINES, WIDTH, in_words
from mnemic.dsl import prose


def yielded() -> set[str]:
    """The names of equations that the code can give: ``yield "name", …``."""
    folder = Path(explain.__path__[0])
    paths = {*folder.glob("*equations.py")} - {folder / "network_equations.py"}  # parts of a line
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in paths]
    pairs = (
        node.value.elts[0]
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Yield) and isinstance(node.value, ast.Tuple)
    )
    return {first.value for first in pairs if isinstance(first, ast.Constant)}


def test_every_equation_that_there_is_has_words():
    assert {"prediction", "read-out", "moments", "chain rule"} <= yielded()
    assert yielded() <= LINES.keys()


def test_every_class_has_words():
    table = set(re.findall(r"^\| ([a-z][\w-]+) \| .+\|$", prose.CLASSES, re.M))
    assert CLASSES.keys() == table - {"class"}


@pytest.mark.parametrize("name", CORE)
def test_a_rule_in_words(name):
    rule = rule_of(name)
    text = in_words(rule)
    assert text.startswith(f"{name} (")
    assert all(f"({line.number}) {line.text}\n" in text for line in equations(rule))
    assert CLASSES[rule.structure.kind] in " ".join(text.split())
    assert max(len(line) for line in text.splitlines() if not line.startswith("  (")) <= WIDTH


def test_an_error_that_does_not_see_the_memory_is_not_called_how_wrong_it_is():
    told = {name: " ".join(in_words(rule_of(name)).split()) for name in ("mamba2", "deltanet")}
    assert "whatever the memory holds" in told["mamba2"]
    assert "how wrong it is" not in told["mamba2"]
    assert "how wrong it is" in told["deltanet"]
