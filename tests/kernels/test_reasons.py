"""Why a rule has no kernel is told in words: no name of generated code, no file, no function."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaged import rule_of

import mnemic
from mnemic.codegen import available as forms
from mnemic.codegen import slots
from mnemic.codegen.ops import OPERATIONS
from mnemic.codegen.package import SUPPORT
from mnemic.codegen.words import first_line, in_words

CODEGEN = Path(forms.__file__).parent
INTERNAL = re.compile(r"\bops\b|\b[a-z]+\.[a-z]|\w_\w{3}|``|\[\.\.\.")
"""Modules, functions and quantities as generated code spells them; W_t and e_i are mathematics."""

SPECS = ("atlas", "bregman-sigmoid", "griffin", "softmax-attention", "deep-transformer")
"""One for each reason that packaged specs have."""

OWN = (
    {"memory": "diagonal", "window": 3, "bias": {"expr": "log(cosh(e))"},
     "retention": {"decay": "token"}, "optimizer": {"rate": "token"}},
    {"bias": {"expr": "sqrt(1 + e**2) - 1"}, "window": 3, "optimizer": {"rate": "token"},
     "retention": {"decay": "channel", "order": "before"}},
    {"bias": "l2", "retention": {"decay": "channel"},
     "optimizer": {"method": "momentum", "rate": "token", "momentum": "token"}},
    {"bias": "l2", "features": {"kind": "exponential"}, "window": 2,
     "optimizer": {"rate": "token"}},
)  # fmt: skip


def _reasons(name: str | int) -> Iterator[str]:
    rule = rule_of(name) if isinstance(name, str) else mnemic.derive({"name": "x", **OWN[name]})
    for form in forms.fused(rule):
        yield from (why for why in (form.missing, form.no_gradient) if why)


@pytest.mark.parametrize("name", [*range(len(OWN)), *SPECS])
def test_a_user_reads_no_name_of_ours(name: str | int) -> None:
    for why in _reasons(name):
        assert not INTERNAL.search(why), why


def test_no_refusal_prints_what_only_generated_code_knows() -> None:
    """What is filled into a reason is a number, or said in words by a function for that."""
    for path in CODEGEN.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            if called and node.func.id in ("NoTiles", "NoAdjoint", "Refused"):
                told = "".join(ast.unparse(argument) for argument in node.args)
                assert "ops." not in told, path
                assert ".name}" not in told, path


def test_every_operation_has_words() -> None:
    for function in OPERATIONS:
        words = in_words(function)
        assert words
        assert not INTERNAL.search(re.sub(r"\w_[\w{]+", "", words)), (function, words)


def test_words_are_those_of_the_function_that_generated_code_calls() -> None:
    """Two modules of the support package may have functions of one name."""
    from mnemic.codegen.support import ops

    called = {name: getattr(ops, name).__doc__ for name in OPERATIONS if hasattr(ops, name)}
    assert len(called) > 100
    told = {name: (doc or "").partition("\n")[0] for name, doc in called.items()}
    assert {name: first_line(name) for name in called} == told
    assert in_words("turned").startswith("[x cos Ω, x sin Ω]")
    assert in_words("solved") == "L⁻¹ x"


def test_a_support_function_is_found_by_its_name() -> None:
    assert SUPPORT.is_dir()
    assert in_words("accumulate_rows") == "Σ_{s≤t} u_s (k_s ∘ Π_{s<i≤t} decay_i)ᵀ by token"
    assert in_words("no_such_thing") == "no such thing"
    assert slots.slots_of(rule_of("gsa")) > 0
