"""Arguments of one operation as its sample asks for them, and the operation run on them."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mnemic.codegen.ops.operation import CHUNK, TOKEN, Axes, Operation, Sample
from mnemic.codegen.plan import Call, Plan
from mnemic.codegen.support import ops

SIZES = {
    "t": 5, "s": 5, "c": 5, "k": 3, "v": 4, "r": 3, "n": 6, "l": 4, "S": 15, "U": 7, "N": 11,
    "M": 7, "K": 4, "D": 6, "1": 1,
}  # fmt: skip
"""Tokens, key and value channels, slots of a window, pairs, levels; S slots of all tokens, U tokens
and a window's tail before them, N pairs and a chunk's, M pairs and one more."""

PLAIN = {"S": "s", "U": "s", "N": "n", "M": "n", "K": "k", "D": "k", "1": "v"}
"""The letter of a plan's axis for a length of its own."""


@dataclass(frozen=True)
class Drawn:
    """Arguments by name, their axes in a plan and by length, and what the operation gives."""

    operation: Operation
    sample: Sample
    tensors: dict[str, Tensor]
    letters: dict[str, str]
    gives: str

    @property
    def scope(self) -> dict[str, Any]:
        """What printed code sees."""
        scope = {"torch": torch, "math": math, "ops": ops, "TINY": ops.TINY, "norm": ops.norm}
        for text in self.sample.functions.values():
            exec(text, scope)
        return scope

    @property
    def differentiated(self) -> tuple[str, ...]:
        """The arguments that have a gradient."""
        return self.operation.differentiated(tuple(self.tensors))

    def run(self, tensors: dict[str, Tensor]) -> Tensor:
        """The operation in PyTorch."""
        scope, options = self.scope, dict(self.sample.options)
        for name, value in options.items():
            if isinstance(value, str) and value in self.sample.functions:
                options[name] = scope[value]
        found: Tensor = getattr(ops, self.operation.name)(*tensors.values(), **options)
        return found

    def meant(self, name: str, x: Tensor) -> Tensor:
        """What has a meaning of a gradient at symmetric matrices, or at triangular ones."""
        place = list(self.tensors).index(name)
        kind = dict(enumerate(self.sample.kinds)).get(place, "")
        if kind.endswith("definite"):
            return (x + x.mT) / 2
        return x.tril() if kind == "decays" else x


def axes_of(letters: str) -> tuple[str, ...]:
    """The axes of a quantity of these lengths in a plan: rows against rows are t and s."""
    if len(letters) == 2 and letters[0] == letters[1] and letters[0] in "tS":
        return ("t", "s")
    return tuple(PLAIN.get(letter, letter) for letter in letters)


def drawn(
    operation: Operation, form: str = CHUNK, *, short: bool = False, lead: tuple[int, ...] = (2,)
) -> Drawn:
    """Draw arguments; ``short``: without those that may be left out."""
    assert operation.sample is not None
    sample = operation.sample
    axes = operation.signature(form)
    if sample.axes and not (form == TOKEN and operation.token):
        token = sample.token or sample.axes.replace("t", "")
        axes = Axes.read(token if form == TOKEN else sample.axes)
    torch.manual_seed(0)
    tensors: dict[str, Tensor] = {}
    letters: dict[str, str] = {}
    for place, argument in enumerate(axes.takes):
        if argument.repeated or (argument.optional and short):
            continue
        kind = sample.kinds[place] if place < len(sample.kinds) else ""
        shape = tuple(SIZES[letter] for letter in argument.letters)
        name = f"x{place}"
        tensors[name] = _one(kind, (*lead, *shape), list(tensors.values()))
        letters[name] = argument.letters
    return Drawn(operation, sample, tensors, letters, axes.gives.letters)


KINDS: dict[str, Callable[[Tensor], Tensor]] = {
    "": lambda x: x,
    "positive": lambda x: x.abs() + 0.5,
    "large": lambda x: x.abs() + 3,
    "vast": lambda x: x.abs() + 100,
    "log decay": lambda x: -torch.rand_like(x),
    "decays": lambda x: torch.rand_like(x).tril(),
    "strictly lower": lambda x: x.tril(-1),
    "definite": lambda x: x @ x.mT + torch.eye(x.shape[-1]),
    "vast definite": lambda x: x @ x.mT + 100 * torch.eye(x.shape[-1]),
    "factor": lambda x: torch.linalg.cholesky(x @ x.mT + torch.eye(x.shape[-1])),
    "count": lambda _: torch.tensor(6),
}
"""What an argument may be, of random numbers in its shape."""


def _one(kind: str, shape: tuple[int, ...], before: list[Tensor]) -> Tensor:
    x = torch.randn(shape, dtype=torch.float64)
    match kind:
        case "those of before":  # K P of keys K is K where P = 1
            return before[-1].clone()
        case "running maximum":
            return ops.running_maximum(*before, torch.full(shape[:-1], -9.0).double())
        case _:
            return KINDS[kind](x)


def plan_of(given: Drawn) -> Plan:
    """A plan of the operation alone."""
    plan = Plan(functions=dict(given.sample.functions))
    for name, letters in given.letters.items():
        plan.given(name, axes_of(letters))
    options = tuple(sorted(given.sample.options.items()))
    call = Call(given.operation.name, tuple(given.letters), options)
    plan.output = plan.add("y", axes_of(given.gives), call)
    return plan
