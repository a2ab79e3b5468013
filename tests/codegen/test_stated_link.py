"""Links that a spec states: what is told of them, what is refused, and every form."""

from typing import Any

import pytest
import torch
from conformance import compiled
from torch import Tensor

from mnemic.compiler import symbols as sym
from mnemic.compiler.derive import derive_spec
from mnemic.compiler.oracle.interpret import interpret
from mnemic.compiler.oracle.verify import verify
from mnemic.compiler.stated_link import origin
from mnemic.compiler.symbolic import read
from mnemic.dsl.load import load
from mnemic.errors import InvalidSpec

PRINTED = {"expr": "a/nu**2", "power": 4}


def spec(link: Any, **more: Any) -> dict[str, Any]:
    retention = {"view": "ftrl", "decay": "token", "link": link, **more.pop("retention", {})}
    return {
        "name": "x", "bias": "l2", "retention": retention, "optimizer": {"rate": "token"}, **more,
    }  # fmt: skip


def arguments(tokens: int = 13, seed: int = 0) -> dict[str, Tensor]:
    rng = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(2, tokens, 2, *shape, generator=rng, dtype=torch.float64)

    k = torch.nn.functional.normalize(normal(4), dim=-1)
    return {
        "q": normal(4), "k": k, "v": normal(3), "eta": 0.2 * torch.sigmoid(normal()),
        "log_alpha": -0.1 * torch.sigmoid(normal()),
    }  # fmt: skip


def dual(seed: int = 5) -> dict[str, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    return {"A": torch.randn(2, 2, 3, 4, generator=rng, dtype=torch.float64)}


@pytest.mark.parametrize(
    ("text", "power", "words"),
    [
        ("a/nu**2", 4, "differ"),  # Miras (8)
        ("a/nu**2", 3, "differ"),
        ("a/(1 + nu**2)", 3, "differ"),
        ("a/nu**2", 2, "against the dual"),
        ("-a", 2, "against the dual"),
        ("a*exp(-a**2)", 2, "against the dual"),
        ("sign(a)*abs(a)**3/nu**2", 4, "a convex retention"),  # the dual norm's
        ("a/sqrt(1 + nu**2)", 2, "a convex retention"),
        ("tanh(a)", 2, "a convex retention"),
        ("log(a - 100)", 2, "not told"),
    ],
)
def test_whether_a_retention_has_the_link(text: str, power: float, words: str) -> None:
    assert words in origin(read(text, {"a": sym.a, "nu": sym.nu}), power)


def test_the_derivation_says_that_the_link_is_given() -> None:
    steps = {step.title: step for step in derive_spec(load(spec(PRINTED))).steps}
    assert steps["link"].reason == "the link as stated, not derived"
    assert "none: " in steps["its retention"].equation


@pytest.mark.parametrize(
    "link", ["a/(1 + nu)", "tanh(a)", {"expr": "sign(a)*abs(a)**3/nu**2", "power": 4}, "a*nu"]
)
def test_every_check_of_the_derivation_passes(link: Any) -> None:
    found = verify(derive_spec(load(spec(link))))
    assert [check.name for check in found] == ["error signal", "slope", "link", "recurrence"]
    assert all(check.passed for check in found), found


def loop(x: dict[str, Tensor], start: Tensor, every: int) -> tuple[Tensor, Tensor]:
    """Miras (8) with q = 4, a squared error and the gradient at the last multiple of ``every``."""
    a = start

    def link(a: Tensor) -> Tensor:
        return a / (a**4).sum((-2, -1), keepdim=True) ** 0.5

    held, outs = link(a), []
    for t in range(x["q"].shape[1]):
        k, v, q = x["k"][:, t], x["v"][:, t], x["q"][:, t]
        error = torch.einsum("bhvk,bhk->bhv", held, k) - v
        step = x["eta"][:, t, :, None, None] * error[..., None] * k[..., None, :]
        a = x["log_alpha"][:, t, :, None, None].exp() * a - step
        outs.append(torch.einsum("bhvk,bhk->bhv", link(a), q))
        held = link(a) if (t + 1) % every == 0 else held
    return torch.stack(outs, 1), a


@pytest.mark.parametrize(("every", "forms"), [(1, ("recurrent",)), (8, ("recurrent", "chunk"))])
def test_the_printed_link_of_moneta_is_a_loop_of_its_equation(
    every: int, forms: tuple[str, ...]
) -> None:
    rule = compiled(spec(PRINTED, optimizer={"rate": "token", "anchor": {"chunk": every}})).operator
    assert rule.signature.forms == forms
    x, first = arguments(19), dual()
    sources = [*x.values(), first["A"]]
    for tensor in sources:
        tensor.requires_grad_()
    expected, last = loop(x, first["A"], every)
    weights = torch.cos(torch.arange(expected.numel(), dtype=torch.float64)).reshape(expected.shape)
    slopes = torch.autograd.grad((expected * weights).sum() + last.sum(), sources)
    for form in forms:
        out, state = rule(**x, form=form, initial_state=first, output_final_state=True)
        torch.testing.assert_close(out, expected, rtol=0, atol=1e-10)
        torch.testing.assert_close(state["A"], last, rtol=0, atol=1e-10)
        mine = torch.autograd.grad((out * weights).sum() + state["A"].sum(), sources)
        for one, other in zip(mine, slopes, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("link", ["a/(1 + nu)", "a*abs(a) + a", {"expr": "a/nu", "power": 3}])
def test_other_links_are_the_interpreted_rule(link: Any) -> None:
    case = compiled(spec(link))
    x, first = arguments(), dual()
    out, _ = case.operator(**x, initial_state=first)
    rest = {name: x[name] for name in ("eta", "log_alpha")}
    expected, _ = interpret(case.rule, x["q"], x["k"], x["v"], rest, initial_state=first)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"retention": {"view": "learning-retaining"}}, "write view: ftrl"),
        ({"retention": {"local": "kl"}}, "given as well"),
        ({"retention": {"global": {"l2": 0.1}, "decay": 1}}, "given as well"),
        ({"retention": {"constraint": "ball"}}, "given as well"),
        ({"retention": {"normalize": "rows"}}, "given as well"),
        ({"features": "exponential"}, "no finite map"),
        ({"retention": {"link": "2*nu"}}, "does not depend on a"),
        ({"retention": {"link": "a*b"}}, "b"),
        (
            {"retention": {"link": "a*nu"}, "coefficients": {"nu": 2}, "keys": {"write": "nu*k"}},
            "same name",
        ),
    ],
)
def test_what_a_stated_link_has_no_room_for(more: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSpec, match=words.replace("*", ".")):
        load(spec(PRINTED, **more))
