"""f-divergences on a simplex against the problem solved in 120 digits, near poles too."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import mpmath
import pytest
import sympy as sp
import torch
from conformance import as_interpreted, compiled, inputs, interpreted, run
from mpmath import mpf
from tiers import first_only
from torch import Tensor

import mnemic
from mnemic.codegen.support import ops
from mnemic.codegen.torch_printer import print_torch
from mnemic.compiler import retention
from mnemic.compiler import symbols as sym
from mnemic.compiler.symbolic import read
from mnemic.dsl.retention import DIVERGENCES
from mnemic.errors import InvalidSpec

mpmath.mp.dps = 120

INVERSES: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "chi2": (mpmath.inf, lambda y: max(1 + y / 2, 0)),
    "hellinger": (1, lambda y: 1 / (1 - y) ** 2),
    "jensen-shannon": (mpmath.log(2), lambda y: 1 / (2 * mpmath.exp(-y) - 1)),
    "reverse-kl": (0, lambda y: -1 / y),
    "sqrt(1+(x-1)**2)-1": (1, lambda y: max(1 + y / mpmath.sqrt(1 - y**2), 0)
                           if y > -mpmath.sqrt(mpf(1) / 2) else mpf(0)),
    "(x-1)**4": (mpmath.inf, lambda y: max(1 + mpmath.sign(y) * mpmath.cbrt(abs(y) / 4), 0)),
    "x*log(x)+(x-1)**2": (mpmath.inf, lambda y: mpmath.lambertw(2 * mpmath.exp(y + 1)).real / 2),
    "1/x": (0, lambda y: 1 / mpmath.sqrt(-y)),
}  # fmt: skip
"""By f: the limit of f′ at ∞, and the inverse of f′ by hand."""


def solved(f: str, dual: list[Any], factor: list[Any], scale: Any) -> list[Any]:
    """argmin Σ w′ f(w/w′) − ⟨a, w⟩ with Σ w = scale: w = w′ (f′)⁻¹(a − ζ), by halving ζ."""
    pole, inverse = INVERSES[f]
    top = max(a for a, w in zip(dual, factor, strict=True) if w > 0)
    beyond = top - pole if pole != mpmath.inf else None  # ζ lies above

    def entries(gap: Any) -> list[Any]:
        zeta = beyond + gap if beyond is not None else top - gap
        return [w * inverse(a - zeta) if w else mpf(0) for a, w in zip(dual, factor, strict=True)]

    low, high = (mpf(-140), mpf(12)) if beyond is not None else (mpf(-9), mpf(9))

    def place(u: Any) -> Any:  # the sum falls in the distance to a pole, and else rises in ζ's
        return mpmath.exp(u) if beyond is not None else mpmath.sinh(u)

    for _ in range(220):
        middle = (low + high) / 2
        more = mpmath.fsum(entries(place(middle))) > scale
        up = more if beyond is not None else not more
        low, high = (middle, high) if up else (low, middle)
    return entries(place((low + high) / 2))


@cache
def functions(f: str) -> dict[str, Any]:
    """The functions of one entry that generated code has."""
    text = read(DIVERGENCES.get(f, f), {"x": sym.x})
    apart = retention.divergence(text, constraint=("simplex", sp.Integer(1), "all")).link.apart
    assert apart is not None
    of = sp.Symbol("entry_", real=True)
    shown = {"distance": apart.distance.subs(sym.w, of), "flow": apart.flow.subs(sym.w, of)}
    names = {"torch": torch, "math": math, "ops": ops, "TINY": 1e-30}
    made = {n: eval(f"lambda entry_: {print_torch(x, {})}", names) for n, x in shown.items()}
    if apart.entry is None:
        made["entry"] = lambda u: ops.falling_entry(u, distance=made["distance"], flow=made["flow"])
    else:
        entry = apart.entry.subs(sp.Symbol("u", real=True), of)
        made["entry"] = eval(f"lambda entry_: {print_torch(entry, {})}", names)
    return made


OVER = {
    "all": (ops.highest, ops.simplex_root, ops.simplex_entries),
    "rows": (ops.highest_of_rows, ops.simplex_root_of_rows, ops.simplex_entries_of_rows),
    "columns": (
        ops.highest_of_columns, ops.simplex_root_of_columns, ops.simplex_entries_of_columns,
    ),
}  # fmt: skip


def memory(f: str, dual: Tensor, factor: Tensor, scale: Tensor, over: str = "all") -> Tensor:
    """W as generated code computes it."""
    top, root, entries = OVER[over]
    own = functions(f)
    highest = top(dual)
    search = {n: own[n] for n in ("entry", "distance")}
    x = root(dual, scale, highest, factor, **search)
    found: Tensor = entries(dual, scale, highest, x, factor, **own)
    return found


def problem(shape: tuple[int, ...], small: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Pulls of size 3, and factors between 10^−small and 1, 4 in all."""
    rng = torch.Generator().manual_seed(seed)
    dual = 3 * torch.randn(shape, generator=rng, dtype=torch.float64)
    factor = 10 ** (-small * torch.rand(shape, generator=rng, dtype=torch.float64))
    return dual, 4 * factor / factor.sum()


