"""What `check` says of compiling, against compiling itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_own_expressions import conforms

from mnemic import pipeline
from mnemic.codegen.uncompilable import refused
from mnemic.errors import InvalidSpec

RATE = {"rate": "token"}
SPECS: dict[str, dict[str, Any]] = {
    "plain": {"bias": "l2"},
    "a tree beside two steps": {"readout": {"levels": "token"}, "optimizer": {"inner_steps": 2}},
    "a bonus beside a window": {"readout": {"bonus": "learned"}, "window": 3, "bias": "l2"},
    "a window of two steps": {"bias": "l2", "window": 3, "optimizer": {"inner_steps": 2}},
    "a moving window": {"bias": "l2", "window": 3, "features": "cosine"},
    "read before two steps": {"bias": "l2", "readout": {"memory": "before"},
                              "optimizer": {"inner_steps": 2}},
    "intervals that do not nest": {"memory": {"kind": "mlp"}, "bias": "l2",
                                   "optimizer": {**RATE, "method": "muon", "every": 4,
                                                 "anchor": {"chunk": 6}}},
    "a decay by channel of layers": {"memory": {"kind": "mlp"}, "bias": "l2",
                                     "retention": {"decay": "channel"}, "optimizer": RATE},
    "a context that is read as it is written": {
        "bias": "dot", "readout": {"bonus": "learned"},
        "block": {"hybrid": "context", "segment": 8},
    },
    "a decay of a token's first step": {
        "bias": "l2", "retention": {"decay": 0.9}, "optimizer": {**RATE, "inner_steps": 2},
    },
    "layers on a simplex whose size differs by token, by token": {
        "memory": {"kind": "mlp"}, "bias": "l2", "optimizer": RATE,
        "retention": {"local": "kl", "constraint": {"kind": "simplex", "scale": "token"}},
    },
    "the same, read before the write": {
        "memory": {"kind": "mlp"}, "bias": "l2", "readout": {"memory": "before"},
        "optimizer": {**RATE, "anchor": {"chunk": 4}},
        "retention": {"local": "kl", "constraint": {"kind": "simplex", "scale": "token"}},
    },
    "a phase that is a number": {"retention": {"phase": 0.3}},
    "a phase of an expression": {
        "bias": "l2", "retention": {"phase": {"expr": "0.1*(h + 1)"}}, "optimizer": RATE,
    },
    "a learned phase": {"retention": {"phase": "learned"}},
    "a start out of reach": {"bias": "l2", "optimizer": {
        "rate": {"from": "parameter", "activation": "sigmoid", "init": 2}}},
}  # fmt: skip


@pytest.mark.some(8)
@pytest.mark.parametrize("name", SPECS)
def test_what_compiling_refuses_is_known_without_it(name: str) -> None:
    spec = pipeline.read({"name": "mine", **SPECS[name]})
    told = refused(pipeline.derive(spec))
    try:
        pipeline.files(spec)
    except InvalidSpec as refusal:
        assert [i.message for i in told] == [i.message for i in refusal.issues]
        assert [f"mine {i.where}".strip() for i in told] == [i.where for i in refusal.issues]
    else:
        assert not told


NO_CODE: dict[str, dict[str, Any]] = {
    "norms of a memory that starts at zero": {"bias": "l2", "retention": {"normalize": "rows"},
                                              "optimizer": RATE},
    "a link that varies from token to token": {
        "bias": "l2", "retention": {"link": "a/(nu + c)", "view": "ftrl"},
        "coefficients": {"c": "token"}, "optimizer": RATE,
    },
    "a window of two steps": SPECS["a window of two steps"],
    "a normaliser of a residual rule": {"bias": {"expr": "log(cosh(e))"}, "optimizer": RATE,
                                        "readout": {"normalizer": "sum"}},
    "a normaliser under a decay by channel": {"retention": {"decay": "channel"},
                                              "readout": {"normalizer": "sum"}},
    "slots of a rule that is not additive": {
        "memory": {"kind": "linear", "slots": 4}, "bias": "l2", "optimizer": RATE,
    },
    "a generator whose slope is bounded": {"bias": "l2", "optimizer": RATE,
                                           "retention": {"local": {"bregman": "-log(w)"}}},
}  # fmt: skip


@pytest.mark.parametrize("name", NO_CODE)
def test_a_rule_without_code_has_no_forms_and_is_told_so(name: str) -> None:
    """Its class alone once gave it forms, and a pace that nothing ran at."""
    found = pipeline.derive({"name": "mine", **NO_CODE[name]})
    (issue,) = refused(found)
    text = str(found)
    assert found.structure.forms == ()
    assert f"  forms: none yet\n  not compiled: {issue.message}\n" in text
    assert "runs token by token" not in text
    assert issue.where.partition(".")[0] in ("memory", "optimizer", "readout", "retention")


@pytest.mark.parametrize("name", [name for name in SPECS if "simplex" in name or "same" in name])
def test_a_memory_whose_link_has_gone_on_is_refused(name: str) -> None:
    """W_{t−1} was once computed with the size of token t, in every form alike."""
    with pytest.raises(
        InvalidSpec, match=r"retention: a link that varies .* \(an anchor keeps W\)"
    ):
        pipeline.files(pipeline.read({"name": "mine", **SPECS[name]}))


PLACES: dict[str, tuple[str, str]] = {
    "a generator": (
        "retention:\n  local:\n    bregman: w**2/2 - w**4\n", "5:14: retention.local.bregman",
    ),
    "a divergence": (
        "retention:\n  local:\n    f-divergence: -x**2\n", "5:19: retention.local.f-divergence",
    ),
    "a ball of another geometry": (
        "retention:\n  local: {bregman: cosh(w)}\n  constraint: {kind: ball, radius: 1}\n",
        "5:15: retention.constraint",
    ),
    "a loss that is not convex": (
        "bias: {expr: log(1 + e**2)}\noptimizer:\n  rate: token\n  method: implicit\n",
        "6:11: optimizer.method",
    ),
    "a weight that moves": (
        "window: 3\nweights:\n  kind: token\n  gamma: {expr: 1/(t+2)}\nbias: dot\n",
        "6:10: weights.gamma",
    ),
    "a key of its own": (
        "bias: {expr: log(cosh(e))}\nkeys:\n  predict: own\n  erase: own\n", "6:10: keys.erase",
    ),
}  # fmt: skip
"""Specs without a derivation, and the line, the column and the entry that is answerable."""


@pytest.mark.parametrize("name", PLACES)
def test_what_is_not_derived_is_told_at_its_own_entry(name: str, tmp_path: Path) -> None:
    text, place = PLACES[name]
    path = tmp_path / "mine.yaml"
    path.write_text(f"mnemic: 1\nname: mine\n{text}")
    with pytest.raises(InvalidSpec) as refusal:
        pipeline.derive(path)
    assert str(refusal.value).startswith(f"{path}:{place}: ")


BY_T = {"expr": "1/(1 + t)"}
VARYING: dict[str, dict[str, Any]] = {
    "a stated link": {
        "retention": {"link": "c*a", "view": "ftrl"}, "coefficients": {"c": BY_T},
    },
    "a stated link through another coefficient, read before the write": {
        "bias": "dot", "retention": {"link": "c*tanh(a)", "view": "ftrl"},
        "coefficients": {"c": {"expr": "d/2"}, "d": BY_T}, "readout": {"memory": "before"},
    },
    "a simplex": {"retention": {"local": "kl", "constraint": {"kind": "simplex", "scale": BY_T}}},
    "a ball": {
        "retention": {"view": "ftrl", "constraint": {"kind": "ball", "radius": BY_T}},
    },
    "an elastic net": {
        "retention": {"view": "ftrl", "global": {"elastic": {"l1": BY_T, "l2": 0.1}}},
    },
}  # fmt: skip


@pytest.mark.parametrize("name", VARYING)
def test_a_link_that_varies_with_t_is_refused(name: str) -> None:
    """W_{t−1} was computed with the t of the next token, in every form alike."""
    spec = {"name": "mine", "bias": "l2", "optimizer": RATE, **VARYING[name]}
    with pytest.raises(InvalidSpec, match="a link that varies"):
        pipeline.files(pipeline.read(spec))


def test_a_link_that_varies_with_t_under_an_anchor_is_the_interpreted_one() -> None:
    """The memory at a chunk's end is a state, whose link took the t of its own token."""
    conforms(
        {
            "name": "mine", "bias": "l2", "retention": {"link": "c*a", "view": "ftrl"},
            "coefficients": {"c": BY_T}, "optimizer": {**RATE, "anchor": {"chunk": 4}},
        }
    )  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"retention": {"phase": "learned", "decay": {"expr": "1/(1 + phase**2)"}}},
         "retention.decay: the phase turns keys and queries before anything else is computed"),
        ({"bias": {"expr": "e**2/2/(1 + phase**2)"}, "retention": {"phase": "learned"}},
         "bias.expr: the phase turns keys and queries before anything else is computed"),
        ({"window": 2, "weights": "window", "optimizer": {"rate": {"expr": "1 - gamma"}}},
         "optimizer.rate: gamma has one number for each token of the window"),
    ],
)  # fmt: skip
def test_what_no_expression_may_read_is_refused(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSpec) as refusal:
        pipeline.read({"name": "mine", "bias": "l2", **spec})
    assert words in str(refusal.value)
