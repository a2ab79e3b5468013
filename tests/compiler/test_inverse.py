"""Inverses of a retention's slope: against roots found in numbers, at and around a dual of zero."""

from typing import Any

import mpmath
import pytest
import sympy as sp
import torch

import mnemic
from mnemic.compiler import retention
from mnemic.compiler import symbols as sym
from mnemic.compiler.inverse import invert
from mnemic.compiler.numbers import spelled

ENTROPY = "w*log(w) + (1-w)*log(1-w)"
UNIT = (sp.Integer(0), sp.Integer(1))
CLOSED = {
    ENTROPY: UNIT,
    f"4*({ENTROPY})": UNIT,
    f"0.3*({ENTROPY})": UNIT,
    "-log(w) - 2*log(1-w)": UNIT,
    "-3*log(w) - 2*log(1-w)": UNIT,
    "5*((1+w)*log(1+w) + (1-w)*log(1-w))": (sp.Integer(-1), sp.Integer(1)),
    "3*(w*log(w) - w)": (sp.Integer(0), sp.oo),
}


def slope_of(generator):
    return sp.diff(sp.sympify(generator, locals={"w": sym.w}), sym.w)


def root(slope, domain, dual):
    """Where the slope, which rises, is ``dual``: by halving an interval."""
    value = sp.lambdify(sym.w, slope, "mpmath")
    low = mpmath.mpf(str(domain[0])) + mpmath.mpf(10) ** -30
    high = (
        mpmath.mpf(10) ** 3
        if domain[1] == sp.oo
        else mpmath.mpf(str(domain[1])) - mpmath.mpf(10) ** -30
    )
    for _ in range(140):
        middle = (low + high) / 2
        low, high = (middle, high) if value(middle) < dual else (low, middle)
    return float(low)


@pytest.mark.some(4)
@pytest.mark.parametrize("generator", CLOSED)
def test_an_inverse_is_the_root_of_its_slope(generator):
    slope, domain = slope_of(generator), CLOSED[generator]
    found = invert(slope, domain)
    assert found is not None
    back = sp.lambdify(sym.a, spelled(found), "mpmath")
    with mpmath.workdps(40):
        wanted = {a: root(slope, domain, a) for a in (-2.0, -1e-3, -1e-9, 0.0, 1e-9, 1e-3, 2.0)}
    for dual, entry in wanted.items():
        assert float(back(dual)) == pytest.approx(entry, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    "generator",
    ["2*w*log(w) + 3*(1-w)*log(1-w)", "w*log(w) + 7*(1-w)*log(1-w)", f"{ENTROPY} + w**2"],
)
def test_what_has_no_short_closed_form_has_none(generator):
    """SymPy would go on over some of these for hours."""
    assert invert(slope_of(generator), UNIT) is None


KINKED = {
    "abs(w)**3/3": lambda a: a.sign() * a.abs() ** 0.5,
    "w**4/4 + abs(w)": lambda a: a.sign() * (a.abs() - 1).clamp_min(0) ** (1 / 3),
    "abs(w)**3/3 + abs(w)": lambda a: a.sign() * (a.abs() - 1).clamp_min(0) ** 0.5,
}


@pytest.mark.some(2)
@pytest.mark.parametrize("generator", KINKED)
def test_both_sides_of_a_kink_are_real_and_have_gradients(generator):
    """PyTorch computes both cases everywhere: √a below zero would make the gradient no number."""
    found = invert(slope_of(generator), (-sp.oo, sp.oo))
    assert found is not None
    assert not found.has(sp.I)
    rule = mnemic.compile(
        {"name": "kinked", "bias": "dot", "optimizer": {"rate": "token"},
         "retention": {"local": {"bregman": generator}}}
    )  # fmt: skip
    source = torch.Generator().manual_seed(0)
    q, k, v = 3 * torch.randn(3, 1, 6, 1, 3, generator=source, dtype=torch.float64)
    eta = torch.full((1, 6, 1), 0.7, dtype=torch.float64)

    def stated(q, k, v):
        duals = torch.cumsum(0.7 * v[0, :, 0, :, None] * k[0, :, 0, None, :], 0)
        return (KINKED[generator](duals) @ q[0, :, 0, :, None])[..., 0]

    given = [x.clone().requires_grad_() for x in (q, k, v)]
    again = [x.clone().requires_grad_() for x in (q, k, v)]
    out, wanted = rule(*given, eta=eta)[0][0, :, 0], stated(*again)
    assert torch.allclose(out, wanted, rtol=1e-10, atol=1e-10)
    for a, b in zip(torch.autograd.grad(out.square().sum(), given),
                    torch.autograd.grad(wanted.square().sum(), again), strict=True):  # fmt: skip
        assert a.isfinite().all()
        assert torch.allclose(a, b, rtol=1e-9, atol=1e-9)


