"""Every operation from its object alone: axes against shapes, adjoint against autograd, tiles
against PyTorch."""

import pytest
import tiled
import torch
from printed_adjoints import parameters, source
from sampled import SIZES, Drawn, drawn, plan_of
from torch import Tensor

from mnemic.codegen.adjoint import adjoint
from mnemic.codegen.ops import OPERATIONS
from mnemic.codegen.ops.operation import CHUNK, PAIRS, TOKEN, Operation
from mnemic.codegen.support import ops


def cases() -> list[tuple[str, bool]]:
    """Each operation with all its arguments, and without those that may be left out."""
    sampled = [o for o in OPERATIONS.values() if o.sample is not None]
    optional = [o for o in sampled if o.signature().takes[-1].optional]
    return [(o.name, False) for o in sampled] + [(o.name, True) for o in optional]


TOLERANCE = 1e-11
IN_PYTORCH = [(name, short) for name, short in cases() if OPERATIONS[name].in_pytorch]


def on_tiles() -> list[tuple[str, str, bool]]:
    """Each operation that a function of tiles computes, in each kind of plan that has it."""
    found = []
    for name, short in cases():
        operation = OPERATIONS[name]
        if computed(operation):
            forms = [form for form in (CHUNK, TOKEN) if operation.on_tiles(form)]
            found += [(name, form, short) for form in forms or [PAIRS]]
    return found


def computed(operation: Operation) -> bool:
    """Whether kernels call a function of ``support.tiles`` for it."""
    tile = operation.tile
    return tile is not None and bool(tile.forms) and not (tile.in_module or tile.woven)


@pytest.mark.parametrize("name", OPERATIONS)
def test_pytorch_has_what_is_called(name: str) -> None:
    operation = OPERATIONS[name]
    own = operation.tile is not None and operation.tile.in_module
    assert hasattr(ops, name) == operation.in_pytorch or own
    assert operation.sample is not None or own or not operation.in_pytorch


@pytest.mark.parametrize(("name", "short"), IN_PYTORCH)
def test_axes_are_those_of_shapes(name: str, short: bool) -> None:
    operation = OPERATIONS[name]
    for form in (CHUNK, TOKEN) if operation.token else (CHUNK,):
        given = drawn(operation, form, short=short)
        found = given.run(given.tensors)
        expected = (2, *(SIZES[letter] for letter in given.gives))
        assert torch.broadcast_shapes(found.shape, expected) == expected
        assert found.ndim == len(expected) or found.shape[-len(given.gives) :] == expected[1:]


@pytest.mark.parametrize(
    ("name", "short"), [(n, s) for n, s in IN_PYTORCH if OPERATIONS[n].adjoint is not None]
)
def test_the_adjoint_is_autograd(name: str, short: bool) -> None:
    given = drawn(OPERATIONS[name], short=short)
    found, expected = by_adjoint(given), by_autograd(given)
    assert found.keys() == expected.keys()
    for argument, x in expected.items():
        y = given.meant(argument, found[argument])
        apart = (y - given.meant(argument, x)).abs().max() / (1 + x.abs().max())
        assert bool(x.any()), argument
        assert apart <= given.sample.tolerance, argument


def by_autograd(given: Drawn) -> dict[str, Tensor]:
    """The gradients of Σ w ∘ y, by argument."""
    leaves = {n: x.clone().requires_grad_(n in given.differentiated)
              for n, x in given.tensors.items()}  # fmt: skip
    y = given.run(leaves)
    if not given.differentiated:
        assert not y.requires_grad
        return {}
    (y * weights(y)).sum().backward()
    return {n: leaves[n].grad for n in given.differentiated}


def weights(y: Tensor) -> Tensor:
    """The gradient that comes in."""
    torch.manual_seed(1)
    return torch.randn(y.shape, dtype=torch.float64)


def by_adjoint(given: Drawn) -> dict[str, Tensor]:
    """The same by the printed adjoint of a plan of this one operation."""
    plan = plan_of(given)
    back = adjoint(plan)
    scope = given.scope
    exec(source(back, {}, "backward", "Its gradient."), scope)
    tensors = {**given.tensors, "d_out": weights(given.run(given.tensors))}
    rows, _ = scope["backward"](**{n: tensors[n] for n in parameters(back)})
    return rows


@pytest.mark.parametrize(("name", "form", "short"), on_tiles())
def test_a_tile_is_what_pytorch_computes(interpreter, name: str, form: str, short: bool) -> None:
    assert interpreter(tiled.difference, name=name, form=form, short=short) <= TOLERANCE


@pytest.mark.parametrize("name", ["conjugated", "innovation_factor"])
def test_solves_of_calls_in_16_bits_take_pairs_of_numbers(interpreter, name: str) -> None:
    """To 2⁻¹⁶ of an operand; one number of 16 bits would leave 2⁻⁹."""
    arguments = {"name": name, "form": CHUNK, "short": True, "precision": "bf16"}
    assert TOLERANCE < interpreter(tiled.difference, **arguments) < 2**-14
