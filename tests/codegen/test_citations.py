"""Numbers of equations in generated code: each stands beside the line that computes it."""

import ast
import re
from itertools import pairwise
from typing import Any

import pytest
from packaged import available, rule_of

from mnemic import pipeline
from mnemic.compiler.explain.render import equations

GOLDEN = (
    "gated-deltanet", "titans", "yaad", "mesa", "rls", "softmax-attention", "deltaformer",
    "log-linear", "local-linear-attention", "kl-simplex", "gsa", "rwkv7-full",
)  # fmt: skip
"""Specs of different classes, whose forms are kept as text with their numbers."""

FORMS = ("recurrent", "chunk", "start", "read", "keys_recurrent", "keys_chunk", "values_recurrent",
         "values_chunk")  # fmt: skip


def forms(source: str) -> dict[str, str]:
    """The text of a module's forms, by name."""
    found = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name in FORMS:
            found[node.name] = ast.get_source_segment(source, node) or ""
    return found


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_forms(name: str, golden: Any) -> None:
    source = pipeline.compile(name).source
    header = ast.get_docstring(ast.parse(source)) or ""
    told = header.partition("Written by")[0].strip()
    golden.check(f"forms/{name}.txt", "\n\n\n".join([told, *forms(source).values()]) + "\n")


def cited(text: str) -> dict[str, str]:
    """The numbers beside each assignment of a form, by the name that it assigns."""
    found, above = {}, ""
    for line in text.splitlines():
        alone = re.fullmatch(r" *# (\([\d, ]+\))", line)
        assigned = re.match(r" *([A-Za-z]\w*) = ", line)
        if assigned:
            beside = re.search(r"  # (\([\d, ]+\))$", line)
            found[assigned[1]] = beside[1] if beside else above
        above = alone[1] if alone else ""
    return found


def named(name: str) -> dict[str, set[str]]:
    """The numbers of a rule's equations, by their names."""
    found: dict[str, set[str]] = {}
    for equation in equations(rule_of(name)):
        found.setdefault(equation.name, set()).add(str(equation.number))
    return found


def numbers(text: str) -> set[str]:
    return set(re.findall(r"\d+", text))


@pytest.mark.parametrize("name", available())
def test_outputs_and_states_cite_their_equations(name: str) -> None:
    """What a form gives is the read-out, and what it hands on the memory or its momentum."""
    told = named(name)
    memory = set().union(*(told.get(n, set()) for n in ("memory", "dual", "link", "levels", "use",
                                                        "norms", "slots")))  # fmt: skip
    momentum = told.get("momentum", set()) | told.get("steps", set())
    for form, text in forms(pipeline.compile(name).source).items():
        beside = cited(text)
        if form in ("recurrent", "chunk"):
            output = re.search(r"outputs.append\((\w+)\)", text)
            assert output is not None
            assert numbers(beside.get(output[1], "")) & told["read-out"] or not beside.get(
                output[1]
            )
        for state, found in beside.items():
            if not found:
                continue
            if re.fullmatch(r"(W|A)\d?_next", state):
                assert numbers(found) <= memory, (form, state, found)
            if re.fullmatch(r"S\d?_(next|kept)", state) and momentum:
                assert numbers(found) <= momentum, (form, state, found)
            if state in ("H_next", "U_next") and "moments" in told:
                (own,) = numbers(found)
                assert own == sorted(told["moments"])["HU".index(state[0])]


@pytest.mark.parametrize("name", ["titans", "yaad", "ttt-mlp", "dla", "omeganet", "atlas"])
def test_passes_of_a_network_cite_their_equations(name: str) -> None:
    """Forward the layers, backward the chain rule, and the query's the read-out."""
    told = named(name)
    for form, text in forms(pipeline.compile(name).source).items():
        for quantity, found in cited(text).items():
            if not found:
                continue
            if re.fullmatch(r"[zh]\d", quantity):
                assert numbers(found) <= told["layers"], (form, quantity)
            if re.fullmatch(r"d_[zh]\d(_\w+)?|d_norm\d", quantity):
                assert numbers(found) <= told["chain rule"], (form, quantity)
            if re.fullmatch(r"([zh]\d|norm\d|out\d)_q(_new)?", quantity):
                assert numbers(found) == told["read-out"], (form, quantity)


@pytest.mark.parametrize("name", available())
def test_code_is_written_as_a_person_would(name: str) -> None:
    """No name ends in an underscore, nothing is an alias, no heading stands alone."""
    source = pipeline.compile(name).source
    for text in forms(source).values():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Name):
                assert not node.id.endswith("_"), node.id
                assert "__" not in node.id, node.id
        body = ast.parse(text).body[0]
        assert isinstance(body, ast.FunctionDef)
        for node in ast.walk(body):
            moved = isinstance(node, ast.Assign) and isinstance(node.value, ast.Name)
            if moved and isinstance(node.targets[0], ast.Name):  # type: ignore[attr-defined]
                target = node.targets[0].id  # type: ignore[attr-defined]
                assert re.fullmatch(r"[A-Z]\d?|anchor\d?|\w*keys\w*", target), ast.unparse(node)
        lines = [line.strip() for line in text.splitlines()]
        for line, after in pairwise(lines):
            assert not (line == "# every token at once" and after.startswith("#"))
        assert max(map(len, text.splitlines())) <= 100
    signature = source[source.index("Signature(") :].partition("\n)\n")[0]
    assert "=False" not in signature
    assert "identity=0.0" not in signature
    assert "1.4142135" not in source
