"""What is not derived: some spec meets every refusal, told at the entry that asks for it."""

import ast
import math
import traceback
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import mnemic.compiler
from mnemic import pipeline
from mnemic.compiler.refused import Refused
from mnemic.errors import InvalidSpec

COMPILER = Path(mnemic.compiler.__file__).parent

IMPLICIT = {"method": "implicit", "rate": "token"}
LIMIT = {"method": "implicit", "rate": "inf"}
KERNEL = {"features": {"kernel": "exp(s)"}}
ROWS = {"features": {"kernel": "exp(s)", "normalise": "row"}}
ON_WRITE = {"method": "momentum", "rate": "token", "momentum": {"from": "input", "on": "write"}}
ATTENTION = {"memory": "nonparametric", "weights": "similarity", "window": "all"}
LINE = {"kind": "nonparametric", "degree": 1, "ridge": 0.1}
REGRESSION = {"memory": {"kind": "interpolation", "kernel": "exp(s)", "ridge": 0.1}}
BY_KEY = {"from": "input", "per": "key"}

CASES: list[tuple[str, dict[str, Any]]] = [
    ("optimizer.rate", {"memory": "mlp", "optimizer": {"rate": {"normalized": True}}}),
    ("optimizer.method", {"window": 3, "optimizer": IMPLICIT}),
    ("optimizer.method", {"bias": {"expr": "(round(y) - v)**2"}, "optimizer": IMPLICIT}),
    ("optimizer.method", {"bias": {"expr": "where(n < 1, e**2/2, abs(e))"}, "optimizer": IMPLICIT}),
    ("optimizer.method", {"bias": {"expr": "log(1 + e**2)"}, "optimizer": IMPLICIT}),
    ("optimizer.method", {"bias": "dot", "optimizer": LIMIT}),
    ("optimizer.method", {"bias": {"expr": "exp(e)"}, "optimizer": LIMIT}),
    ("optimizer.method", {"bias": {"expr": "log(cosh(e))"},
                          "optimizer": {"method": "flow", "rate": "token"}}),
    ("optimizer.method", {"bias": "huber", "optimizer": "exact",
                          "retention": {"global": {"l2": 0.5}}}),
    ("weights.gamma", {"window": 3, "bias": "dot",
                       "weights": {"kind": "token", "gamma": {"expr": "1/(t + 2)"}}}),
    ("retention.local.bregman", {"retention": {"local": {"bregman": "round(w) + w**2"}}}),
    ("retention.local.bregman", {"retention": {"local": {"bregman": "w**2/2 - w**4"}}}),
    ("retention.local.bregman", {
        "retention": {"local": {"bregman": "a*w**2"}},
        "coefficients": {"a": {"from": "input", "activation": "softplus"}},
    }),
    ("retention.local.bregman", {
        "retention": {"local": {"bregman": "a*w**2"}},
        "coefficients": {"a": {"from": "parameter", "activation": "none"}},
    }),
    ("retention.local.bregman", {
        "retention": {"local": {"bregman": "w**2 + abs(w)"}, "global": {"l2": 0.1}},
    }),
    ("retention.local.f-divergence", {
        "retention": {"local": {"f-divergence": "-x**2"}, "constraint": "simplex"},
    }),
    ("retention.local.f-divergence", {
        "retention": {"local": {"f-divergence": "kl"}, "global": {"l2": 0.1}},
    }),
    ("retention.local.f-divergence", {
        "retention": {"local": {"f-divergence": "chi2"}, "constraint": "simplex"}, "memory": "glu",
    }),
    ("optimizer.every", {
        "retention": {"local": {"f-divergence": "chi2"}, "constraint": "simplex"},
        "optimizer": {"rate": "token", "every": 3},
    }),
    ("retention.constraint", {
        "retention": {"local": {"f-divergence": "kl"}, "constraint": {"kind": "ball", "radius": 1}},
    }),
    ("retention.constraint", {
        "retention": {"local": {"bregman": "cosh(w)"}, "constraint": {"kind": "ball", "radius": 1}},
    }),
    ("optimizer.method", {"optimizer": IMPLICIT, "retention": {"local": {"bregman": "cosh(w)"}}}),
    ("optimizer.method", {
        "optimizer": {**IMPLICIT, "rate": math.inf}, "retention": {"global": {"l2": 0.1}},
    }),
    ("optimizer.method", {
        "optimizer": IMPLICIT, "retention": {"global": {"l2": 0.1}},
        "bias": {"expr": "log(cosh(n))"},
    }),
    ("optimizer.method", {
        "optimizer": {**IMPLICIT, "method": "flow"}, "retention": {"global": {"l2": 0.1}},
    }),
    ("retention.global", {
        "optimizer": "exact", "weights": {"kind": "geometric", "gamma": "token"},
        "retention": {"global": {"l2": "learned"}},
    }),
    ("retention.global", {
        "optimizer": "exact", "retention": {"global": {"l2": "a - a"}},
        "coefficients": {"a": {"from": "parameter"}},
    }),
    ("keys.erase", {"bias": {"expr": "log(cosh(e))"}, "keys": {"predict": "own", "erase": "own"}}),
    ("readout.levels", {"bias": {"expr": "log(cosh(e))"}, "readout": {"levels": "token"}}),
    # behind a kernel
    ("keys.erase", {**KERNEL, "keys": {"erase": {"expr": "k*k"}}}),
    ("keys.erase", {**KERNEL, "keys": {"erase": {"expr": "b*k"}}, "coefficients": {"b": BY_KEY}}),
    ("keys.predict", {**KERNEL, "keys": {"predict": {"expr": "2*k"}}}),
    ("optimizer.method", {**KERNEL, "optimizer": {"method": "batch", "from": "origin"}}),
    ("retention.phase", {**KERNEL, "bias": "dot", "retention": {"phase": BY_KEY}}),
    ("readout.normalizer", {**KERNEL, "bias": "dot", "readout": {"normalizer": "sum"}}),
    ("optimizer.method", {**ROWS, "optimizer": IMPLICIT}),
    ("window", {**ROWS, "bias": "dot", "window": 3}),
    ("optimizer.rate", {**ROWS, "bias": "dot",
                        "optimizer": {"rate": {"from": "input", "activation": "exp"}}}),
    ("optimizer.momentum.on", {**ROWS, "optimizer": ON_WRITE}),
    ("retention.global", {**ROWS, "retention": {"global": {"l2": 0.1}}}),
    # over kept pairs
    ("retention.decay", {**REGRESSION, "window": "all", "retention": {"decay": "token"}}),
    ("window", {**REGRESSION, "window": 4}),
    ("window", {**ATTENTION, "window": 1}),
    ("memory.similarity", {**ATTENTION, "memory": {**LINE, "similarity": "s"}}),
    ("memory.ridge", {**ATTENTION, "memory": {**LINE, "similarity": "exp(s)", "ridge": 0}}),
    ("memory", {**ATTENTION, "memory": {"kind": "nonparametric", "similarity": "exp(a*s)"},
                "coefficients": {"a": BY_KEY}}),
    ("bias", {**ATTENTION, "bias": "huber"}),
    ("bias", {**ATTENTION, "bias": {"expr": "e**2"}}),
]  # fmt: skip
"""The entry that is answerable, and a spec that asks for what has no derivation."""


