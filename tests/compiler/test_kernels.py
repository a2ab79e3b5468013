"""Kernels derived: logarithms, gates, classes, equality, and what cannot be asked of them."""

from typing import Any

import pytest
import sympy as sp
import torch

from mnemic.compiler import symbols as sym
from mnemic.compiler.compare.diff import diff
from mnemic.compiler.derive import derive_spec
from mnemic.compiler.explain.cost import K, T, V, cost
from mnemic.compiler.explain.stability import stability
from mnemic.compiler.kernelised import folded
from mnemic.compiler.kernels import Kernel
from mnemic.compiler.oracle.evaluate import evaluate
from mnemic.compiler.oracle.interpret import interpret
from mnemic.compiler.oracle.verify import verify
from mnemic.compiler.rule import Rule
from mnemic.compiler.symbolic import read
from mnemic.dsl.load import load
from mnemic.errors import InvalidSpec

TOKEN = {"optimizer": {"rate": "token"}}
ROW = {"kernel": "exp(s)", "normalise": "row"}


def rule(**entries: Any) -> Rule:
    return derive_spec(load({"mnemic": 1, "name": "mine", **entries}))


@pytest.mark.parametrize(
    ("text", "log"),
    [
        ("exp(s)", "s"),
        ("2*exp(s/8)", "s/8 + log(2)"),
        ("exp(-s**2)", "-s**2"),
        ("exp(3*s)**2", "6*s"),
        ("exp(s)*exp(-abs(s))", "s - abs(s)"),
    ],
)
def test_an_exponential_has_a_logarithm(text: str, log: str) -> None:
    found = Kernel(read(text, {"s": sym.s})).log
    assert sp.simplify(found - read(log, {"s": sym.s})) == 0


@pytest.mark.parametrize(
    "text", ["s", "s*exp(s)", "relu(s)", "round(s)", "-exp(s)", "exp(s) + 1", "s**2", "cosh(s)"]
)
def test_what_is_no_exponential_has_none(text: str) -> None:
    assert Kernel(read(text, {"s": sym.s})).log is None


@pytest.mark.parametrize(
    ("entries", "rows"),
    [
        ({}, "additive"),
        ({"bias": "l2", **TOKEN}, "affine"),
        ({"bias": "huber", **TOKEN}, "residual"),
        ({"bias": "l2", "optimizer": {"anchor": {"chunk": 8}}}, "frozen"),
        ({"bias": {"expr": "log(cosh(e))"}, **TOKEN}, "residual"),
    ],
)
def test_rows_have_the_class_that_the_loss_gives_a_matrix(
    entries: dict[str, Any], rows: str
) -> None:
    for features in ("exponential", {"kernel": "s*tanh(s)"}, ROW):
        structure = rule(features=features, **entries).structure
        assert (structure.kind, structure.rows) == ("kernelised", rows)
        assert structure.forms == ("recurrent", "chunk")
        assert structure.missing is None


def test_gates_are_part_of_the_error() -> None:
    """u = a v − b ŷ, with every role the plain key."""
    gated = rule(
        features="exponential",
        bias="l2",
        keys={"erase": "b*k", "value": "a*v"},
        coefficients={"a": "token", "b": "token"},
    )
    plain = folded(gated)
    b = sym.coefficient("b")
    assert plain.error.signal == sp.expand(b * sym.y - sym.v)
    assert not plain.split
    assert {plain.problem.keys[role] for role in ("erase", "write")} == {sp.Symbol("k", real=True)}


def test_a_write_over_the_rate_leaves_the_rate_to_the_erasure() -> None:
    plain = folded(derive_spec(load("deltaformer")))
    eta = sym.coefficient("eta")
    assert sp.expand(plain.rate * plain.error.signal - (eta * sym.y - sym.v)) == 0
    assert plain.rate == 1


@pytest.mark.parametrize(
    ("kernel", "features"),
    [
        ({"kernel": "s"}, "identity"),
        ({"kernel": "s**2"}, {"kind": "polynomial", "degree": 2, "mode": "power"}),
        ({"kernel": "1 + s + s**2/2"}, {"kind": "taylor", "order": 2}),
        ({"kernel": "exp(2*s)"}, {"kind": "exponential", "scale": 2}),
    ],
)
def test_a_kernel_and_its_features_are_one_rule(kernel: Any, features: Any) -> None:
    one, other = (rule(features=f, bias="l2", **TOKEN) for f in (kernel, features))
    assert "same rule" in str(diff(one, other).verdict)
    apart = rule(features={"kernel": "s**3"}, bias="l2", **TOKEN)
    assert "differ" in str(diff(one, apart).verdict)


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"keys": {"write": "k + b"}, "coefficients": {"b": "token"}}, "k times a coefficient"),
        ({"keys": {"erase": "w*k"}, "coefficients": {"w": "channel"}}, "one gate a head"),
        ({"keys": {"predict": "2*k"}}, "k itself or a vector of its own"),
        ({"keys": {"erase": "own"}}, "keeps one key for each pair"),
        ({"readout": {"normalizer": "sum"}}, "normalise: row"),
        (
            {"optimizer": {"method": "batch", "inner_steps": 2, "from": "origin"}, "window": "all"},
            "no finite features",
        ),
        ({"retention": {"phase": "token", "decay": "token"}}, "a kernel has none"),
        ({"features": {"kernel": "1 + exp(s) - exp(s)"}}, "comes to a constant"),
        ({"features": ROW, "window": 3}, "several times"),
        ({"features": ROW, "retention": {"global": {"l2": 0.5}}}, "a global retention"),
        (
            {"features": ROW, "optimizer": {"rate": {"from": "input", "activation": "exp"}}},
            "an exponential rate",
        ),
        (
            {
                "features": ROW,
                "optimizer": {"method": "momentum", "momentum": {"from": "input", "on": "write"}},
            },
            "two coefficients",
        ),
        ({"features": ROW, "optimizer": {"rate": {"normalized": True}}}, "are no kernel"),
        ({"memory": {"kind": "mlp"}, "features": ROW}, None),
    ],
)
def test_what_needs_more_than_a_kernel_is_refused(
    entries: dict[str, Any], words: str | None
) -> None:
    spec: dict[str, Any] = {"features": "exponential", "bias": "l2", **entries}
    if words is None:  # derived, and said not to be compiled
        assert rule(**spec).structure.missing is not None
        return
    with pytest.raises(InvalidSpec, match=words):
        rule(**spec)


