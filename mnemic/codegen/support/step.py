"""A layer's single token through its kernel: projections, one launch, output projection."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from . import buffers, pool, verified, versions
from .block import Learned, Sizes
from .configuration import Configuration
from .fused import Held as Held
from .narrower import settled
from .norms import autocasts, rms
from .sizes import power_of_two
from .stack import stack_of
from .starting import begin
from .step_cut import Step as Step
from .step_cut import cut, suited, too_large
from .vectors import Activation, States, Vectors

FORM = "step"
"""What the record of checks calls it."""


class Layer(Protocol):
    """What a step needs of a layer."""

    step_kernel: Callable[[], Step] | None
    rule: Any
    block: Any
    sizes: Sizes
    vectors: Vectors
    learned: tuple[Learned, ...]
    activations: Mapping[str, Activation]
    norm_weight: Tensor | None
    gate: nn.Linear | None

    def mixed(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the layer's output of what the rule reads."""


# -- whether ---------------------------------------------------------------------------------


def chosen(layer: Any, x: Tensor, state: Mapping[str, Tensor], form: str) -> Step | None:
    """Return the kernel for one more token, if the layer has one that may run here, else ``None``.

    It has no gradient, and cannot start a memory: the state must be complete. ``triton`` takes it
    where kernels run, ``auto`` where its check passed on this device.
    """
    if layer.step_kernel is None or form not in ("triton", "auto"):
        return None
    if x.shape[1] != 1 or not x.shape[0]:
        return None
    if torch.compiler.is_compiling():  # the rule's own operators are torch.compile's
        return None
    if torch.is_grad_enabled() or versions.unusable(x.device) is not None:
        return None
    if form == "auto" and not (x.is_cuda and verified.passed(FORM, _dtype(layer, x), x.device)):
        return None
    step: Step = layer.step_kernel()
    if any(name not in state for name in _needed(layer, step)):
        return None
    sizes = sizes_of(layer, step, state)
    found = suited(step, sizes)
    if found is None:
        versions.replaced(
            layer.rule.name, too_large(step, sizes), "the rule's own forms run instead"
        )
    return found


def _dtype(layer: Any, x: Tensor) -> torch.dtype:
    """Return the dtype that the projections give."""
    if autocasts(x.device.type):
        return torch.get_autocast_dtype(x.device.type)
    found: torch.dtype = layer.vectors.project.weight.dtype
    return found


def _needed(layer: Layer, step: Step) -> Iterator[str]:
    yield from (state.name for state in (*step.states, *step.tails))
    if step.taps > 1:
        yield "convolution"
    if any(s.name == "position" for s in layer.rule.signature.states):
        yield "position"
    if step.numbered:
        yield "tokens"


def sizes_of(layer: Layer, step: Step, state: Mapping[str, Tensor]) -> dict[str, int]:
    """Return every size by name, as the layer and the states tell them."""
    known = {"key": layer.sizes.key_dim, "value": layer.sizes.value_dim}
    found = {name: known[told] for name, told in step.sizes.items()}
    for held in step.states:
        found |= dict(zip(held.sizes, state[held.name].shape[2:], strict=True))
    return found | {tail.sizes[0]: step.window for tail in step.tails}


# -- one token -------------------------------------------------------------------------------


def run(
    layer: Any, step: Step, x: Tensor, state: Mapping[str, Tensor], *, in_place: bool = False
) -> tuple[Tensor, States]:
    """Run one token through a step's kernel: [B, 1, dim], state → [B, 1, dim], next state.

    ``in_place``: the kernel writes to the state's own tensors where each is read by one program
    alone; where several read it, the new state is copied into them. Nothing waits for the device.
    """
    launch = Launch.of(layer, step, x, state)
    out, after = launch.result(in_place=in_place)
    return launch.read_out(out), launch.moved(after, in_place=in_place)


def run_in(
    layer: Any, step: Step, x: Tensor, states: Mapping[str, Tensor], places: pool.Places,
    indices: Tensor,
) -> Tensor:  # fmt: skip
    """Run one token, [B, 1, dim] → [B, 1, dim], and update the states in their slots of a pool."""
    launch = replace(Launch.of(layer, step, x, states), slots=indices.contiguous())
    out, after = launch.result(in_place=True)
    beside = {n: s for n, s in after.items() if s is not launch.state[n]}
    numbers = {n: states[n] for n in ("position", "tokens") if n in states}
    beside |= {n: s + 1 for n, s in pool.taken(numbers, places).items()}
    pool.put(layer.rule.signature, states, places, beside)
    return launch.read_out(out).masked_fill(~places.live[:, None, None], 0.0)


