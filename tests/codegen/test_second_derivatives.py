"""Second derivatives of every class of rule: right in every form, or refused."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
import torch
from conformance import Case, available, beginning, compiled, inputs, weighed
from packaged import FACTS, having
from torch import Tensor

from mnemic.codegen.support import by_memory, chunks, links, row_states
from mnemic.codegen.support.conjugate import conjugated
from mnemic.codegen.support.descent import Regressions, solve_rows

Tensors = dict[str, Tensor]

DECAYED = {"decay": "token", "order": "before"}
ITERATED = {"kind": "conjugate-gradients", "tolerance": 1e-14, "iterations": 60}
IMPLICIT = {"method": "implicit", "rate": "token"}

OWN: dict[str, dict[str, Any]] = {
    "radial": {"bias": {"expr": "sqrt(1 + n**2) - 1"}, "retention": DECAYED,
               "optimizer": {"rate": "token"}},
    "entry by entry": {"bias": {"expr": "log(cosh(e))"}, "retention": {"decay": "channel"},
                       "optimizer": {"rate": "token"}},
    "an implicit root": {"bias": {"expr": "sqrt(1 + e**2) - 1"}, "retention": DECAYED,
                         "optimizer": IMPLICIT},
    "an implicit root of the norm": {"bias": {"expr": "sqrt(1 + n**2) - 1"}, "features": "elu",
                                     "retention": DECAYED, "optimizer": IMPLICIT},
    "a window": {"bias": {"expr": "log(cosh(e))"}, "window": 3, "optimizer": {"rate": "token"}},
    "conjugate gradients": {"bias": "l2", "window": "all", "retention": {"global": {"l2": 0.5}},
                            "optimizer": {"method": "exact", "rate": "token", "solver": ITERATED}},
    "local lines": {"extends": "local-linear-attention", "optimizer": {"solver": ITERATED}},
}  # fmt: skip


def asked() -> list[tuple[str, str]]:
    """Every form of the first packaged spec of each class, and of rules of one's own."""
    classes = sorted({x for n in available() for x in FACTS[n]["traits"] if x.startswith("class ")})
    packaged = [(n, form) for n in (having(x)[0] for x in classes) for form in FACTS[n]["forms"]]
    return packaged + [(name, form) for name in OWN for form in ("recurrent", "chunk")]


def case_of(name: str) -> Case:
    return compiled({"name": "x", **OWN[name]}, kernels=False) if name in OWN else compiled(name)


def slope(case: Case, form: str, arguments: Tensors, options: Mapping[str, Any]) -> Tensors:
    """The gradient of a scalar of outputs and last states at every argument, as a graph."""
    out, final = case.operator(**arguments, form=form, output_final_state=True, **options)
    loss = weighed(out) + sum(
        weighed(torch.sin(x)) for x in final.values() if x.is_floating_point()
    )
    loss = loss + loss.square() / 10
    found = torch.autograd.grad(loss, list(arguments.values()), create_graph=True)
    return dict(zip(arguments, found, strict=True))


def directions(case: Case, arguments: Tensors) -> Tensors:
    """Where to go, a little; parameters stay the same for all tokens."""
    generator = torch.Generator().manual_seed(1)
    shared = {str(s.argument) for s in case.rule.scalars if s.declared.origin == "parameter"}
    found = {}
    for name, x in arguments.items():
        way = torch.randn(x.shape, generator=generator, dtype=x.dtype)
        way = way * (0.1 if name in "qkv" else 0.1 * x.abs())
        found[name] = way[:1, :1].expand(x.shape) if name in shared else way
    return found


@pytest.mark.some(10)
@pytest.mark.parametrize(("name", "form"), asked())
def test_second_derivatives_are_those_of_the_gradient(name: str, form: str) -> None:
    """Along a direction, beside central differences of the gradient."""
    case = case_of(name)
    arguments = inputs(case, 7, seed=3)
    begun = beginning(case, arguments["k"], arguments["v"])
    options: dict[str, Any] = {"params": begun} if begun else {}
    if form == "chunk" and case.period == 1:
        options["chunk_size"] = 4
    way, step = directions(case, arguments), 1e-5

    def moved(by: float) -> Tensors:
        there = {n: (x + by * way[n]).requires_grad_() for n, x in arguments.items()}
        return {n: x.detach() for n, x in slope(case, form, there, options).items()}

    leaves = {n: x.clone().requires_grad_() for n, x in arguments.items()}
    along = sum((x * way[n]).sum() for n, x in slope(case, form, leaves, options).items())
    found = torch.autograd.grad(along, list(leaves.values()))
    above, below = moved(step), moved(-step)
    for n, x in zip(leaves, found, strict=True):
        expected = (above[n] - below[n]) / (2 * step)
        assert float((x - expected).abs().max() / (1e-3 + expected.abs().max())) < 1e-5, n


# -- functions with gradients of their own ---------------------------------------------------


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def regressed(target: Tensor, weights: Tensor, keys: Tensor, ridge: Tensor) -> Tensor:
    """The regressions of positive weights around their means."""
    weights = weights.square() + 0.1
    centre = weights / weights.sum(-1, keepdim=True) @ keys
    return solve_rows(Regressions(weights, keys, centre, ridge.square() + 0.5), target, 60, 1e-14)


def ridged(
    q: Tensor, key: Tensor, weights: Tensor, h: Tensor, ridge: Tensor, reach: Tensor
) -> Tensor:
    parts = (q, key, weights.square().tril(), h @ h.mT, ridge.square() + 0.5, reach.square())
    return conjugated(*parts, tolerance=1e-14, iterations=60)


def sliced(x: Tensor, y: Tensor, scale: Tensor) -> Tensor:
    """A function of three memories, one after another."""
    return by_memory.by_memory(
        lambda x, y, c: torch.tanh(x @ y.mT) * c, by_memory.ENTRIES, x, y, scale
    )


FUNCTIONS = {
    "by_memory": (sliced, (normal(3, 2, 2), normal(3, 2, 2, seed=1), torch.tensor(0.7).double())),
    "accumulate": (row_states.accumulate, (normal(3, 3), normal(3, 2, seed=1),
                                           normal(3, 4, seed=2))),
    "decayed_onto": (row_states.decayed_onto, (normal(2, 4), normal(3, seed=1),
                                               normal(3, 2, 4, seed=2))),
    **{f"simplex over {over}": (partial(links.simplex, over=over), (normal(2, 3, 4), normal(2)))
       for over in ("all", "rows", "columns")},
    **{f"entry_norm {power}": (partial(links.entry_norm, power=power), (normal(2, 3, 4),))
       for power in (1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0)},
    "segments": (chunks.segments, (normal(4),)),
    "unit_lower_inverse": (lambda x: chunks.unit_lower_inverse(x.tril(-1)), (normal(4, 4),)),
    "solve_rows": (regressed, (normal(1, 2, 3), normal(1, 2, 4, seed=1), normal(1, 4, 3, seed=2),
                               normal(1, 2, seed=3))),
    "conjugated": (ridged, (normal(3, 2), normal(3, 2, seed=1), normal(3, 3, seed=2),
                            normal(2, 2, seed=3), normal(3, 2, seed=4), normal(3, seed=5))),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_of_their_own_have_gradients(name: str) -> None:
    function, given = FUNCTIONS[name]
    leaves = [x.clone().requires_grad_() for x in given]
    assert torch.autograd.gradcheck(function, leaves)
    assert torch.autograd.gradgradcheck(function, leaves)