def digits(x: Tensor) -> list[Any]:
    return [mpf(float(z)) for z in x.flatten()]


@pytest.mark.some(3)
@pytest.mark.few
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("f", INVERSES)
def test_entries_are_the_minimiser(f: str, dtype: torch.dtype) -> None:
    """Of factors down to 1e-26: the highest pull stands at one of them, next to the pole."""
    for seed in range(2):
        dual, factor = (x.to(dtype) for x in problem((3, 4), 26, seed))
        place = dual.flatten().argmax()
        factor = factor.flatten().index_fill(0, place, 1e-26).view(3, 4)
        scale = torch.tensor(4.0, dtype=dtype)
        found = memory(f, dual, factor, scale)
        exact = solved(f, digits(dual), digits(factor), mpf(4))
        eps = torch.finfo(dtype).eps
        off = max(abs(mpf(float(x)) - y) for x, y in zip(found.flatten(), exact, strict=True))
        near = 40 * eps if f != "(x-1)**4" else 10 * eps ** (2 / 3)  # f″(1) = 0
        assert off <= near, (seed, float(off))
        assert abs(float(found.sum()) - 4) <= 8 * eps * 4
        assert bool((found >= 0).all())


@pytest.mark.some(3)
@pytest.mark.parametrize("f", [f for f in INVERSES if f != "x*log(x)+(x-1)**2"])
def test_gradients_are_the_minimisers(f: str) -> None:
    """Against differences of 1e-30 in 120 digits, all of it near a pole."""
    dual, factor = problem((2, 3), 12)
    factor[0, 0], dual[0, 0] = 1e-20, 9.0
    scale = torch.tensor(2.0, dtype=torch.float64)
    weights = torch.cos(torch.arange(6.0).double())
    leaves = [x.requires_grad_() for x in (dual, factor, scale)]
    memory(f, *leaves).flatten().dot(weights).backward()
    a, w, c, step = digits(dual.detach()), digits(factor.detach()), mpf(2), mpf(10) ** -30
    shown = [mpf(float(z)) for z in weights]

    def loss(a: list[Any], w: list[Any], c: Any) -> Any:
        return mpmath.fdot(shown, solved(f, a, w, c))

    def slope(change: Callable[[Any], tuple[Any, Any, Any]]) -> float:
        return float((loss(*change(step)) - loss(*change(-step))) / (2 * step))

    def moved(values: list[Any], i: int, by: Any) -> list[Any]:
        return [z + by if j == i else z for j, z in enumerate(values)]

    expected = [slope(lambda h, i=i: (moved(a, i, h), w, c)) for i in range(6)]
    found = dual.grad.flatten().tolist()
    assert found == pytest.approx(expected, rel=1e-8, abs=1e-9)
    small = mpf(10) ** -50
    for i in range(6):
        step = small
        exact = slope(lambda h, i=i: (a, moved(w, i, h), c)) * float(w[i])
        assert float(factor.grad.flatten()[i] * factor.detach().flatten()[i]) == pytest.approx(
            exact, rel=1e-8, abs=1e-9
        )
    assert float(scale.grad) == pytest.approx(slope(lambda h: (a, w, c + h)), rel=1e-8)


