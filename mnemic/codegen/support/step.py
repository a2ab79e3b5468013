"""A layer's token through its kernel: the projections, one launch, the output's mixing."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from . import buffers, verified, versions
from .block import Learned, Sizes
from .configuration import Configuration
from .fused import Held, swept_always
from .narrower import Order, of_tokens, settled
from .norms import rms
from .sizes import power_of_two
from .stack import stack_of
from .starting import begin
from .vectors import Activation, States, Vectors

FORM = "step"
"""What the record of checks calls it."""

ENTRIES = 64
"""Entries of memories a thread at most, while there are more than one block of values."""

PRODUCTS = 4
"""How many times as much an entry counts beside matrix products, which have tiles of their own."""

MOST = 110
"""Entries of memories a thread beyond which a program's registers cannot hold them."""

LEAST_WARPS, MOST_WARPS = 4, 16

BLOCK, LEAST_BLOCK = 4_096, 16
"""Entries of a memory's block where a program goes along it, and channels of one at least."""


@dataclass(frozen=True)
class Step:
    """The generated kernel of a layer's token, and what it takes."""

    kernel: Any
    raws: tuple[str, ...]
    """Coefficients that it takes before their activations."""
    states: tuple[Held, ...]
    sizes: Mapping[str, str]
    """Sizes that are d_k (``key``) or d_v (``value``); states tell the others."""
    vectors: tuple[str, ...]
    """The vectors whose channels it reads."""
    value: str
    """The size of the output's channels."""
    split: str
    """The size that may be cut into blocks, one a program; empty where there is none."""
    taps: int
    finishes: bool
    """Whether it norms or gates the output."""
    gated: bool
    normed: bool
    places: bool
    """Whether it reads the rule's position."""
    numbered: bool
    """Whether it reads the token's number."""
    products: bool
    tails: tuple[Held, ...] = ()
    """What a window of tokens carries: the first size is the window's."""
    window: int = 1
    along: tuple[str, ...] = ()
    """The sizes along which its memories, where they stand, are gone through by blocks."""
    scratch: tuple[tuple[str, int], ...] = ()
    """How many rows it keeps along each of them for a while."""
    swept: "Step | None" = None
    """The kernel that goes along axes, for memories that registers do not hold."""

    @property
    def narrowing(self) -> Order:
        """How its cuts become narrower."""
        return of_tokens(split=bool(self.split or self.along))

    def blocked(self, size: str, block: int) -> int | None:
        """The block of a size's axis, where it has one."""
        return block if size == self.split or size in self.along else None


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
    out: nn.Linear


def suited(step: Step, sizes: Mapping[str, int]) -> Step | None:
    """The step, or where registers do not hold its memories the one that goes along them.

    ``None`` where there is none that fits.
    """
    always = swept_always()
    found = (step.swept, step) if always else (step, None if always is False else step.swept)
    return next((x for x in found if x is not None and cut(x, sizes) is not None), None)


