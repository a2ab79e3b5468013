"""Derived rules against the problem as written, for every spec and for expressions of our own."""

from dataclasses import replace

import pytest
import sympy as sp
from packaged import NAMES, rule_of
from tiers import first_only

from mnemic.compiler import symbols as sym
from mnemic.compiler.derive import derive_spec
from mnemic.compiler.oracle.verify import verify
from mnemic.compiler.rule import Rule
from mnemic.dsl.spec import Spec

BIASES = (
    "log(cosh(e))",
    "sqrt(1+e**2)-1",
    "abs(e)**2.5",
    "n**3",
    "log(1+n**2)",
    "-v*log(sigmoid(y))-(1-v)*log(1-sigmoid(y))",
    "max(abs(e)-1/4,0)**2",
    "where(n<=1,e**2/2,abs(e))",
    "e*atan(e)-log(1+e**2)/2",
    "1-exp(-n**2/2)",
    "-v*tanh(y)",
)

RETENTIONS: tuple[dict[str, object], ...] = (
    {"local": {"bregman": "w*log(w)-w"}},
    {"local": {"bregman": "cosh(w)"}},
    {"local": {"bregman": "(1+w)*log(1+w)+(1-w)*log(1-w)"}},
    {"local": {"bregman": "cosh(w)"}, "global": {"elastic": {"l1": 0.05, "l2": 0.1}}},
    {"local": "kl", "global": {"entropy": 0.3}},
    {
        "local": "kl",
        "global": {"entropy": "learned"},
        "constraint": {"kind": "simplex", "scale": 2, "over": "columns"},
        "decay": "token",
    },
    {"global": {"l2": "token"}, "decay": 1},
    {"view": "ftrl", "global": {"l2": 0.3}, "decay": "token"},
    {"view": "ftrl", "global": {"lq": 3}},
    {"constraint": {"kind": "ball", "radius": 1}},
    {"local": {"bregman": "w**3"}, "constraint": {"kind": "simplex", "scale": 2}},
    {"local": {"bregman": "exp(w)"}, "constraint": {"kind": "simplex", "scale": 2}},
    {"local": {"bregman": "-log(w)"}, "constraint": {"kind": "simplex", "scale": 2}},
    {"local": {"f-divergence": "x**3/3"}},
    {
        "local": {"f-divergence": "(x-1)**2"},
        "constraint": {"kind": "simplex", "scale": 2, "over": "rows"},
    },
)

VARIANTS: tuple[dict[str, object], ...] = (
    {"local": {"bregman": "w**4/4+w**2/2"}},
    {"local": {"bregman": "cosh(w)"}, "global": {"l2": 0.3}},
    {"local": {"bregman": "w**4/4+w**2/2"}, "global": {"entropy": 0.3}},
    {"local": "kl", "global": {"l2": 0.3}},
    {"local": "kl", "constraint": {"kind": "simplex", "scale": 2, "over": "rows"}},
    {
        "local": {"bregman": "(1+w)*log(1+w)+(1-w)*log(1-w)"},
        "constraint": {"kind": "simplex", "scale": 2, "over": "columns"},
    },
    {"view": "ftrl", "global": {"elastic": {"l1": 0.05, "l2": 0.1}}},
    {"constraint": {"kind": "simplex", "scale": 2, "over": "all"}},
    *(
        {"local": {"bregman": text}, "constraint": {"kind": "simplex", "scale": 2}}
        for text in ("w**1.5", "-sqrt(w)", "1/w", "exp(w) + w**2", "sqrt(1+w**2)")
    ),
    *(
        {"local": {"f-divergence": f}, "constraint": {"kind": "simplex", "scale": 2, "over": over}}
        for f, over in (
            ("x**3/3", "columns"),
            ("-log(x)", "all"),
            ("jensen-shannon", "rows"),
            ("hellinger", "columns"),
            ("kl", "all"),
            ("sqrt(1+(x-1)**2)-1", "all"),
            ("x*log(x)+(x-1)**2", "rows"),
        )
    ),
    {"local": {"f-divergence": "(x-1)**4 + (x-1)**2/9"}},
    {"local": {"f-divergence": "kl"}},
)
"""The same ways with other functions; all of them take seconds to derive."""

STEPS: tuple[dict[str, object], ...] = (
    {"optimizer": {"method": "momentum", "rate": "token", "momentum": "token"}, "window": 3},
    {"optimizer": {"rate": "token", "inner_steps": 2}, "retention": {"decay": "token"}},
    {"optimizer": {"rate": "token", "anchor": {"chunk": 3}}, "window": 2, "weights": "token"},
    {"optimizer": {"rate": "token"}, "weights": "window", "window": 3, "features": "elu"},
    {"optimizer": {"rate": "channel"}, "retention": {"decay": "channel", "order": "before"}},
    {"optimizer": "implicit", "weights": "token"},
    {"optimizer": {"method": "flow", "rate": "learned"}, "weights": "token"},
    {"optimizer": {"rate": {"from": "input", "normalized": True}}, "weights": "token"},
    {"optimizer": {"method": "flow", "rate": "learned"}, "features": {"kind": "dpfp"}},
    {"optimizer": {"rate": "token"}, "memory": "diagonal", "retention": {"decay": "channel"}},
    {"optimizer": {"rate": "token"}, "readout": {"memory": "before"}, "features": "softmax"},
    {
        "optimizer": {"rate": "token", "anchor": {"chunk": 4}},
        "readout": {"memory": "anchor"},
        "features": {"kind": "polynomial", "degree": 2},
    },
    {
        "optimizer": {"rate": "token", "anchor": {"chunk": 3}},
        "retention": {"global": {"elastic": {"l1": 0.05, "l2": 0.1}}},
    },
    {
        "optimizer": {"rate": "token", "micro_steps": 2, "momentum": "token"},
        "retention": {"decay": "token", "order": "before"},
    },
)


