"""The checks behind a compiled folder's own test, in float64: forms, splits, steps, padding."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .arguments import ArgumentError
from .seeded import seeded
from .sequence import SequenceLayer

TOLERANCE = 1e-9
"""The largest difference, relative to the largest entry, that rounding explains."""

BATCH, DIM, HEAD = 2, 8, 4
LEAST_TOKENS = 37
CHUNKS = (1, 5, 16, 64)

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Check:
    """Two computations that must agree, and by how much they do not."""

    what: str
    error: float

    @property
    def passed(self) -> bool:
        """Whether they agree (NaN does not)."""
        return self.error <= TOLERANCE


def run(layer_type: type[SequenceLayer]) -> bool:
    """Run every check, print a table, and tell whether all passed."""
    told = layer_type.rule.signature
    print(f"{told.name}: forms {', '.join(told.forms)}; float64, tolerance {TOLERANCE:g}")
    passed = True
    for check in checks(layer_type):
        print(f"  {'ok  ' if check.passed else 'FAIL'}  {check.error:8.1e}  {check.what}")
        passed = passed and check.passed
    return passed


def checks(layer_type: type[SequenceLayer]) -> Iterator[Check]:
    """Yield every check of a compiled rule and its layer."""
    with seeded(0):
        heads = 2 * layer_type.grouped()
        dim = DIM * layer_type.grouped()
        value = layer_type.rule.signature.values(HEAD, HEAD)
        layer = layer_type(dim, heads=heads, key_dim=HEAD, value_dim=value).double()
        tokens = layer.at_most(max(LEAST_TOKENS, 2 * layer.period + 5))
        x = torch.randn(BATCH, tokens, dim, dtype=torch.float64)
    arguments = {name: a.detach() for name, a in layer.arguments(x).items()}
    params = {name: a.detach() for name, a in layer.params().items()}
    yield from of_forms(layer.rule, arguments, params)
    yield from of_splits(layer.rule, arguments, params)
    with torch.no_grad():
        yield from of_layer(layer, x)


def of_forms(rule: Any, arguments: Tensors, params: Tensors) -> Iterator[Check]:
    """Yield checks of every parallel form on the CPU against the recurrence, gradients too."""
    if "chunk" not in rule.forms:
        return
    expected = _everything(rule, arguments, params, form="recurrent")
    for size in CHUNKS if rule.signature.anchor == 1 else (rule.signature.anchor,):
        found = _everything(rule, arguments, params, form="chunk", chunk_size=size)
        for part in expected:
            error = difference(found[part], expected[part])
            yield Check(f"{part}: chunks of {size} against token by token", error)


def of_splits(rule: Any, arguments: Tensors, params: Tensors) -> Iterator[Check]:
    """Yield checks of a sequence in pieces, the state carried, against the whole."""
    tokens = arguments["q"].shape[1]
    whole, end = rule(**arguments, params=params, output_final_state=True)
    for cut in dict.fromkeys((1, tokens // 2, tokens - 1)):
        first, state = rule(**_cut(arguments, 0, cut), params=params, output_final_state=True)
        rest = _cut(arguments, cut, tokens)
        second, last = rule(**rest, initial_state=state, output_final_state=True)
        error = difference({"y": torch.cat([first, second], 1), **last}, {"y": whole, **end})
        yield Check(f"output and state: split after {cut} against whole", error)


def of_layer(layer: SequenceLayer, x: Tensor) -> Iterator[Check]:
    """Yield checks of the layer's steps, and of padding on the left, against the layer at once."""
    whole, end = layer(x, output_state=True)
    state, steps = None, []
    for x_t in x.unbind(1):
        y_t, state = layer.step(x_t, state)
        steps.append(y_t)
    error = difference({"y": torch.stack(steps, 1), **(state or {})}, {"y": whole, **end})
    yield Check("layer: steps against the parallel form", error)
    padded = torch.cat([x.new_ones(len(x), 3, x.shape[2]), x], 1)
    mask = torch.arange(padded.shape[1]).expand(padded.shape[:2]) >= 3
    found, last = layer(padded, mask=mask, output_state=True)
    error = difference({"y": found[:, 3:], **last}, {"y": whole, **end})
    yield Check("layer: padding on the left against none", error)


def _cut(arguments: Tensors, low: int, high: int) -> Tensors:
    return {name: x[:, low:high] for name, x in arguments.items()}


def _everything(
    rule: Any, arguments: Tensors, params: Tensors, **options: Any
) -> dict[str, Tensors]:  # fmt: skip
    """Return the output, the final state, and the gradient of every argument through both."""
    given = {name: x.detach().clone().requires_grad_() for name, x in arguments.items()}
    begun = {name: x.detach().clone().requires_grad_() for name, x in params.items()}
    out, state = rule(**given, params=begun, output_final_state=True, **options)
    leaves = {**given, **{f"start of {name}": x for name, x in begun.items()}}
    floats = {name: s for name, s in state.items() if s.is_floating_point()}
    total = sum((_weighed(x) for x in floats.values()), _weighed(out))
    found = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
    gradients = {n: g for n, g in zip(leaves, found, strict=True) if g is not None}
    return {
        "output": {"y": out.detach()},
        "state": {name: s.detach() for name, s in state.items()},
        "gradients": gradients,
    }


def _weighed(x: Tensor) -> Tensor:
    """Return a number that every entry enters with a weight of its own."""
    return (x * torch.cos(torch.arange(x.numel(), dtype=x.dtype)).reshape(x.shape)).sum()


def difference(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
    """Return the largest difference of tensors of one name, relative to their largest entry."""
    if found.keys() != expected.keys():
        raise ArgumentError(f"read {sorted(found)}, expected {sorted(expected)}")
    pairs = [(found[name].double(), expected[name].double()) for name in expected]
    errors = [_relative(one, other) for one, other in pairs if other.numel()]
    return float(torch.stack(errors).max()) if errors else 0.0


def _relative(found: Tensor, expected: Tensor) -> Tensor:
    """Return the largest difference relative to the largest entry expected; NaN stays NaN."""
    return (found - expected).abs().max() / expected.abs().max().clamp_min(1e-3)