def cut(step: Step, sizes: Mapping[str, int]) -> Configuration | None:
    """Whole values where their memories fit into a program's registers, else blocks of them; along
    axes blocks of ``BLOCK`` entries.

    ``None`` where even the smallest block does not fit.
    """
    if step.along:
        return _along(step, sizes)
    whole = power_of_two(sizes[step.value])
    block = whole
    while True:
        alive = _alive(step, sizes, block)
        if alive <= ENTRIES * 32 * MOST_WARPS or not step.split or block <= 16:
            break
        block //= 2
    if alive > MOST * 32 * MOST_WARPS:
        return None
    most = MOST_WARPS // 2 if step.products else MOST_WARPS  # tiles of 16 rows share out badly
    warps = min(most, max(LEAST_WARPS, power_of_two(-(-alive // (ENTRIES * 32)))))
    return Configuration(1, block, warps)


def _along(step: Step, sizes: Mapping[str, int]) -> Configuration | None:
    wide = {n: power_of_two(x) for n, x in sizes.items()}
    other = max(
        prod(wide[n] for n in held.sizes if n not in step.along) for held in step.states
    )  # fmt: skip
    block = min(max(wide[n] for n in step.along), max(LEAST_BLOCK, BLOCK // other))
    return Configuration(1, block, LEAST_WARPS * 2) if other * block <= 2 * BLOCK else None


def _alive(step: Step, sizes: Mapping[str, int], block: int) -> int:
    """Entries of the memories that a program holds, and of what products need beside them."""
    held = {n: step.blocked(n, block) or power_of_two(x) for n, x in sizes.items()}
    entries = sum(prod(held[name] for name in state.sizes) for state in step.states)
    return entries * (PRODUCTS if step.products else 1)


# -- whether ---------------------------------------------------------------------------------


def chosen(layer: Any, x: Tensor, state: Mapping[str, Tensor], form: str) -> Step | None:
    """The kernel for one more token, where the layer has one that may run here, or ``None``.

    It has no gradient, and starts no memory: the state must be whole. ``triton`` takes it where
    kernels run, ``auto`` where its check passed on this device.
    """
    if layer.step_kernel is None or form not in ("triton", "auto") or x.shape[1] != 1:
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
            layer.rule.name, _too_large(step, sizes), "the rule's own forms run instead"
        )
    return found


def _too_large(step: Step, sizes: Mapping[str, int]) -> str:
    """Why even the smallest cut does not fit."""
    told = ", ".join(f"{name} = {size}" for name, size in sizes.items())
    block = 16 if step.split else power_of_two(sizes[step.value])
    found = _alive(step, sizes, block) // (32 * MOST_WARPS)
    return (
        f"memories of {told} do not fit into a step's kernel: a thread would hold {found} numbers, "
        f"and {MOST} are the limit"
    )


def _dtype(layer: Any, x: Tensor) -> torch.dtype:
    """What the projections give."""
    if torch.is_autocast_enabled(x.device.type):
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
    """Every size by name."""
    known = {"key": layer.sizes.key_dim, "value": layer.sizes.value_dim}
    found = {name: known[told] for name, told in step.sizes.items()}
    for held in step.states:
        found |= dict(zip(held.sizes, state[held.name].shape[2:], strict=True))
    return found | {tail.sizes[0]: step.window for tail in step.tails}


# -- one token -------------------------------------------------------------------------------


def run(
    layer: Any, step: Step, x: Tensor, state: Mapping[str, Tensor], *, in_place: bool = False
) -> tuple[Tensor, States]:
    """[B, 1, dim] and a state → [B, 1, dim] and the state after it.

    ``in_place``: the state's own tensors are written where each program alone reads them, and
    copied into where several do. Nothing waits for the device.
    """
    launch = Launch.of(layer, step, x, state)
    out, after = launch.result(in_place=in_place)
    y = out[:, None]
    if step.finishes and not launch.finish:
        y = _finished(layer, x, y)
    return layer.out(y.flatten(2)), launch.moved(after, in_place=in_place)


def _finished(layer: Any, x: Tensor, y: Tensor) -> Tensor:
    """The norm and the gate, where no program has all of a head's values."""
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

    @classmethod
    def of(cls, layer: Any, step: Step, x: Tensor, state: Mapping[str, Tensor]) -> "Launch":
        """The token's projections, and a launch over them."""
        sizes = sizes_of(layer, step, state)
        found = cut(step, sizes)
        assert found is not None  # ``chosen`` has asked
        mixed = layer.vectors.project(x)
        return cls(layer, step, x, mixed, dict(state), sizes, found).settled()

    def settled(self) -> "Launch":
        """The same, or where its kernel spills registers the same in a narrower cut."""
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
        """Bytes of registers that a thread spills."""
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
        """The output [B, heads, d_v], and what the kernel has written, by state."""
        out, after = self._written(in_place=in_place)
        with torch.cuda.device_of(out):  # Triton launches on the current device
            begin(self.step.kernel, self.grid, self._arguments(out, after), self._options())
        return out, after

    def _written(self, *, in_place: bool) -> tuple[Tensor, States]:
        """Where the output goes, and the next states."""
        layer = self.layer
        shape = (self.mixed.shape[0], layer.sizes.heads, layer.sizes.value_dim)
        return buffers.empty(shape, self.mixed), self._after(in_place=in_place)

    def _after(self, *, in_place: bool) -> States:
        """Where the next states go: in their own places, or beside them."""
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

    @staticmethod
    def _place(x: Tensor, dtype: torch.dtype, *, own: bool) -> Tensor:
        if own and x.dtype == dtype and x.is_contiguous():
            return x
        return buffers.empty(tuple(x.shape), x, dtype)

    def _arguments(self, out: Tensor, after: States) -> list[Any]:
        """The kernel's pointers and numbers, in its order."""
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
        return [*pointers, *self._numbers()]

    def _scratch(self) -> list[Tensor]:
        """Where rows along axes are kept for a while."""
        real = torch.float64 if self.mixed.dtype == torch.float64 else torch.float32
        memories = self.grid[0]
        return [
            buffers.empty((memories * count, self.sizes[size]), self.mixed, real)
            for size, count in self.step.scratch
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
        """Key heads, channels in all, and the first channel of each vector."""
        channels = self.layer.vectors.channels
        first, at = {}, 0
        for name, count in channels.items():
            first[name] = at
            at += count
        return [self.layer.sizes.key_heads, at, *(first[name] for name in self.step.vectors)]

    def _options(self) -> dict[str, Any]:
        """Block sizes, types, and how a program is spread over the device."""
        import triton.language as tl

        found: dict[str, Any] = {"num_warps": self.cut.warps, "num_stages": self.cut.stages}
        least = 16 if self.step.products else 1
        for name, size in self.sizes.items():
            block = self.step.blocked(name, self.cut.block) or power_of_two(size)
            found |= {name: size, f"B{name}": max(least, block)}
        groups = self.layer.sizes.heads // self.layer.sizes.key_heads
        found |= {"TAPS": self.step.taps, "GROUPS": groups, "VALUES": self.layer.sizes.value_dim}
        wide = self.mixed.dtype == torch.float64
        found |= {} if self.step.along else {"FINISH": self.finish}
        return found | {
            "PRECISION": "fp64" if wide else "tf32x3",
            "REAL": tl.float64 if wide else tl.float32,
        }  # fmt: skip

    def moved(self, after: States, *, in_place: bool) -> States:
        """The whole state after the token."""
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