def pooled(step: Step | None, states: Mapping[str, Tensor]) -> bool:
    """Return whether a kernel takes slots: its memories in registers, its states contiguous."""
    return step is not None and not step.along and all(s.is_contiguous() for s in states.values())


def _finished(layer: Any, x: Tensor, y: Tensor) -> Tensor:
    """Norm and gate an output, where no program could since none has all of a head's values."""
    if layer.norm_weight is not None:
        y = rms(y, layer.norm_weight)
    if layer.gate is None:
        return y
    opened: Tensor = layer.activations["gate"](layer.gate(x))
    return y * opened.view_as(y)


@dataclass(frozen=True)
class Launch:
    """One launch: what the kernel is given, where it writes, and how it is cut: channels a block
    of values, warps of a program."""

    layer: Any
    step: Step
    x: Tensor
    mixed: Tensor
    state: States
    sizes: dict[str, int]
    """Every size by name."""
    cut: Configuration
    slots: Tensor | None = None
    """Where each row's states lie in a pool of them; −1 is a row without any."""

    @classmethod
    def of(cls, layer: Any, step: Step, x: Tensor, state: Mapping[str, Tensor]) -> "Launch":
        """Make a launch over the projections of a token."""
        sizes = sizes_of(layer, step, state)
        found = cut(step, sizes)
        assert found is not None  # ``chosen`` has asked
        mixed = layer.vectors.project(x)
        return cls(layer, step, x, mixed, dict(state), sizes, found).settled()

    def settled(self) -> "Launch":
        """Return the launch, with a narrower cut if its kernel spills registers."""
        alike = (
            self.step.kernel, self.layer.sizes, *self._numbers(), self.mixed.dtype,
            *(x.dtype for x in self.state.values()),
        )  # fmt: skip
        found = settled(
            self.cut, self.step.narrowing, lambda other: replace(self, cut=other).spilled(),
            what="layer's token", sizes=self.sizes, alike=alike, device=self.mixed.device,
        )  # fmt: skip
        return self if found == self.cut else replace(self, cut=found)

    def spilled(self) -> int:
        """Return the bytes of registers that a thread spills."""
        out, after = self._written(in_place=False)
        return stack_of(self.step.kernel, self.grid, self._arguments(out, after),
                        self._options(), self.mixed)  # fmt: skip

    @property
    def grid(self) -> tuple[int, int]:
        """Programs: of key heads, and of blocks of values."""
        return self.mixed.shape[0] * self.layer.sizes.key_heads, self.blocks

    @property
    def blocks(self) -> int:
        """How many programs share a memory."""
        return -(-self.sizes[self.step.value] // self.cut.block) if self.step.split else 1

    @property
    def finish(self) -> bool:
        """Whether programs have all values of a head, so that they norm and gate them."""
        return self.step.finishes and self.blocks == 1

    def result(self, *, in_place: bool) -> tuple[Tensor, States]:
        """Start the kernel; return the output [B, heads, d_v] and what it writes, by state."""
        out, after = self._written(in_place=in_place)
        with torch.cuda.device_of(out):  # Triton launches on the current device
            begin(self.step.kernel, self.grid, self._arguments(out, after), self._options())
        return out, after

    def read_out(self, out: Tensor) -> Tensor:
        """Return the layer's output, [B, 1, dim], of the kernel's [B, heads, d_v]."""
        y = out[:, None]
        if self.step.finishes and not self.finish:
            y = _finished(self.layer, self.x, y)
        found: Tensor = self.layer.mixed(self.x, y.flatten(2))
        return found

    def _written(self, *, in_place: bool) -> tuple[Tensor, States]:
        """Return where the output goes, and the next states."""
        layer = self.layer
        shape = (self.mixed.shape[0], layer.sizes.heads, layer.sizes.value_dim)
        return buffers.empty(shape, self.mixed), self._after(in_place=in_place)

    def _after(self, *, in_place: bool) -> States:
        """Return the tensors for the next states: the states' own, or new ones."""
        real = torch.float64 if self.mixed.dtype == torch.float64 else torch.float32
        found = {}
        for held in (*self.step.states, *self.step.tails):
            own = not self.step.split or self.step.split in held.sizes or self.blocks == 1
            x = self.state[held.name]
            found[held.name] = self._place(x, real, own=own and in_place)
        if self.step.taps > 1:
            x, alone = self.state["convolution"], self.blocks == 1
            found["convolution"] = self._place(x, self.mixed.dtype, own=alone and in_place)
        return found

    def _place(self, x: Tensor, dtype: torch.dtype, *, own: bool) -> Tensor:
        """Return the tensor to write a state to: its own, whatever the dtype, or a new buffer."""
        if own and x.is_contiguous():
            return x
        return buffers.empty((self.mixed.shape[0], *x.shape[1:]), x, dtype)

    def _arguments(self, out: Tensor, after: States) -> list[Any]:
        """Return the kernel's pointers and numbers, in its order."""
        lead = [self.mixed]
        if self.step.taps:
            weight = self.layer.vectors.convolution.weight
            tail = self.state.get("convolution", self.mixed)  # one tap sees no earlier token
            lead += [tail, after.get("convolution", self.mixed), weight]
        carried = (*self.step.states, *self.step.tails)
        moves = [x for s in carried for x in (self.state[s.name], after[s.name])]
        written = {id(out), *(id(x) for x in after.values())}
        every = [*lead, *self.learned, out, *moves, *self._scratch(), *self.counts]
        pointers = [x if id(x) in written else buffers.guarded(x.contiguous()) for x in every]
        return [*pointers, self.slots, *self._numbers()]

    def _scratch(self) -> list[Tensor]:
        """Return the memory where rows along axes are kept for a while."""
        real = torch.float64 if self.mixed.dtype == torch.float64 else torch.float32
        memories = self.grid[0]
        return [
            buffers.empty((memories * count, self.sizes[along]), self.mixed, real)
            for (along,), count in self.step.scratch
        ]

    @property
    def given(self) -> list[Tensor]:
        """All that a token reads."""
        carried = (*self.step.states, *self.step.tails)
        found = [self.mixed, *self.learned, *(self.state[s.name] for s in carried)]
        found += [self.layer.vectors.convolution.weight] if self.step.taps else []
        found += [self.state["convolution"]] if self.step.taps > 1 else []
        return list({id(x): x for x in (*found, *self.counts)}.values())

    @cached_property
    def learned(self) -> list[Tensor]:
        """Coefficients before their activations, the gate before its own, the norm's weight."""
        layer, step = self.layer, self.step
        found = [self._raw(name) for name in step.raws]
        found += [layer.gate(self.x)] if step.gated and self.finish else []
        found += [self.mixed] if step.gated and not self.finish else []  # which nothing reads
        return found + ([layer.norm_weight] if step.normed else [])

    @property
    def counts(self) -> list[Tensor]:
        """Numbers of tokens: the rule's, and the layer's."""
        found = [self.state["position"]] if self.step.places else []
        return found + ([self.state["tokens"]] if self.step.numbered else [])

    def _raw(self, name: str) -> Tensor:
        source = getattr(self.layer, f"raw_{name}")
        found: Tensor = source if isinstance(source, Tensor) else source(self.x)
        return found

    def _numbers(self) -> list[int]:
        """Return the key heads, the channels in all, and the first channel of each vector."""
        channels = self.layer.vectors.channels
        first, at = {}, 0
        for name, count in channels.items():
            first[name] = at
            at += count
        return [self.layer.sizes.key_heads, at, *(first[name] for name in self.step.vectors)]

    def _options(self) -> dict[str, Any]:
        """Return block sizes, types, and how a program is spread over the device."""
        import triton.language as tl

        found: dict[str, Any] = {**self.cut.options}
        least = 16 if self.step.products else 1
        for name, size in self.sizes.items():
            block = self.step.blocked(name, self.cut.block) or power_of_two(size)
            found |= {name: size, f"B{name}": max(least, block)}
        groups = self.layer.sizes.heads // self.layer.sizes.key_heads
        found |= {"TAPS": self.step.taps, "GROUPS": groups, "VALUES": self.layer.sizes.value_dim}
        wide = self.mixed.dtype == torch.float64
        found |= {} if self.step.along else {"FINISH": self.finish}
        found["SHARED"] = self.blocks > 1
        return found | {
            "PRECISION": "fp64" if wide else "tf32x3",
            "REAL": tl.float64 if wide else tl.float32,
        }  # fmt: skip

    def moved(self, after: States, *, in_place: bool) -> States:
        """Return the whole state after the token."""
        numbers = {n: self.state[n] for n in ("position", "tokens") if n in self.state}
        if "convolution" in self.state:
            after = {**after, "convolution": after.get("convolution", self.state["convolution"])}
        if not in_place:
            return {**after, **{name: x + 1 for name, x in numbers.items()}}
        for name, x in after.items():
            if x is not self.state[name]:
                self.state[name].copy_(x)
        for x in numbers.values():
            x.add_(1)
        return {name: self.state[name] for name in (*after, *numbers)}