def test_a_memory_begins_where_a_formula_would_divide_zero_by_zero():
    """(a − 3 + √(a² − 2a + 9))/(2a) is 1/3 at a = 0, where every memory begins."""
    rule = mnemic.compile(
        {"name": "burg", "bias": "l2", "optimizer": {"rate": "token"},
         "retention": {"local": {"bregman": "-log(w) - 2*log(1-w)"}}}
    )  # fmt: skip
    slope, size = slope_of("-log(w) - 2*log(1-w)"), 3
    source = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 1, 6, 1, size, generator=source, dtype=torch.float64)
    eta = torch.full((1, 6, 1), 0.3, dtype=torch.float64)
    out, _ = rule(q, k, v, eta=eta)
    dual = torch.zeros(size, size, dtype=torch.float64)

    def memory():
        entries = [root(slope, UNIT, float(a)) for a in dual.flatten()]
        return torch.tensor(entries, dtype=torch.float64).reshape(size, size)

    for t in range(6):
        error = memory() @ k[0, t, 0] - v[0, t, 0]
        dual = dual - 0.3 * torch.outer(error, k[0, t, 0])
        assert torch.allclose(out[0, t, 0], memory() @ q[0, t, 0], rtol=1e-9, atol=1e-11)


CUBIC = {
    "w**3 - log(w)": (sp.Integer(0), sp.oo),
    "w**2/2 - log(1-w**2)": (sp.Integer(-1), sp.Integer(1)),
    "w**2/2 - b*log(1-w**2)": (sp.Integer(-1), sp.Integer(1)),
    "w**2/2 - log(w) - log(1-w)": UNIT,
}


@pytest.mark.parametrize("generator", CUBIC)
def test_a_cubic_with_three_real_roots_is_left_to_a_root_in_numbers(generator):
    """Its formula goes through complex numbers, which code has not."""
    assert invert(slope_of(generator), CUBIC[generator]) is None


@pytest.mark.parametrize("generator", ["w**3 - log(w)", "w**2/2 - 0.1*log(1-w**2)"])
def test_links_of_cubics_have_the_slope_of_their_dual(generator):
    """W_t is where the slope is the running dual; that of w³ − log w was wrong from 2.7 on."""
    rule = mnemic.compile(
        {"name": "cubic", "bias": "dot", "optimizer": {"rate": 1},
         "retention": {"view": "ftrl", "local": {"bregman": generator}}}
    )  # fmt: skip
    k = torch.full((1, 8, 1, 1), 2.0, dtype=torch.float64)
    w = rule(k, k, k)[0].flatten() / 2
    slope = sp.lambdify(sym.w, slope_of(generator), "math")
    found = [slope(float(entry)) for entry in w]
    assert found == pytest.approx([4.0 * (t + 1) for t in range(8)], rel=1e-9)


@pytest.mark.parametrize(("penalty", "count"), [("none", 1), ({"l2": 0.5}, 2)])
def test_a_link_that_is_the_generators_own_is_solved_for_once(
    monkeypatch: pytest.MonkeyPatch, penalty: Any, count: int
) -> None:
    asked = []

    def counted(slope: Any, domain: Any) -> Any:
        asked.append(slope)
        return invert(slope, domain)

    monkeypatch.setattr(retention, "invert", counted)
    entropy = {"local": {"bregman": "c*w*log(w) + c*(1 - w)*log(1 - w)"}, "global": penalty}
    spec = {"mnemic": 1, "name": "own", "bias": "l2", "optimizer": {"rate": "token"}}
    mnemic.derive({**spec, "retention": entropy, "coefficients": {"c": "learned"}})
    assert len(asked) == len(set(asked)) == count


def test_a_generator_is_differentiated_once_for_all_values_of_its_coefficients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []

    def counted(*args: Any) -> Any:
        made.append(args)
        return plain(*args)

    plain = sp.lambdify
    monkeypatch.setattr(retention.sp, "lambdify", counted)
    own = sp.Symbol("c", real=True)
    entropy = sym.w * sp.log(sym.w) + own * (1 - sym.w) * sp.log(1 - sym.w)
    retention.check_coefficients(entropy, None, {own: [0.1, 1.0, 3.0]}, nonnegative=False)
    assert len(made) == 2  # the value and the curvature
    with pytest.raises(retention.Refused, match="not strictly convex on its domain at c = -2"):
        retention.check_coefficients(entropy, None, {own: [0.1, -2.0]}, nonnegative=False)