def passes(rule: Rule) -> None:
    checks = verify(rule)
    assert checks
    assert not [check for check in checks if not check.passed]


def spec(**axes: object) -> Spec:
    return Spec.model_validate({"name": "made", **axes})


@pytest.mark.few
@pytest.mark.parametrize("name", NAMES)
def test_specs(name: str) -> None:
    passes(rule_of(name))


@pytest.mark.parametrize("text", BIASES)
def test_biases(text: str) -> None:
    passes(derive_spec(spec(bias={"expr": text}, optimizer={"rate": "token"})))


@pytest.mark.parametrize(
    ("bias", "axes"),
    [
        ({"kind": "huber", "delta": {"from": "input", "per": "value"}}, {}),
        ({"expr": "w1*e**2/2 + w1*w2*log(cosh(e))"}, {"retention": {"decay": "token"}}),
        ({"expr": "w1*abs(e)**2.5 + w2*e**2"}, {"memory": "diagonal"}),
    ],
    ids=str,
)
def test_losses_with_a_coefficient_a_channel(
    bias: dict[str, object], axes: dict[str, object]
) -> None:
    """One of d_v numbers stands beside its own coordinate of ŷ and v."""
    own = {"w1": {"from": "parameter", "per": "value"}, "w2": {"from": "input", "per": "value"}}
    named = {"coefficients": own} if "expr" in bias else {}
    passes(derive_spec(spec(bias=bias, optimizer={"rate": "token"}, **named, **axes)))


@pytest.mark.parametrize("text", ["abs(e)**2.5", "n**3", "log(1+n**2)"])
def test_normalised_rates(text: str) -> None:
    rate = {"from": "input", "normalized": True}
    passes(derive_spec(spec(bias={"expr": text}, optimizer={"rate": rate})))


@pytest.mark.parametrize(
    "bias", [{"kind": "lp", "p": 1, "smooth": 30}, {"expr": "abs(e)", "smooth": 9}]
)
def test_smooth_stand_ins(bias: dict[str, object]) -> None:
    passes(derive_spec(spec(bias=bias, optimizer={"rate": "token"})))


@pytest.mark.some(3)
@pytest.mark.parametrize("retention", first_only((*RETENTIONS, *VARIANTS), *RETENTIONS), ids=str)
def test_retentions(retention: dict[str, object]) -> None:
    passes(derive_spec(spec(bias="l2", retention=retention, optimizer={"rate": "token"})))


@pytest.mark.some(3)
@pytest.mark.parametrize(
    "penalty",
    [
        {"l1": {"expr": "0.1*t"}, "l2": 0.0},
        {"l1": {"expr": "0.1*(t-2)**2"}, "l2": 0.0},
        {"l1": {"expr": "0.2*max(1-t, 0)"}, "l2": 0.0},
        {"l1": {"expr": "0.1*abs(h-1)"}, "l2": {"expr": "0.1*t"}},
        {"l1": {"expr": "0*t"}, "l2": 0.2},
        {"l1": {"expr": "max(sqrt(eta) - 2, 0)"}, "l2": 0.2},
    ],
    ids=str,
)
def test_a_penalty_that_is_nothing_here_and_there(penalty: dict[str, object]) -> None:
    """Whether a retention is a decay is the spec's matter, not the first token's."""
    steps = {"rate": "token", "anchor": {"chunk": 2}}
    retention = {"global": {"elastic": penalty}}
    passes(derive_spec(spec(bias="l2", retention=retention, optimizer=steps)))


def test_symbols_of_one_name() -> None:
    """A coefficient may be called as the compiler calls something of its own."""
    for name, text in (("size", "size*abs(e)**3"), ("u", "u*n**3")):
        steps = {"method": "implicit" if name == "u" else "gd", "rate": "token"}
        own = {"bias": {"expr": text}, "coefficients": {name: 0.7}}
        passes(derive_spec(spec(**own, optimizer=steps)))


@pytest.mark.some(6)
@pytest.mark.parametrize("axes", STEPS, ids=str)
def test_steps(axes: dict[str, object]) -> None:
    passes(derive_spec(spec(bias="l2", **axes)))


def test_a_wrong_rule_is_found() -> None:
    """The checks see a wrong sign, slope, link and rate."""
    axes = {"retention": {"local": "kl", "global": {"entropy": 0.3}}}
    rule = derive_spec(spec(bias="l2", optimizer={"rate": "token"}, **axes))
    error, retained = rule.error, rule.retained
    link = replace(retained.link, expr=sp.exp(2 * sym.a))
    wrong = {
        "error signal": replace(rule, error=replace(error, signal=-error.signal)),
        "slope": replace(rule, error=replace(error, slope=2 * error.slope)),
        "retention": replace(rule, retained=replace(retained, link=link)),
        "recurrence": replace(rule, rate=2 * rule.rate),
    }
    for name, broken in wrong.items():
        failed = [check.name for check in verify(broken) if not check.passed]
        assert name in failed
