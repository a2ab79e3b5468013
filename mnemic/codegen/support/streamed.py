"""Fused forms over kept pairs: these lie in device memory, and kernels loop over blocks."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Self

import torch
from torch import Tensor

from . import tuned, versions
from .calls import parameters
from .configuration import BLOCKS, ROWS, WARPS, Choices, Configuration
from .fused import PRECISIONS, UNGROUPED, Held, Row
from .narrower import Order, of_pairs, settled
from .operators import Operators, registered
from .place import Place
from .sizes import power_of_two, volume
from .stack import stack_of
from .starting import begin

States = dict[str, Tensor]


BUDGET = {False: 170, True: 100}
"""Entries a thread, of a form and of its gradient, which has more beside its passes: offline
compilation for sm_90 shows no spilled registers up to about here."""

LIMIT = 240
"""Entries a thread beyond which a kernel is refused: more would lie in memory than on chip."""

CUTS = tuple(
    Configuration(rows, block, 8)
    for rows, block in ((64, 64), (64, 32), (32, 32), (16, 32), (16, 16))
)
"""Rows a chunk and pairs a block, the best first."""

SHARED = tuple(
    Configuration(rows, block, 4)
    for rows, block in ((64, 64), (64, 32), (32, 64), (32, 32), (16, 64), (16, 32), (16, 16))
)
"""Rows and pairs where a program has one chunk, or one block of pairs. There are enough for several
on a multiprocessor, and four warps hold a chunk's few rows half as often as eight do."""

SHARED_BUDGET = {False: 580, True: 360}
"""Entries a thread of four warps, of a form and of its gradient, where ``SHARED`` has the cuts."""

BESIDE = 4_096
"""Entries of a block of a memory beside the pairs that is gone along by blocks, of 16 rows a chunk:
up to here eight warps spill nothing, or a few numbers at twice as many."""

CHOICES = Choices((16, 32, 64), (16, 32, 64, 128), WARPS, (1,))
"""What the tuner may try. Pairs may be written inside the loop that reads them, so that no load is
taken before its turn: one stage."""


Part = Mapping[str, int]
"""The arguments of a launch that tell which part of the chunks it takes."""

WHOLE: Part = MappingProxyType({})
"""The part of a launch that takes all chunks."""

Compiled = tuple[Any, list[torch.dtype], list[int], Part]
"""A kernel with the types of its pointers, its numbers, and the part that it takes."""

Tiles = tuple[int, int]
"""Counts of tiles: of a chunk's rows, and of what its windows read."""


@dataclass(frozen=True)
class Kept:
    """A state with an entry a pair, [M, n, …]: its name, the sizes of the axes after n.

    ``rows`` is the argument whose rows are the new entries, empty where the kernel makes them.
    ``wide`` entries are float64 numbers of which only differences matter: a final state holds them
    relative to the last.
    """

    name: str
    sizes: tuple[str, ...]
    rows: str
    wide: bool = False