@pytest.mark.some(2)
@pytest.mark.parametrize("f", ["jensen-shannon", "sqrt(1+(x-1)**2)-1", "x*log(x)+(x-1)**2"])
def test_second_derivatives(f: str) -> None:
    dual, factor = problem((2, 2), 1)
    scale = torch.tensor(2.0, dtype=torch.float64)
    leaves = [x.requires_grad_() for x in (dual, factor, scale)]
    assert torch.autograd.gradgradcheck(lambda *z: memory(f, *z), leaves)


@pytest.mark.parametrize("over", ["rows", "columns"])
def test_a_group_does_not_depend_on_its_neighbours(over: str) -> None:
    """Bit for bit: a search does not go on for those that are done."""
    dual, factor = (x.float() for x in problem((6, 5), 9))
    scale = torch.tensor(2.0)
    whole = memory("jensen-shannon", dual, factor, scale, over)
    for i in range(6 if over == "rows" else 5):
        part = (slice(i, i + 1), slice(None)) if over == "rows" else (slice(None), slice(i, i + 1))
        others = 30 * dual  # whose roots take other numbers of steps
        others[part] = dual[part]
        beside = memory("jensen-shannon", others, factor, scale, over)
        assert not torch.equal(whole, beside)
        assert torch.equal(whole[part], beside[part])


def test_no_sum_is_no_number() -> None:
    """Where all factors are zero no sum is the scale."""
    found = memory("chi2", torch.zeros(2, 2), torch.zeros(2, 2), torch.tensor(1.0))
    assert bool(found.isnan().all())


def given(width: int, tokens: int, dtype: torch.dtype, eta: float = 0.9) -> dict[str, Tensor]:
    """Unit keys, values of size one, a rate."""
    rng = torch.Generator().manual_seed(1)

    def normal(*shape: int) -> Tensor:
        return torch.randn(2, tokens, 1, *shape, generator=rng, dtype=torch.float64)

    k, q = (torch.nn.functional.normalize(normal(width), dim=-1) for _ in range(2))
    found = {"q": q, "k": k, "v": normal(width), "eta": torch.full((2, tokens, 1), eta)}
    return {n: x.to(dtype) for n, x in found.items()}


def operator(f: str, over: str = "all") -> Any:
    retention = {
        "local": {"f-divergence": f}, "constraint": {"kind": "simplex", "scale": 4, "over": over},
    }  # fmt: skip
    return mnemic.compile(
        {"name": "x", "bias": "l2", "retention": retention, "optimizer": {"rate": "token"}}
    )


WIDE = {"hellinger": 64, "jensen-shannon": 16}
LONG = {"jensen-shannon": 1000, "(x-1)**4": 20, "x*log(x)+(x-1)**2": 20}
AXES = {"all": (-2, -1), "rows": -1, "columns": -2}


@pytest.mark.some(3)
@pytest.mark.parametrize(
    ("f", "over"),
    [*((f, "all") for f in INVERSES), ("jensen-shannon", "rows"), ("hellinger", "columns")],
)
@pytest.mark.parametrize("long", [False, pytest.param(True, marks=pytest.mark.full)])
def test_a_memory_stays_on_its_simplex(f: str, over: str, long: bool) -> None:
    rule = operator(f, over)
    for dtype in (torch.float32, torch.float64):
        whole = long and over == "all" and dtype == torch.float32
        tokens = LONG.get(f, 300) if whole else min(LONG.get(f, 60), 60 if long else 20)
        width = WIDE.get(f, 8) if dtype == torch.float32 else 8
        out, state = rule(**given(width, tokens, dtype), form="recurrent", output_final_state=True)
        assert bool(out.isfinite().all())
        total = state["W"].sum(AXES[over])
        near = 4 * width * torch.finfo(dtype).eps
        torch.testing.assert_close(total, torch.full_like(total, 4), rtol=near, atol=0)
        assert bool((state["W"] >= 0).all())