DIVERGENCE: dict[str, Any] = {
    "mnemic": 1, "name": "mine", "bias": "l2",
    "retention": {"local": {"f-divergence": "hellinger"}},
}  # fmt: skip


@pytest.mark.parametrize(
    ("part", "place", "told"),
    [
        ({"optimizer": {"rate": "token", "every": 3}}, "optimizer.every",
         "not for the steps of 3 tokens used at once"),
        ({"optimizer": {"method": "muon"}}, "optimizer.method", "not for a step of muon"),
        ({"optimizer": {"method": "adam"}}, "optimizer.method", "not for a step of adam"),
        ({"memory": "low-rank"}, "retention.local.f-divergence",
         "the hidden channels of several matrices (W1, W2, W3) would start alike"),
    ],
)  # fmt: skip
def test_what_an_f_divergence_does_not_go_with_is_told(
    part: dict[str, Any], place: str, told: str
) -> None:
    """Whatever came between step and memory was once put down to layers."""
    with pytest.raises(InvalidSpec) as refusal:
        pipeline.derive({**DIVERGENCE, **part})
    (issue,) = refusal.value.issues
    assert issue.where == place
    assert told in issue.message


@cache
def met(case: int) -> tuple[InvalidSpec, tuple[str, int]]:
    """The refusal of a case, and the file and line that it comes from."""
    with pytest.raises(InvalidSpec) as refusal:
        pipeline.derive({"mnemic": 1, "name": "mine", "bias": "l2", **CASES[case][1]})
    cause: BaseException | None = refusal.value
    while not isinstance(cause, Refused):
        assert cause is not None, f"not refused by the derivation: {refusal.value}"
        cause = cause.__context__
    last = traceback.extract_tb(cause.__traceback__)[-1]
    return refusal.value, (Path(last.filename).name, last.lineno or 0)


@pytest.mark.parametrize("case", range(len(CASES)), ids=[place for place, _ in CASES])
def test_a_refusal_is_told_at_the_entry_that_asks(case: int) -> None:
    (issue,) = met(case)[0].issues
    assert issue.where == CASES[case][0]


def test_every_refusal_is_met() -> None:
    """A new ``raise Refused`` needs a case here: the spec by which `mnemic check` tells of it."""
    lines = {met(case)[1] for case in range(len(CASES))}
    for path in sorted(COMPILER.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)):
                continue
            name = ast.unparse(node.exc.func).rpartition(".")[2]
            at = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            told = any(file == path.name and line in at for file, line in lines)
            assert name != "Refused" or told, f"{path.name}:{node.lineno}: no case"