@dataclass(frozen=True)
class Streamed:
    """A form's generated kernels over kept pairs, and a description of their arguments.

    ``alone``: each chunk has a program of its own, since all pairs are known from the start.
    """

    forward: Any
    backward: Any
    """The kernel of the gradient, or ``None``."""
    rows: tuple[Row, ...]
    kept: tuple[Kept, ...]
    states: tuple[Held, ...]
    """States of a fixed size beside the pairs."""
    sizes: tuple[str, ...]
    gradients: tuple[str, ...]
    value: str
    alone: bool
    alive: tuple[tuple[int, int], ...]
    """Tiles of rows, and of a block of pairs, that live at once: in the form, in each kernel of its
    gradient."""
    steps: int
    before: Callable[..., dict[str, Tensor]]
    taken: tuple[str, ...]
    moving: bool = False
    """Whether pairs change after they are stored (or memories beside them do), so that each chunk's
    gradient needs the pairs as they stood then."""
    window: int = 1
    """How many tokens a row sees."""
    along: str = ""
    """The size of the axis along which memories are looped over by blocks, or none."""
    room: tuple[tuple[Tiles, Tiles], ...] = ()
    """Tiles of rows along it that a program keeps in the device's memory, as they are and rounded
    as products take them: in the form, in its gradient."""
    by_blocks: Any = None
    """The kernel of the pairs' gradient, a program for each block of pairs, where that is a plain
    sum over rows. The rows' gradients then have a program for each chunk."""
    handed: tuple[Held, ...] = ()
    """What ``backward`` stores for ``by_blocks``, a tile a chunk: the sizes of its channels."""
    operators: Operators = field(init=False, repr=False, compare=False)
    """Its launches as torch sees them."""

    def __post_init__(self) -> None:
        from .moving import Moving

        launches = Moving(self) if self.moving else Launches(self)
        object.__setattr__(self, "operators", registered("pairs", launches))

    @property
    def narrowing(self) -> Order:
        """How its cuts become narrower."""
        return of_pairs()

    @property
    def plain(self) -> int:
        """The index of an argument by row of shape [B, R, H, …], no rows before the first."""
        own = (i for i, r in enumerate(self.rows) if not r.shared and r.name in self.taken)
        return next(own, 0)

    def fits(self, rows: int) -> int:
        """Return the rows of a chunk that reads, with its windows, at most ``rows`` rows."""
        return max(1, rows - self.window + 1, rows // 4)

    def pairs(self, block: int) -> int:
        """Return the pairs of a block; with ``along``, ``block`` counts channels instead."""
        return max(BLOCKS[-1], block // 4) if self.along else block

    def sources(self, rows: int) -> int:
        """Return the rows of a tile for all that the windows of a chunk's rows read."""
        return max(16, power_of_two(rows + self.window - 1))

    def anywhere(self, *, gradient: bool) -> bool:
        """Return whether it runs sequences that start anywhere in their documents: no, as the kept
        pairs grow with the position."""
        return False

    def refused(
        self, rows: Mapping[str, Tensor], states: States, *, gradient: bool
    ) -> str | None:  # fmt: skip
        """Return why the kernel cannot take these arguments, or ``None``."""
        return refused(self, rows, states, gradient=gradient)

    def run(
        self, rows: Mapping[str, Tensor], states: States, place: Place
    ) -> tuple[Tensor, States]:  # fmt: skip
        """Run one batch: rows [B, R, H, …], states [M, …] → [B, R, H, d_v], states."""
        return run(self, rows, states, place)


def refused(
    kernel: Streamed, rows: Mapping[str, Tensor], states: States, *, gradient: bool
) -> str | None:  # fmt: skip
    """Return why a kernel cannot take these arguments, or ``None``."""
    if gradient and kernel.backward is None:
        return "its kernel has no gradient"
    sizes: dict[str, int] = {}
    for row in kernel.rows:
        if row.name in rows and row.sizes:
            sizes |= dict(zip(row.sizes, rows[row.name].shape[3:], strict=True))
    for kept in kernel.kept:
        sizes |= dict(zip(kept.sizes, states[kept.name].shape[2:], strict=True))
    for state in kernel.states:
        sizes |= dict(zip(state.sizes, states[state.name].shape[1:], strict=True))
    found = weight(kernel, sizes, CUTS[-1], gradient=gradient)
    if found > LIMIT:
        shown = " and ".join(str(size) for size in sorted(set(sizes.values())))
        return (
            f"its kernel does not fit on chip at sizes of {shown}: a thread would hold {found} "
            f"numbers, and {LIMIT} are the limit"
        )
    like = rows.get(kernel.rows[kernel.plain].name)
    if like is None or torch.compiler.is_compiling():  # then the launch looks, and refuses
        return None
    past = states[kernel.kept[0].name].shape[1]
    own = {n: size for n, size in sizes.items() if n in kernel.sizes}
    passes = (False, True) if gradient else (False,)
    told = (tuned.failed(asked(own, like, past, gradient=g), like.device) for g in passes)
    return next((why for why in told if why is not None), None)


def asked(
    sizes: Mapping[str, int], like: Tensor, past: int, *, gradient: bool
) -> tuned.Question:  # fmt: skip
    """Return the key of the tuner's answers; the number of pairs is one of its sizes."""
    return tuned.Question.of(
        "pairs", {**sizes, "n": power_of_two(int(past))}, like, gradient=gradient
    )


def run(
    kernel: Streamed, rows: Mapping[str, Tensor], states: States, place: Place
) -> tuple[Tensor, States]:
    """Run one batch through a kernel: rows [B, R, H, …], states [M, …] → [B, R, H, d_v], states."""
    given = {name: rows[name] for name in kernel.taken}
    given |= kernel.before(**{n: given[n] for n in parameters(kernel.before)})
    names = [kept.name for kept in kernel.kept] + [state.name for state in kernel.states]
    tensors = [given[row.name].contiguous() for row in kernel.rows]
    start = [states[name] for name in names]
    gradient = torch.is_grad_enabled() and any(x.requires_grad for x in (*tensors, *start))
    numbers = place.numbers()
    out, *end = kernel.operators.forward(tensors, start, None, None, numbers, gradient)
    found = dict(zip(names, end, strict=False))
    for kept in kernel.kept:
        if kept.wide:
            x = found[kept.name]
            found[kept.name] = (x - x[:, -1:]).to(states[kept.name].dtype)
    return out, found


@dataclass(frozen=True)
class Launches:
    """A kernel's launches, as its operators call them; the gradient reads the final pairs."""

    kernel: Streamed

    def launch(
        self, rows: list[Tensor], states: list[Tensor], numbers: list[int], *, gradient: bool,
        dry: bool,
    ) -> "Launch":  # fmt: skip
        """Return the launch for an operator's arguments."""
        return Launch.of(self.kernel, rows, states, numbers, gradient=gradient, dry=dry)

    def forward(
        self, rows: list[Tensor], states: list[Tensor], positions: Tensor | None,
        bounds: Tensor | None, numbers: list[int], *, keep: bool, dry: bool,
    ) -> list[Tensor]:  # fmt: skip
        """Return the output, the final states, and with ``keep`` those pairs that kernels read in
        another precision than the states hold."""
        launch = self.launch(rows, states, numbers, gradient=False, dry=dry)
        out, end, pairs = launch.forward(states)
        others = [x for x, exact in zip(pairs, self._exact(rows), strict=True) if not exact]
        return [out, *end, *(others if keep else ())]

    def saved(self, rows: list[Tensor], output: list[Tensor]) -> list[Tensor]:
        """Return the pairs as kernels read them, from the results of ``forward`` with ``keep``."""
        exact = self._exact(rows)
        others = iter(output[1 + len(exact) + len(self.kernel.states) :])
        return [output[1 + at] if told else next(others) for at, told in enumerate(exact)]

    def _exact(self, rows: list[Tensor]) -> list[bool]:
        """Return for each kind of pairs whether kernels read it in the states' own precision."""
        real = _real(rows[self.kernel.plain].dtype)
        types = dict(
            zip((row.name for row in self.kernel.rows), (x.dtype for x in rows), strict=True)
        )
        return [k.wide or not k.rows or types[k.rows] == real for k in self.kernel.kept]

    def backward(
        self, rows: list[Tensor], kept: list[Tensor], positions: Tensor | None,
        bounds: Tensor | None, numbers: list[int], ends: list[Tensor], *, dry: bool,
    ) -> list[Tensor]:  # fmt: skip
        """Return the gradients of the rows that have one, then of the pairs before them."""
        launch = self.launch(rows, kept, numbers, gradient=True, dry=dry)
        d_rows, d_pairs = launch.backward(kept, [], ends[0], ends[1:])
        own = dict(zip((row.name for row in self.kernel.rows), rows, strict=True))
        return [*(x.to(own[name].dtype) for name, x in d_rows.items()), *d_pairs]


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel over rows that begin at a ``place`` of their document; the first chunk
    has ``first`` rows."""

    kernel: Streamed
    rows: list[Tensor]
    place: Place
    first: int
    cut: Configuration
    sizes: dict[str, int]
    dry: bool

    @classmethod
    def of(
        cls, kernel: Streamed, rows: list[Tensor], states: list[Tensor], numbers: list[int], *,
        gradient: bool, dry: bool,
    ) -> Self:  # fmt: skip
        """Make the launch for an operator's arguments; pairs and states give sizes."""
        place, sizes = Place.of(numbers), sizes_of(kernel, rows, states)
        like = rows[kernel.plain]
        past = states[0].shape[1] - (like.shape[1] if gradient else 0)
        question = asked(sizes, like, past, gradient=gradient)
        if why := tuned.failed(question, like.device):
            raise RuntimeError(why)
        launch = cls(kernel, [x.contiguous() for x in rows], place, 0, CUTS[0], sizes, dry)
        cut = tuned.chosen(
            question, like.device,
            lambda: launch.settled(
                chosen(kernel, sizes, like.device, gradient=gradient), states, gradient=gradient
            ),
            lambda _: CHOICES, tunable=place.wanted is None,
        )  # fmt: skip
        return launch.at(cut)

    def at(self, cut: Configuration) -> Self:
        """Return the same launch with another cut, as far as the document's intervals allow it."""
        place, steps = self.place, self.kernel.steps
        tokens = place.tokens(self.kernel.fits(cut.rows), steps)
        first = tokens - place.position % tokens if place.anchor > 1 else tokens
        return replace(self, first=first * steps, cut=replace(cut, rows=tokens * steps))

    def over(self, rows: list[Tensor], numbers: list[int], *, dry: bool) -> Self:
        """Return a launch of the same kernel over other rows, at most a chunk of them."""
        return replace(self, rows=rows, place=Place.of(numbers), first=self.cut.rows, dry=dry)

    # -- the cut ----------------------------------------------------------------------------

    def settled(self, cut: Configuration, states: list[Tensor], *, gradient: bool) -> Configuration:
        """Return the cut with no more rows a chunk than there are, or a narrower one if its kernel
        spills registers."""
        kernel, rows = self.kernel, min(self.length, self.place.wanted or self.length)
        tall = (n for n in sorted(ROWS) if n < cut.rows and kernel.fits(n) >= rows)
        alike = (
            kernel.forward, *(x.dtype for x in (*self.rows, *states)), self.place.anchor,
            self.place.wanted,
        )  # fmt: skip
        return settled(
            replace(cut, rows=next(tall, cut.rows)), kernel.narrowing,
            lambda other: self.at(other).spilled(states, gradient=gradient),
            what="chunk over kept pairs" + " with gradients" * gradient, sizes=self.sizes,
            alike=alike, device=self.like.device,
        )  # fmt: skip

    def spilled(self, states: list[Tensor], *, gradient: bool) -> int:
        """Return the bytes that a thread spills, in the kernel where it spills most."""
        return max(self._stack(*call) for call in self.calls(states, gradient=gradient))

    def calls(self, states: list[Tensor], *, gradient: bool) -> Iterator[Compiled]:
        """Yield the kernels to launch, each with the types of its pointers, its numbers, and the
        part of the chunks that it runs."""
        kernel, real, rows = self.kernel, _real(self.like.dtype), [x.dtype for x in self.rows]
        pairs = self._types(states, gradient=gradient)
        beside = [real] * len(kernel.states)
        length, room = int(self.length), int(states[0].shape[1])
        launch, heads = self, int(self.like.shape[2])
        if gradient and kernel.moving:  # a chunk a launch, over copies of its own
            launch, length, room = replace(self, first=self.cut.rows), self.cut.rows, 0
        if not gradient or kernel.moving:
            room += length
        numbers = launch.numbers(length, heads, room)
        kept = [dtype for dtype, _ in self._kept(gradient=gradient)]
        if not gradient:
            pointers = [*rows, *pairs, *beside, *beside, self.like.dtype, *kept]
            yield kernel.forward, pointers, numbers, WHOLE
            return
        given, handed = [*rows, self.like.dtype, *pairs], [real] * len(kernel.handed)
        grads = [real] * len(kernel.gradients)
        if kernel.by_blocks is None:
            grads = [real] * (len(pairs) + 3 * len(beside)) + grads
            yield kernel.backward, [*given, *grads, *kept], numbers, WHOLE
            return
        yield kernel.backward, [*given, *grads, *handed], numbers, WHOLE
        yield kernel.by_blocks, [*given, *([real] * len(pairs)), *handed], numbers, WHOLE

    def _types(self, states: list[Tensor], *, gradient: bool) -> list[torch.dtype]:
        """Return the dtypes of the pairs that a launch passes to its kernels."""
        if gradient:
            given = zip(self.kernel.kept, states, strict=False)
            return [torch.float64 if kept.wide else x.dtype for kept, x in given]
        named = {row.name: x.dtype for row, x in zip(self.kernel.rows, self.rows, strict=True)}
        real = _real(self.like.dtype)
        return [
            torch.float64 if kept.wide and kept.rows else named.get(kept.rows, real)
            for kept in self.kernel.kept
        ]

    def _stack(
        self, function: Any, pointers: list[torch.dtype], numbers: list[int], part: Part
    ) -> int:
        constants = {**self.constants(self.like.dtype), **part}
        return stack_of(function, (1, 1), [*pointers, *numbers], constants, self.like)

    # -- launches ---------------------------------------------------------------------------

    def forward(self, states: list[Tensor]) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Return the output, the final states, and the pairs as kernels read them."""
        kernel, rows = self.kernel, self.rows
        real = _real(self.like.dtype)
        pairs, ends = self.grown(states)
        starts = [x.to(real).contiguous() for x in states[len(pairs) :]]
        after = [torch.empty_like(x) for x in starts]
        out = self.like.new_empty(*self.like.shape[:3], self.sizes[kernel.value])
        pointers = [*rows, *pairs, *(x for two in zip(starts, after, strict=True) for x in two)]
        programs = self.chunks if kernel.alone else 1
        pointers += [out, *self._room(gradient=False)]
        self._start(kernel.forward, pointers, pairs, programs)
        return out, [*ends, *after], pairs

    def grown(self, states: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Return all pairs, these rows' included, as kernels read them, and as states hold them."""
        named = {row.name: x for row, x in zip(self.kernel.rows, self.rows, strict=True)}
        found = [
            self._pairs(kept, start, named.get(kept.rows), _real(self.like.dtype))
            for kept, start in zip(self.kernel.kept, states, strict=False)
        ]
        return [pair for pair, _ in found], [end for _, end in found]

    def _pairs(
        self, kept: Kept, start: Tensor, rows: Tensor | None, real: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        """Return one kind of pairs, these rows' included, as kernels read it and as a state."""
        if rows is None:
            size = start.shape[1] + self.length
            whole = start.new_empty(start.shape[0], size, *start.shape[2:], dtype=real)
            whole[:, : start.shape[1]] = start
            return whole, whole
        new = rows.transpose(1, 2).flatten(0, 1)
        end = torch.cat([start.to(torch.float64 if kept.wide else real), new], 1)
        exact = kept.wide or new.dtype == real
        return (end if exact else torch.cat([start.to(new.dtype), new], 1)), end

    def backward(
        self, pairs: list[Tensor], states: list[Tensor], d_out: Tensor, d_ends: list[Tensor]
    ) -> tuple[States, list[Tensor]]:
        """Return the gradients of the rows, and of the pairs and states before them; ``states`` are
        the states of fixed size before the rows, which are one chunk if there are any."""
        kernel, real = self.kernel, _real(self.like.dtype)
        d_ends = [x.to(real).contiguous() for x in d_ends]
        d_pairs = [x.clone() for x in d_ends[: len(kernel.kept)]]
        d_states = [(x, torch.empty_like(x)) for x in d_ends[len(kernel.kept) :]]
        found = {}
        for row, x in zip(kernel.rows, self.rows, strict=True):
            if row.name in kernel.gradients:  # windows share entries, to which each adds
                made = torch.zeros if row.shared else torch.empty
                found[row.name] = made(x.shape, dtype=real, device=x.device)
        begun = [x.to(real).contiguous() for x in states]
        given = [*self.rows, d_out.contiguous(), *pairs]
        if kernel.by_blocks is None:
            pointers = [*given, *d_pairs, *begun, *(x for two in d_states for x in two)]
            pointers += [*(found[n] for n in kernel.gradients), *self._room(gradient=True)]
            self._start(kernel.backward, pointers, pairs, 1)
        else:
            self._shared(given, d_pairs, found, pairs)
        before = [x[:, : x.shape[1] - self.length] for x in d_pairs]
        return found, [*before, *(after for _, after in d_states)]

    def _shared(
        self, given: list[Tensor], d_pairs: list[Tensor], d_rows: States, pairs: list[Tensor]
    ) -> None:
        """Compute the gradients of rows chunk by chunk, then those of pairs block by block, from
        the chunks after them; an argument whose rows become pairs gets the sum of both."""
        kernel, handed = self.kernel, self.tiles(self.kernel.handed)
        grads = [d_rows[name] for name in kernel.gradients]
        self._start(kernel.backward, [*given, *grads, *handed], pairs, self.chunks)
        blocks = self.blocks(pairs[0].shape[1])
        self._start(kernel.by_blocks, [*given, *d_pairs, *handed], pairs, blocks)
        self.take_over(d_rows, d_pairs)

    def take_over(self, d_rows: States, d_pairs: list[Tensor]) -> None:
        """Add the gradients of pairs to those of the arguments whose rows they are."""
        batch, length, heads = self.like.shape[:3]
        for kept, x in zip(self.kernel.kept, d_pairs, strict=True):
            if kept.rows in d_rows:
                own = x[:, x.shape[1] - length :].unflatten(0, (batch, heads))
                d_rows[kept.rows] += own.transpose(1, 2)

    def tiles(self, handed: tuple[Held, ...]) -> list[Tensor]:
        """Make memory for the tiles that one kernel stores for another, one for each chunk."""
        batch, _, heads = self.like.shape[:3]
        tiles = (batch * heads * self.chunks, self.constants(self.like.dtype)["C"])
        return [
            self.like.new_empty(
                *tiles, *(self.sizes[size] for size in held.sizes), dtype=_real(self.like.dtype)
            )
            for held in handed
        ]

    def blocks(self, pairs: int) -> int:
        """Return the number of blocks of so many pairs."""
        block = self.kernel.pairs(self.cut.block)
        return (pairs + block - 1) // block

    def _room(self, *, gradient: bool) -> list[Tensor]:
        """Make scratch memory for a chunk's rows that programs keep between their sweeps."""
        programs = self.like.shape[0] * self.like.shape[2]
        return [
            self.like.new_empty(programs, rows, self.sizes[self.kernel.along], dtype=dtype)
            for dtype, rows in self._kept(gradient=gradient)
        ]

    def _kept(self, *, gradient: bool) -> list[tuple[torch.dtype, int]]:
        """Return the types and numbers of the rows that a program keeps between its sweeps."""
        if not self.kernel.along:
            return []
        constants, dtype = self.constants(self.like.dtype), self.like.dtype
        tall = (constants["C"], constants.get("SOURCES", 0))
        types = (_real(dtype), dtype)
        rows = (own * tall[0] + seen * tall[1] for own, seen in self.kernel.room[gradient])
        return [(kind, count) for kind, count in zip(types, rows, strict=True) if count]

    def _start(
        self, function: Any, pointers: list[Tensor], pairs: list[Tensor], programs: int,
        part: Part = WHOLE,
    ) -> None:  # fmt: skip
        """Launch a kernel: over all chunks, or over the ``part`` that these arguments select."""
        if self.dry:
            return
        batch, heads = self.like.shape[0], self.like.shape[2]
        numbers = self.numbers(self.length, heads, pairs[0].shape[1])
        with torch.cuda.device_of(pointers[0]):  # Triton launches on the current device
            begin(
                function, (batch * heads, programs), [*pointers, *numbers],
                {**self.constants(self.like.dtype), **part},
            )  # fmt: skip

    # -- sizes ------------------------------------------------------------------------------

    @property
    def like(self) -> Tensor:
        """An argument without rows before the first, [B, R, H, …]."""
        return self.rows[self.kernel.plain]

    @property
    def length(self) -> int:
        """How many rows there are."""
        return self.like.shape[1]

    @property
    def chunks(self) -> int:
        """How many chunks they make."""
        return self._chunks(self.length)

    def _chunks(self, length: int) -> int:
        return (length - self.first + 2 * self.cut.rows - 1) // self.cut.rows

    def numbers(self, length: int, heads: int, room: int) -> list[int]:
        """Return the kernel's numbers, in its order, of so many rows among so many pairs."""
        return [
            length, length, heads, self.place.position, self.first, self._chunks(length),
            room - length, room,
        ]  # fmt: skip

    def constants(self, dtype: torch.dtype) -> dict[str, Any]:
        """Return block sizes, types, and how a program is spread over the device."""
        import triton.language as tl

        found: dict[str, Any] = {}
        for name, size in self.sizes.items():
            whole = power_of_two(size)
            own = min(whole, self.cut.block) if name == self.kernel.along else whole
            found |= {name: size, f"B{name}": max(16, own)}
        found["C"] = max(16, power_of_two(self.cut.rows))
        if self.kernel.window > 1:
            found["SOURCES"] = self.kernel.sources(self.cut.rows)
        found |= {
            "BN": self.kernel.pairs(self.cut.block),
            "ROWS": self.cut.rows,
            "STEPS": self.kernel.steps,
        }
        found["PRECISION"] = PRECISIONS[dtype]
        found["REAL"] = tl.float64 if dtype == torch.float64 else tl.float32
        return found | self.cut.options


def sizes_of(kernel: Streamed, rows: list[Tensor], states: list[Tensor]) -> dict[str, int]:
    """Return each axis's size by name: of rows, pairs and (where they are given) states."""
    found: dict[str, int] = {}
    for row, x in zip(kernel.rows, rows, strict=True):
        if row.sizes:
            found |= dict(zip(row.sizes, x.shape[3:], strict=True))
    for kept, x in zip(kernel.kept, states, strict=False):
        found |= dict(zip(kept.sizes, x.shape[2:], strict=True))
    for state, x in zip(kernel.states, states[len(kernel.kept) :], strict=False):
        found |= dict(zip(state.sizes, x.shape[1:], strict=True))
    return {name: int(found[name]) for name in kernel.sizes}


def chosen(
    kernel: Streamed, sizes: dict[str, int], device: torch.device, *, gradient: bool
) -> Configuration:  # fmt: skip
    """Choose the best cut whose tiles fit into registers, or the smallest; if memories are looped
    over by blocks, few rows and blocks of a fixed number of entries.

    A gradient's products of warp groups have transposed left sides: on versions of Triton that
    compile these wrongly, rows and pairs are kept too few for such groups.
    """
    if kernel.along:
        wide = max(power_of_two(size) for name, size in sizes.items() if name != kernel.along)
        return Configuration(ROWS[-1], min(64, max(BLOCKS[-1], BESIDE // wide)), 8)
    shared = kernel.by_blocks is not None if gradient else kernel.alone
    cuts, most = (SHARED, SHARED_BUDGET[gradient]) if shared else (CUTS, BUDGET[gradient])
    if shared and gradient and versions.faulty(device):
        cuts = tuple(cut for cut in cuts if max(cut.rows, cut.block) <= UNGROUPED)
    fitting = (cut for cut in cuts if weight(kernel, sizes, cut, gradient=gradient) <= most)
    return next(fitting, cuts[-1])


def weight(kernel: Streamed, sizes: dict[str, int], cut: Configuration, *, gradient: bool) -> int:
    """Count the entries that each thread holds at once, by the model: in a pass over pairs, or
    where a memory is read beside another."""
    moments = kernel.alive[1:] if gradient else kernel.alive[:1]
    return max(_entries(kernel, sizes, cut, *moment) for moment in moments)


def _entries(
    kernel: Streamed, sizes: dict[str, int], cut: Configuration, rows: int, pairs: int
) -> int:  # fmt: skip
    """Count the entries a thread of so many tiles of rows, and of a block of pairs."""
    pairs += any(kept.wide for kept in kernel.kept)  # differences of float64
    spans = {name: power_of_two(size) for name, size in sizes.items()}
    if kernel.along:
        spans[kernel.along] = min(spans[kernel.along], cut.block)
    wide, tall = max(spans.values()), kernel.sources(kernel.fits(cut.rows))
    block = pairs * kernel.pairs(cut.block) * max(wide, tall) + 4 * tall**2
    beside = [volume([spans[n] for n in state.sizes]) for state in kernel.states]
    tiles = rows * tall * wide + max(block, 2 * max(beside, default=0))
    return tiles // (32 * cut.warps)


def _real(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32