@pytest.mark.some(2)
@pytest.mark.parametrize("f", ["hellinger", "jensen-shannon", "sqrt(1+(x-1)**2)-1"])
def test_steps_of_a_long_run_are_the_minimisers(f: str) -> None:
    """From the memory of every fifteenth token: its own step, in 120 digits."""
    rule, x = operator(f), given(4, 60, torch.float64)
    state = None
    for t in range(0, 60, 15):
        before = {n: z[:1, t : t + 14] for n, z in x.items()}
        _, state = rule(**before, form="recurrent", initial_state=state, output_final_state=True)
        one = {n: z[:1, t + 14 : t + 15] for n, z in x.items()}
        _, after = rule(**one, form="recurrent", initial_state=state, output_final_state=True)
        w = mpmath.matrix(state["W"][0, 0].tolist())
        k, v = (mpmath.matrix(one[n][0, 0, 0].tolist()) for n in ("k", "v"))
        pull = -mpf(float(one["eta"][0, 0, 0])) * (w * k - v) * k.T
        exact = solved(f, list(pull), list(w), mpf(4))
        for found, expected in zip(after["W"].flatten().tolist(), exact, strict=True):
            assert found == pytest.approx(float(expected), rel=0, abs=1e-9)
        state = after


@pytest.mark.some(2)
@pytest.mark.parametrize("f", INVERSES)
def test_gradients_of_a_long_run_are_finite(f: str) -> None:
    rule = operator(f)
    tokens = min(LONG.get(f, 60), 60)
    x = {n: z.requires_grad_() for n, z in given(4, tokens, torch.float32).items()}
    out, _ = rule(**x, form="recurrent")
    out.sum().backward()
    assert all(bool(z.grad.isfinite().all()) for z in x.values())


def test_an_entry_at_zero_comes_back_only_where_the_slope_has_a_limit() -> None:
    """0·f(w/0) is w f′(∞): finite where f′ is bounded, and ∞ for χ², whose zeros stay."""
    x = given(4, 1, torch.float64)
    x["k"], x["v"] = torch.eye(4)[0].double().expand_as(x["k"]), 0 * x["v"] + 50
    start = torch.full((2, 1, 4, 4), 1 / 3, dtype=torch.float64)
    start[..., 0] = 0.0
    for f, column in (("chi2", 0.0), ("sqrt(1+(x-1)**2)-1", 4.0)):
        _, state = operator(f)(
            **x, form="recurrent", initial_state={"W": start}, output_final_state=True
        )
        torch.testing.assert_close(
            state["W"][..., 0].sum(-1), torch.full((2, 1), column).double(), rtol=1e-12, atol=0
        )


@pytest.mark.parametrize(("bias", "rate"), first_only([("dot", 30.0), ("l2", 10.0)], ("l2", 10.0)))
def test_entries_that_fell_to_zero_are_the_interpreters(bias: str, rate: float) -> None:
    """Le Cam's f′ ends at −3 and 1: most entries are zero, and the others stand at the pole."""
    case = compiled(
        {
            "name": "x", "bias": bias, "optimizer": {"rate": rate},
            "retention": {
                "local": {"f-divergence": "(x - 1)**2/(x + 1)"},
                "constraint": {"kind": "simplex", "scale": 4},
            },
        }
    )  # fmt: skip
    arguments = inputs(case, 9)
    found, (out, states) = run(case, arguments, "recurrent"), interpreted(case, arguments)
    memory = found.states["W"]
    assert int((memory == 0).sum()) > memory.numel() / 2
    torch.testing.assert_close(found.out, out, rtol=0, atol=1e-12)
    torch.testing.assert_close(as_interpreted(found.states)["W"], states["W"], rtol=0, atol=1e-12)


def test_a_root_runs_under_inference_mode() -> None:
    """Of a simplex, and of a retention whose link has no closed form."""
    numeric = {"local": {"bregman": "exp(w) + w**2"}}
    spec = {"name": "x", "bias": "l2", "retention": numeric, "optimizer": {"rate": "token"}}
    x = given(4, 4, torch.float32)
    for rule in (operator("jensen-shannon"), operator("(x-1)**4"), mnemic.compile(spec)):
        expected, _ = rule(**x, form="recurrent")
        with torch.inference_mode():
            found, _ = rule(**x, form="recurrent")
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("f", ["-x**2", "sin(x)", "abs(x-1)", "log(x-2)"])
def test_what_is_not_convex_is_refused(f: str) -> None:
    with pytest.raises(InvalidSpec, match="strictly convex on"):
        operator(f)
