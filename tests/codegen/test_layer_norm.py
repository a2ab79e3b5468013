"""A layer norm of W at chunk ends: rows without their means, at the spread of their start."""

from typing import Any

import pytest
import torch

import mnemic
from mnemic.bench import started
from mnemic.compiler.explain.render import to_text
from mnemic.compiler.oracle.interpret import interpret
from mnemic.compiler.oracle.samples import Sizes, draw
from mnemic.compiler.oracle.stated import stated
from mnemic.pipeline import derive

FAMILY = ("dla", "omeganet", "atlas", "atlas-plus", "deep-transformer", "swdt", "dot")


def short(name: str, **retention: Any) -> Any:
    """A packaged spec with chunks of four tokens."""
    return mnemic.compile({
        "mnemic": 1, "extends": name, "name": "short", "optimizer": {"anchor": {"chunk": 4}},
        "retention": retention,
    })  # fmt: skip


@pytest.mark.some(2)
@pytest.mark.parametrize("name", [n for n in FAMILY if not n.startswith("atlas")])
def test_every_form_is_what_is_stated(name: str) -> None:
    """torch's own layer norm of the rows, with the spread of W_0's as its gain."""
    case = short(name)
    sample = draw(case.rule, Sizes(1, 11, 2, 3, 3))
    given = (sample.q, sample.k, sample.v)
    params = {n: p.requires_grad_() for n, p in sample.params.items()}
    expected = stated(case.rule.problem, *given, sample.coefficients, params)
    slopes = torch.autograd.grad(expected.cos().sum(), [*params.values()])
    told, _ = interpret(case.rule, *given, sample.coefficients, params=params)
    torch.testing.assert_close(told, expected, rtol=0, atol=1e-12)
    for form in ("recurrent", "chunk"):
        found, _ = case(*given, **sample.coefficients, params=params, form=form)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
        own = torch.autograd.grad(found.cos().sum(), [*params.values()])
        for one, two in zip(own, slopes, strict=True):
            torch.testing.assert_close(one, two, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", FAMILY)
def test_the_memory_of_atlas_family_neither_fades_nor_grows(name: str) -> None:
    """Rows of W that have entries keep their spread, without a mean, over sixteen chunks."""
    case = mnemic.compile(name)
    assert case.spec.retention.normalize == "layer-norm"
    x = torch.randn(1, 256, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    given, params = started.arguments(case, x, heads=1)
    with torch.no_grad():
        _, state = case(**given, params=params, output_final_state=True)
    for matrix, first in params.items():
        last = state[matrix][0]
        assert last.mean(-1).abs().max() < 1e-12
        spread = first.std(-1, correction=0)
        torch.testing.assert_close(last.std(-1, correction=0), spread, rtol=1e-9, atol=0)
    if "U2" in state:  # rows over kept keys, which no norm holds: their decay does
        assert 1e-2 < float(state["U2"].norm()) < 1e2


def test_without_it_a_deep_transformer_fades() -> None:
    """What the norm is there for, over the same tokens."""
    sizes = {}
    for norm in ("none", "layer-norm"):
        case = short("deep-transformer", normalize=norm)
        x = torch.randn(1, 384, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        given, params = started.arguments(case, x, heads=1)
        with torch.no_grad():
            _, state = case(**given, params=params, output_final_state=True)
        sizes[norm] = float(state["W1"].norm() / params["W1"].norm())
    assert sizes["none"] < 0.1
    assert sizes["layer-norm"] > 0.9


def test_equations_say_what_the_norm_does() -> None:
    text = to_text(derive("dla"))
    assert "the rows of Wₜ lose their means and go back to the spreads of those in W₀" in text
