"""Memories of layers against autograd of the problem as written: outputs, states, gradients."""

from typing import Any

import pytest
import torch
from conformance import (
    Case,
    Result,
    Sizes,
    Tensors,
    as_interpreted,
    beginning,
    close,
    compiled,
    error,
    gradients,
    having,
    inputs,
    interpreted,
    weighed,
)
from packaged import CORE
from test_deep import FIRST, L2, TITLES, spec
from torch import Tensor

from mnemic.compiler.oracle.stated import stated_layers
from mnemic.compiler.oracle.stated_deep import differentiable
from mnemic.compiler.problem import Problem

SHORT: dict[str, Any] = {
    "cms": {"memory": {"chain": [{"kind": "mlp", "norm": True}] * 3, "every": [1, 2, 4]}},
    "lact": {"optimizer": {"every": 4}},
}
"""Intervals that end within few tokens, where shortening the anchor is not enough."""


def shortened(name: str) -> dict[str, Any]:
    """A packaged spec with an anchor of four tokens: what is minimised numerically is slow."""
    more = {"optimizer": {"anchor": {"chunk": 4}}}
    own = SHORT.get(name, {})
    optimizer = {**more["optimizer"], **own.get("optimizer", {})}
    return {"mnemic": 1, "name": name, "extends": name, **own, "optimizer": optimizer}


CASES: dict[str, dict[str, Any]] = {
    **{name: shortened(name) for name in having("layered")},
    **{title: spec(title) for title in L2},
    "a constant ridge with momentum": {
        "mnemic": 1, "name": "deep", "bias": "l2", "memory": {"kind": "mlp", "residual": False},
        "retention": {"global": {"l2": 0.1}},
        "optimizer": {"method": "momentum", "rate": 0.1, "momentum": "token",
                      "anchor": {"chunk": 4}},
    },
    "weights of pairs inside of O, the rate outside": {
        "mnemic": 1, "name": "deep", "bias": "l2", "memory": {"kind": "mlp", "residual": False},
        "weights": "token",
        "optimizer": {"method": "muon", "rate": "token", "momentum": "token",
                      "rate_at": "outside", "anchor": {"chunk": 4}},
    },
    "two intervals, a prox at the longer": {
        "mnemic": 1, "name": "deep", "bias": "dot",
        "memory": {"chain": [{"kind": "mlp", "residual": False}, {"kind": "mlp", "depth": 1}],
                   "every": [1, 2]},
        "retention": {"global": {"elastic": {"l1": 0.05, "l2": 0.1}}},
        "optimizer": {"rate": 0.1, "anchor": {"chunk": 4}},
    },
    "cubes on simplices, which bind at zero": {
        "mnemic": 1, "name": "deep", "bias": "l2", "memory": {"kind": "mlp", "residual": False},
        "retention": {"local": {"bregman": "w**3"},
                      "constraint": {"kind": "simplex", "scale": 2, "over": "all"}},
        "optimizer": {"rate": "token", "anchor": {"chunk": 4}},
    },
    "a ridge of a window": {
        "mnemic": 1, "name": "deep", "bias": "l2", "memory": {"kind": "mlp", "residual": False},
        "retention": {"global": {"l2": 0.1}}, "window": 3,
        "optimizer": {"rate": "token", "anchor": {"chunk": 4}},
    },
}  # fmt: skip


LATER = ({*L2} - FIRST) | ({*having("layered")} - {*CORE})
"""Those of the full test tier alone."""


def asked(case: Case, call: Any, arguments: Tensors, params: Tensors, *, gradient: bool) -> Result:
    """Outputs, states and gradients of a function of arguments and initial duals."""
    leaves = {n: x.clone().requires_grad_(gradient) for n, x in arguments.items()}
    duals = {n: x.clone().requires_grad_(gradient) for n, x in params.items()}
    out, states = call(leaves, duals)
    loss = weighed(out)
    for name in sorted(states):
        loss = loss + weighed(states[name]) if name.startswith("W") else loss
    found = {}
    if gradient:
        sources = {**leaves, **{f"params.{n}": x for n, x in duals.items()}}
        found = gradients(loss, sources, case)
    return Result(out.detach(), {n: x.detach() for n, x in states.items()}, found)


def as_written(problem: Problem, x: Tensors, duals: Tensors) -> tuple[Tensor, Tensors]:
    """The problem's outputs and states; the first matrix's without their number too."""
    rest = {n: y for n, y in x.items() if n not in "qkv"}
    out, states = stated_layers(problem, x["q"], x["k"], x["v"], rest, duals or None)
    return out, states | {n.removesuffix("1"): y for n, y in states.items()}


@pytest.mark.some(9)
@pytest.mark.parametrize("name", [pytest.param(x, marks=pytest.mark.full) if x in LATER else x
                                  for x in CASES])  # fmt: skip
def test_forms_solve_the_problem_as_written(name: str) -> None:
    case = compiled(CASES[name])
    problem = case.rule.problem
    through = differentiable(problem.spec)
    tokens = min(max(case.rule.intervals, default=1), 16) + (5 if through else 2)
    arguments = inputs(case, tokens, sizes=Sizes(1, tokens, 2 if through else 1, 3, 3))
    params = beginning(case, arguments["k"], arguments["v"])

    def written(x: Tensors, duals: Tensors) -> tuple[Tensor, Tensors]:
        out, states = as_written(problem, x, duals)
        return out, {n: states[n] for n in names(case)}

    expected = asked(case, written, arguments, params, gradient=through)
    for form in case.forms:

        def ours(x: Tensors, duals: Tensors, form: str = form) -> tuple[Tensor, Tensors]:
            options = {"params": duals} if duals else {}
            out, states = case.generated(**x, form=form, output_final_state=True, **options)
            states = as_interpreted(states)
            return out, {n: states[n] for n in names(case)}

        found = asked(case, ours, arguments, params, gradient=through)
        other = dict(expected.parts())
        wrong = {n: e for n, x in found.parts() if not (e := error(x, other[n])) <= 1e-8}
        assert not wrong, (form, wrong)


@pytest.mark.some(8)
@pytest.mark.parametrize("title", TITLES)
def test_layers_are_the_interpreted_rule(title: str) -> None:
    """Outputs, states and gradients; the forms agree with each other elsewhere."""
    case = compiled(spec(title))
    arguments = {n: x.requires_grad_() for n, x in inputs(case, 21, seed=5).items()}
    out, final = case.operator(**arguments, form="recurrent", output_final_state=True)
    expected, state = interpreted(case, arguments)
    assert error(out, expected) <= 1e-9
    states = as_interpreted(final)
    close(states, {n: state[n] for n in states})
    close(gradients(weighed(out), arguments), gradients(weighed(expected), arguments))


def names(case: Case) -> list[str]:
    """The states that the problem knows: matrices, momenta, anchors, norms.

    The dual of a simplex is known up to a constant alone.
    """
    free = case.rule.problem.spec.retention.constraint.word() == "simplex"
    heads = ("W", "S", "held", "anchor", "norms", "squares") + (() if free else ("A",))
    renamed = [s.name.replace("U", "W") for s in case.signature.states]
    return [name for name in renamed if name.startswith(heads)]


def test_a_simplex_sums_to_its_scale() -> None:
    case = compiled(shortened("memora"))
    arguments = inputs(case, 5, sizes=Sizes(1, 5, 2, 3, 3))
    _, states = case.operator(**arguments, output_final_state=True)
    for matrix in ("1", "2"):
        total = states[f"anchor{matrix}"].sum((-2, -1))
        assert torch.allclose(total, arguments[f"scale{matrix}"][:, 0], rtol=1e-12)
