"""A compiled folder on the device: its rule, and arguments as its layer makes them."""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import torch
from torch import Tensor

from on_gpu.rows import Row
from on_gpu.steps import Step, on_host

Tensors = dict[str, Tensor]
Clock = Callable[[Mapping[str, Step], int], dict[str, float]]
"""Seconds of each of some named calls, from so many rounds of all of them."""


def load(folder: Path) -> ModuleType:
    """A compiled folder as a package of its own."""
    name = "compiled_" + folder.name.replace("-", "_")
    if name in sys.modules:
        return sys.modules[name]
    place = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if place is None or place.loader is None:
        raise SystemExit(f"{folder}: not a compiled folder")
    module = importlib.util.module_from_spec(place)
    sys.modules[name] = module
    place.loader.exec_module(module)
    return module


@dataclass
class Subject:
    """A rule, its arguments, the parameters of a deep memory, a state to decode from, and a clock.

    Vectors are in ``dtype``; coefficients in float32, as layers compute them.
    """

    rule: Any
    arguments: Tensors
    params: Tensors
    state: Tensors
    times: Clock

    @classmethod
    def of(cls, module: ModuleType, row: Row, device: str, dtype: torch.dtype) -> "Subject":
        """Arguments of a layer as it starts, on random input."""
        layer_type, groups = module.Layer, module.Layer.grouped()
        torch.manual_seed(0)
        dim = 64 * groups
        layer = layer_type(dim, heads=row.heads * groups, key_dim=row.width, value_dim=row.width)
        layer = layer.to(device)
        with torch.no_grad():
            x = torch.randn(row.batch, row.tokens, dim, device=device)
            found = {n: t.detach() for n, t in layer.arguments(x).items()}
        vectors = {"q", "k", "v", *module.rule.signature.keys}
        found = {n: t.to(dtype).contiguous() if n in vectors else t.contiguous()
                 for n, t in found.items()}  # fmt: skip
        params = {n: t.detach() for n, t in layer.params().items()}
        state = _state(module.rule, found, params) if row.decode else {}
        return cls(module.rule, found, params, state, _clock(module, device))

    def form(self, form: str) -> Callable[[Tensors], Tensor]:
        """The rule in one form, as a function of its arguments."""

        def run(given: Tensors) -> Tensor:
            out, _ = self.rule(
                **given, params=self.params, form=form, initial_state=self.state,
                output_final_state=bool(self.state),
            )  # fmt: skip
            return out

        return run

    def floor(self, out: Tensor, both: bool) -> int:
        """Bytes that any kernel must move: what it is given, what it gives, states both ways."""
        given = sum(x.numel() * x.element_size() for x in self.arguments.values())
        state = sum(x.numel() * x.element_size() for x in self.state.values())
        result = out.numel() * out.element_size()
        return (2 * given + 2 * result if both else given + result) + 2 * state


def _clock(module: ModuleType, device: str) -> Clock:
    """How calls on the device are timed: as the compiled folder's tuner does it.

    In a published folder the tuner's module is the one that surely has it by name.
    """
    if device != "cuda":
        return on_host
    return cast(Clock, importlib.import_module(f"{module.__name__}.tune").on_device)


def _state(rule: Any, arguments: Tensors, params: Tensors) -> Tensors:
    """What one token leaves behind, with entries that are not zero."""
    form = "recurrent"
    _, state = rule(**arguments, params=params, form=form, output_final_state=True)
    return {n: x.detach().contiguous() for n, x in state.items()}