@pytest.mark.few
@pytest.mark.parametrize(
    "features", ["exponential", {"kernel": "s*exp(s/2)"}, {"kernel": "round(2*s)"}]
)
@pytest.mark.parametrize(
    "entries",
    [
        {"bias": "l2", **TOKEN, "retention": {"decay": "token", "order": "before"}},
        {"bias": "huber", "optimizer": {"method": "momentum", "momentum": "token"}},
        {"bias": "l2", **TOKEN, "window": 3, "weights": "window"},
        {"bias": "l2", "optimizer": {"rate": "token", "anchor": {"chunk": 3}}},
        {"bias": "l2", "keys": {"write": "k/eta"}, **TOKEN},
        {"retention": {"decay": {"from": "input", "per": "value"}, "order": "before"}},
    ],
)
def test_the_recurrence_is_the_functional_gradient_of_the_loss(
    features: Any, entries: dict[str, Any]
) -> None:
    checks = {check.name: check for check in verify(rule(features=features, **entries))}
    assert "recurrence" in checks
    assert all(check.passed for check in checks.values()), checks


def test_costs_count_what_is_kept_and_read() -> None:
    plain = cost(rule(features="exponential"))
    assert (plain.state, plain.decode_flops) == (T * K + T * V, 2 * T * K + 2 * T * V)
    fast = {"method": "momentum", "momentum": "token", "rate": "token"}
    moving = cost(rule(features="exponential", bias="l2", optimizer=fast))
    assert moving.state == T * K + 2 * T * V
    shares = cost(rule(features=ROW, retention={"decay": "token"}))
    assert shares.state == T * K + T * V + T


def test_a_unit_key_counts_as_its_kernel() -> None:
    """η κ(1) < 2: e for the exponential, so a rate in (0, 1) may leave the bound."""
    wide = rule(features="exponential", bias="l2", **TOKEN)
    assert stability(wide).place == "outside"
    assert stability(derive_spec(load("deltaformer"))).place == "inside"


@pytest.mark.parametrize(
    ("text", "positive"),
    [
        ("s", True),
        ("s**4", True),
        ("exp(8*s)", True),
        ("s*exp(s/4)", True),
        ("1/(2 - s)", True),
        ("tanh(s)", False),
        ("exp(-s**2)", False),
        ("relu(s)", False),
        ("round(s)", False),
        ("s - 1", False),
        ("log(s)", False),
    ],
)
def test_a_kernel_without_features_is_warned_of(text: str, positive: bool) -> None:
    """By Schoenberg's theorem; a kernel matrix of random keys shows what a False may mean."""
    kernel = Kernel(read(text, {"s": sym.s}))
    assert kernel.positive == positive
    told = stability(rule(features={"kernel": text}, bias="l2", optimizer={"rate": 0.5})).warning
    assert ("inner product" in (told or "")) == (not positive)
    if positive:
        rng = torch.Generator().manual_seed(1)
        keys = torch.randn(40, 4, generator=rng, dtype=torch.float64)
        keys = keys / torch.linalg.vector_norm(keys, dim=1, keepdim=True)
        matrix = evaluate(kernel.expr, {sym.s: keys @ keys.T})
        assert float(torch.linalg.eigvalsh(matrix).min()) > -1e-9


def test_an_indefinite_kernel_may_grow_inside_the_bound_of_a_key() -> None:
    """What the warning is about: rounded products of keys that are not at right angles."""
    angles = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64)  # cos 1 rounds to 1, cos 2 to 0
    keys = torch.stack([torch.cos(angles), torch.sin(angles)], 1)
    assert float(torch.linalg.eigvalsh(torch.round(keys @ keys.T)).min()) < -0.4
    k = keys.repeat(150, 1)[None, :, None]
    v = torch.zeros(1, 450, 1, 1, dtype=torch.float64)
    v[:, 0] = 1.0
    size = {}
    for text in ("round(s)", "s"):
        kept = rule(features={"kernel": text}, bias="l2", optimizer={"rate": 0.3})
        size[text] = float(interpret(kept, k, k, v, {})[0].abs().max())
    assert size["round(s)"] > 1e3
    assert size["s"] <= 1.0
