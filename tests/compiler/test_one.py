"""A network that reads the number 1: a vector of parameters, as a matrix with one column."""

import sympy as sp
import torch

from mnemic.compiler.explain.network_lines import line
from mnemic.compiler.network import ONE, RAW, Apply, Map, Matrix, Network, node_symbol
from mnemic.compiler.oracle.reference_network import forward, gradients

SCALED = node_symbol("z") * node_symbol(RAW)
DIAGONAL = Network(
    (Matrix("W", "v", ONE),), (Apply("z", "W", ONE), Map("out", SCALED, ("z", RAW))), ((ONE, 0),)
)
"""d ∘ x."""


def test_a_diagonal_and_its_gradient() -> None:
    generator = torch.Generator().manual_seed(0)
    d, x, error = (torch.randn(1, 1, 5, 1, generator=generator).double() for _ in range(3))
    known = forward(DIAGONAL, {"W": d}, x.mT, x)
    assert torch.equal(known["out"], d * x)
    found = gradients(DIAGONAL, {"W": d}, known, error, x)
    assert torch.equal(found["W"], error * x)
    assert DIAGONAL.backward.outer["W"][1] == ONE
    assert not sp.sympify(DIAGONAL.linear)


def test_it_is_told_as_a_number() -> None:
    assert [line(node) for node in DIAGONAL.nodes] == ["z = W 1", "out = x·z"]
