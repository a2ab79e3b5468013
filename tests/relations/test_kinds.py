"""Each kind of relation on a pair: found, true in the compiled code, and not found where it is not.

The coefficients with which compiled layers run are written here by hand, from the relation as it is
told; no code of the map computes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from packaged import rule_of
from tiers import first_only
from torch import Tensor

import mnemic
from mnemic.compiler.compare.matching import STRETCH
from mnemic.compiler.derive import derive_spec
from mnemic.compiler.rule import Rule
from mnemic.dsl.spec import Spec
from mnemic.relations import Map, build, related
from mnemic.relations.confirm import Unconfirmed, confirm
from mnemic.relations.search import Found

TOKENS, KEYS, VALUES = 9, 4, 3


@cache
def together(*names: str) -> Map:
    return build({name: rule_of(name) for name in names})


PAIRS = (
    ("deltanet", "ttt-linear", "special case", {"chunk 1", "no layer norm", "no residual"}),
    ("ttt-linear", "ttt-mlp", "special case", {"one layer"}),
    ("titans-minus", "cms", "special case", {"the chain's first memory alone"}),
    ("titans-minus", "moneta", "special case", {"W = A", "p = 2", "η′ = η/2"}),
    ("deltanet", "lq-stability", "special case", {"lq = 2"}),
    ("omeganet", "atlas", "special case", {"O = identity", "θ = 0", "η = 1"}),
    ("dla", "omeganet", "limit", {"window 1", "v′ = v/ε", "ε → 0"}),
    ("memora", "memora-l2", "limit", {"η′ = ε·η", "v′ = v/ε", "ε → 0"}),
    ("polysketchformer", "dla", "special case", {"a0 = 0", "a1 = 0", "a2 = 1"}),
    ("longhorn", "omeganet", "special case", {"a1 = 1", "γ′ = δ/(1 + δ·‖k‖²)"}),
    ("polysketchformer-4", "polysketchformer", "special case", {"degree = 4"}),
    ("lion", "lion-mlp", "special case", {"θ = 9/10", "β₂ = 99/100"}),
    ("kl-simplex", "memora-l2", "special case", {"c = 4", "α′ = 1 − λ"}),
    ("rls", "rls-geometric", "special case", {"γ = 1"}),
    ("atlas", "atlas-plus", "special case", {"no gate"}),
    ("linear-attention", "lact", "special case", {"no gate", "one layer", "every 1"}),
    ("linear-attention", "bregman-sigmoid", "limit", {"η′ = ε²·η", "v′ = v/ε", "η = 4"}),
    ("linear-attention", "rls", "limit", {"λ₂ = ∞", "v′ = λ₂·v"}),
    ("linear-attention", "batch-gd", "special case", {"one step a token", "η = 1"}),
    ("hgrn2", "gsa", "special case", {"no slots"}),
    ("mamba2", "mlstm", "special case", {"no normaliser"}),
    ("linear-attention-elu", "mlstm", "limit", {"η = ∞", "k′ = φ(k)", "q′ = φ(q)"}),
    ("linear-attention", "solu-attention", "limit", {"q → 0", "v′ = v/q"}),
    ("attention-unnormalised", "kernel-regression", "limit", {"ridge = ∞", "v′ = ridge·v"}),
    ("softmax-attention", "based", "limit", {"order = ∞", "q′ = q/√(d_k)"}),
    ("softmax-attention", "deltaformer-softmax", "special case", {"b = 0", "a = 1"}),
    ("gaussian-attention", "softmax-attention", "meeting", {"‖k‖ = ‖q‖ = 1"}),
    ("f-divergence-chi2", "f-divergence-hellinger", "meeting", {"η′ = η/4"}),
)  # fmt: skip


@pytest.mark.parametrize(
    ("inner", "outer", "kind", "told"), first_only(PAIRS, *(PAIRS[i] for i in (0, 4, 10, 18, 23)))
)
def test_a_kind_of_relation_is_found(inner: str, outer: str, kind: str, told: set[str]) -> None:
    drawn = together(inner, outer)
    (one,) = drawn.relations
    assert drawn.unconfirmed == ()
    assert (one.inner, one.outer, one.kind) == (inner, outer, kind)
    assert told <= {*one.at, *one.where, *one.change}
    assert one.error is not None
    assert one.error < 1e-5


# -- compiled layers ---------------------------------------------------------------------------


def drawn(*shape: int, seed: int = 0) -> Tensor:
    source = torch.Generator().manual_seed(seed)
    return torch.randn(1, TOKENS, 2, *shape, generator=source, dtype=torch.float64)


Q, K, V = drawn(KEYS), 0.5 * drawn(KEYS, seed=1), drawn(VALUES, seed=2)
GATE = torch.sigmoid(drawn(seed=3))
UNIT = K / K.norm(dim=-1, keepdim=True)


def run(spec: str | Mapping[str, Any], q: Tensor, k: Tensor, v: Tensor, **more: Tensor) -> Tensor:
    given = spec if isinstance(spec, str) else {"name": "own", **spec}
    out, _ = mnemic.compile(given)(q, k, v, form="recurrent", **more)
    return out


def elu(x: Tensor) -> Tensor:
    return 1 + torch.nn.functional.elu(x)


def per_head(value: float) -> Tensor:
    return torch.full((1, TOKENS, 2), value, dtype=torch.float64)


BOTH: Mapping[str, tuple[Callable[[], Tensor], Callable[[], Tensor], float]] = {
    "deltanet, ttt-linear": (
        lambda: run("deltanet", Q, K, V, eta=GATE),
        lambda: run({"memory": {"kind": "mlp", "depth": 1, "residual": False}, "bias": "l2",
                     "optimizer": {"rate": "token"}}, Q, K, V, eta=GATE), 1e-12,
    ),
    "deltanet, lq-stability": (
        lambda: run("deltanet", Q, K, V, eta=GATE),
        lambda: run({"bias": "l2", "retention": {"view": "ftrl", "global": {"lq": 2}},
                     "optimizer": {"rate": "token"}}, Q, K, V, eta=GATE), 1e-12,
    ),
    "polysketchformer-4, polysketchformer": (
        lambda: run("polysketchformer-4", Q, K, V),
        lambda: run({"features": {"kind": "polynomial", "degree": 4, "mode": "power"},
                     "bias": "dot"}, Q, K, V), 1e-12,
    ),
    "linear-attention-elu, mlstm": (
        lambda: run("linear-attention-elu", Q, K, V),
        lambda: run("mlstm", elu(Q), elu(K), V, log_alpha=per_head(0.0), log_eta=per_head(9.0)),
        1e-12,
    ),
    "linear-attention, solu-attention": (
        lambda: run("linear-attention", Q, K, V),
        lambda: run("solu-attention", Q / 1e7, K, V * 1e7), 1e-6,
    ),
    "gaussian-attention, softmax-attention": (
        lambda: run("gaussian-attention", UNIT, UNIT, V, bandwidth=per_head(0.7)),
        lambda: run("softmax-attention", UNIT * 2 * KEYS**0.5 / 0.7, UNIT, V), 1e-12,
    ),
    "softmax-attention, based": (
        lambda: run("softmax-attention", Q / 4, K, V),
        lambda: run({"features": {"kind": "taylor", "order": 8}, "bias": "dot",
                     "readout": {"normalizer": "sum"}}, Q / 4 / KEYS**0.5, K, V), 1e-4,
    ),
    "attention-unnormalised, kernel-regression": (
        lambda: run("attention-unnormalised", Q, K, V),
        lambda: run({"memory": {"kind": "interpolation", "kernel": "exp(s)", "ridge": 1e8},
                     "bias": "l2", "window": "all"}, Q, K, V * 1e8), 1e-6,
    ),
    "linear-attention, mesa": (
        lambda: run("linear-attention", Q, K, V),
        lambda: run("mesa", Q, K, V * 1e7, log_gamma=per_head(0.0),
                    lam=torch.full((1, TOKENS, 2, KEYS), 1e7, dtype=torch.float64)), 1e-6,
    ),
}  # fmt: skip


@pytest.mark.parametrize("pair", first_only(BOTH, *list(BOTH)[:1], *list(BOTH)[3:5]))
def test_compiled_layers_agree_as_the_relation_says(pair: str) -> None:
    mine, theirs, most = BOTH[pair]
    a, b = mine(), theirs()
    assert float((a - b).abs().max() / a.abs().max()) < most


@pytest.mark.full
def test_compiled_divergences_agree_to_first_order() -> None:
    def learned(name: str, rate: float) -> Tensor:
        return run(name, Q, K, V, eta=rate * GATE) - run(name, Q, K, V, eta=0 * GATE)

    for size in (1e-2, 1e-4):
        a, b = learned("f-divergence-chi2", size), learned("f-divergence-hellinger", size / 4)
        assert float((a - b).abs().max() / a.abs().max()) < 20 * size
    c = learned("f-divergence-hellinger", 1e-4)
    assert float((a - c).abs().max() / a.abs().max()) > 1


def test_a_sigmoid_memory_learns_as_linear_attention_in_short_steps() -> None:
    still = run("bregman-sigmoid", Q, K, V, eta=per_head(0.0))
    wanted = run("linear-attention", Q, K, V)
    for size in (1e-2, 1e-3):
        learned = run("bregman-sigmoid", Q, K, V / size, eta=per_head(4 * size**2)) - still
        assert float((learned / size - wanted).abs().max() / wanted.abs().max()) < 10 * size


@pytest.mark.parametrize(
    ("local", "gain"),
    [("w*asinh(w) - sqrt(1 + w**2)", "1"), ("4*(w*log(w) + (1-w)*log(1-w))", "16")],
)
def test_an_own_link_is_linear_attention_at_its_slope_at_zero(local: str, gain: str) -> None:
    mine = own(bias="l2", optimizer={"rate": "token"}, retention={"local": {"bregman": local}})
    drawn = build({"linear-attention": rule_of("linear-attention"), "mine": mine})
    (one,) = drawn.relations
    assert (one.inner, one.outer, one.kind) == ("linear-attention", "mine", "limit")
    assert f"η = {gain}" in one.at


def test_a_link_with_no_slope_at_zero_is_not() -> None:
    mine = own(bias="l2", optimizer={"rate": "token"}, retention={"local": {"bregman": "w**4"}})
    assert build({"linear-attention": rule_of("linear-attention"), "mine": mine}).relations == ()


# -- what is not so ----------------------------------------------------------------------------


def own(**axes: Any) -> Rule:
    return derive_spec(Spec.model_validate({"name": "mine", **axes}))


FAR: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "terms that are no exponential's": ("softmax-attention", {
        "bias": "dot", "readout": {"normalizer": "sum"},
        "features": {"kind": "polynomial", "degree": 2, "a": [1, 1, 0.3]},
    }),
    "a kernel that no query turns into an exponential": ("softmax-attention", {
        "bias": "l2", "window": "all", "weights": "similarity", "optimizer": "nonparametric",
        "memory": {"kind": "nonparametric", "similarity": "exp(-d2**2)"},
    }),
    "a simplex that stays": ("deltanet", {
        "bias": "l2", "optimizer": {"rate": "token"},
        "retention": {"local": "kl", "constraint": {"kind": "simplex", "scale": 4}},
    }),
    "entries on no simplex": ("f-divergence-chi2", {
        "bias": "l2", "optimizer": {"rate": "token"},
        "retention": {"local": {"bregman": "w*log(w) + (1-w)*log(1-w)"}},
    }),
}  # fmt: skip


@pytest.mark.parametrize("case", first_only(FAR, *list(FAR)[:2]))
def test_a_near_miss_is_no_relation(case: str) -> None:
    name, axes = FAR[case]
    assert build({name: rule_of(name), "mine": own(**axes)}).relations == ()


def test_numbers_refuse_what_holds_for_positive_features_alone() -> None:
    """The algebra takes n·q for its size; where features are of both signs it is not."""
    mine = own(bias="dot", features={"expr": "x**3"}, readout={"normalizer": "sum"})
    drawn = build({"mlstm": rule_of("mlstm"), "mine": mine})
    assert drawn.relations == ()
    assert any("η = ∞" in reason for reason in drawn.unconfirmed)


def one_of(*names: str) -> tuple[Found, dict[str, Any]]:
    rules = {name: rule_of(name) for name in names}
    (found,) = related(rules)
    return found, rules


def without(found: Found, **changes: Any) -> Found:
    return replace(found, at=replace(found.at, **changes))


WRONG: Mapping[str, tuple[tuple[str, str], Callable[[Found], Found]]] = {
    "steps whose values do not grow": (
        ("memora", "memora-l2"), lambda f: without(f, faint=()),
    ),
    "queries that stay": (
        ("linear-attention", "solu-attention"), lambda f: without(f, shrunk=2),
    ),
    "a ridge without values that grow": (
        ("attention-unnormalised", "kernel-regression"), lambda f: without(f, grown=False),
    ),
    "a slope of another size": (
        ("linear-attention", "bregman-sigmoid"),
        lambda f: replace(f, match=replace(f.match, change=tuple(
            (s, 1.01 * x) for s, x in f.match.change))),
    ),
    "queries too long": (
        ("gaussian-attention", "softmax-attention"),
        lambda f: replace(f, match=replace(f.match, change=tuple(
            (s, 1.01 * x if s == STRETCH else x) for s, x in f.match.change))),
    ),
    "steps of another size": (
        ("f-divergence-chi2", "f-divergence-hellinger"),
        lambda f: replace(f, match=replace(f.match, change=tuple(
            (s, 1.01 * x) for s, x in f.match.change))),
    ),
    "keys that are not features": (
        ("linear-attention-elu", "mlstm"), lambda f: replace(f, on_features=False),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", first_only(WRONG, "queries that stay", "queries too long"))
def test_numbers_refuse_a_relation_told_wrongly(case: str) -> None:
    names, wrongly = WRONG[case]
    found, rules = one_of(*names)
    confirm(found, rules)
    with pytest.raises(Unconfirmed):
        confirm(wrongly(found), rules)
