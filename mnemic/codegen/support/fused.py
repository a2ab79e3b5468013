"""Fused forms: a generated Triton kernel over whole sequences, and its gradient."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from . import tuned, versions
from .calls import parameters
from .configuration import (
    LEANEST,
    Choices,
    Configuration,
    Tiles,
    Work,
    budget,
    choices,
    configured,
    least_entries,
)
from .divided import Divided
from .dividing import PARALLEL, divided_cut
from .limits import limits
from .narrower import Order, narrower, of_chunks, of_sweeps, of_tokens
from .operators import Operators, registered
from .place import Place
from .sizes import power_of_two

States = dict[str, Tensor]
Settle = Callable[[Configuration, Callable[[], Iterable[Configuration]]], Configuration]
"""A model's cut, and those of the kernel that may run instead, → the cut that is taken."""

PRECISIONS = {
    torch.float64: "fp64",
    torch.float32: "tf32x3",
    torch.float16: "tf32",
    torch.bfloat16: "bf16",
}
"""What operands products take, by the arguments' type: float16's own range ends at 65,504."""

LANES = 128
"""Memories of single numbers a program."""

MOST = 64
"""Rows a chunk at most, unless the caller says fewer."""

UNGROUPED = 32
"""Rows of which products are none of warp groups."""


@dataclass(frozen=True)
class Row:
    """An argument by row, [B, R, H, …]: its name, the sizes of the axes after H, and its view.

    The views ``tail``, ``slots`` and ``window`` of keys and values have c − 1 rows before the
    first; a ``window`` has its slots as first size. ``band`` and ``slots`` of weights are [c].
    """

    name: str
    sizes: tuple[str, ...]
    view: str = "rows"

    @property
    def shared(self) -> bool:
        """Whether several windows see the same entries."""
        return self.view in ("tail", "window") or (self.view == "slots" and bool(self.sizes))

    @property
    def own(self) -> tuple[str, ...]:
        """The sizes of the axes after H that are channels, where there are such."""
        return self.sizes[1:] if self.view == "window" else self.sizes


@dataclass(frozen=True)
class Held:
    """A state, [M, …]: its name and the sizes of the axes after M."""

    name: str
    sizes: tuple[str, ...]


Stored = tuple[tuple[tuple[str, ...], int], ...]
"""What a kernel stores and loads again: rows along one axis, or matrices of two, how many."""


@dataclass(frozen=True)
class Kernel:
    """A form's generated kernels, and a description of their arguments.

    ``value`` is the size of the output's channels; ``split`` the size whose axis may be cut into
    blocks, one for each program (no entry of the state depends on another block's), or empty;
    ``along`` the sizes whose axes a program loops over block by block.
    """

    forward: Any
    backward: Any
    """The kernel of the gradient, or ``None``."""
    rows: tuple[Row, ...]
    states: tuple[Held, ...]
    gradients: tuple[str, ...]
    """The rows that have a gradient."""
    value: str
    split: str
    chunked: bool
    steps: int
    before: Callable[..., dict[str, Tensor]]
    """The function by which PyTorch computes some of the kernel's inputs from the arguments."""
    taken: tuple[str, ...]
    """The operator's arguments by row that ``before`` or the kernel reads."""
    lanes: bool = False
    """Whether memories are single numbers, a block of them a program."""
    window: int = 1
    """How many tokens a row sees."""
    slots: bool = False
    """Whether a chunk's windows are taken one after another."""
    products: bool = True
    """Whether it multiplies matrices, whose tiles have at least 16 rows and columns."""
    alive: tuple[tuple[Tiles, ...], ...] = ()
    """The fullest moments of a chunk, of the form and of its gradient: tiles by their sizes."""
    whole: bool = False
    """Whether a sequence is one chunk, whatever its rows."""
    along: tuple[str, ...] = ()
    """The sizes along which the kernel loops over blocks of its memories in device memory."""
    scratch: tuple[Stored, ...] = ()
    """How many rows along an axis, and matrices, the form and its gradient store in scratch memory:
    for later sweeps, or for later products of a lean gradient."""
    swept: "Kernel | None" = None
    """The form's kernel that loops over blocks of its memories, for those that exceed registers."""
    divided: Divided | None = None
    """The several kernels that the form can run in instead, where it can."""
    operators: Operators = field(init=False, repr=False, compare=False)
    """Its launches as torch sees them."""

    def __post_init__(self) -> None:
        from .launch import Launches

        object.__setattr__(self, "operators", registered(self.name, Launches(self)))

    @property
    def name(self) -> str:
        """The name of its form (own, chunk or token), with _swept if it loops over blocks."""
        if self.whole:
            return "own"
        return ("chunk" if self.chunked else "token") + "_swept" * bool(self.along)

    @property
    def blocked(self) -> tuple[str, ...]:
        """The sizes of which a tile has one block: one a program, or one after another."""
        return (self.split,) if self.split else self.along

    @property
    def narrowing(self) -> Order:
        """The order in which narrower cuts are tried, empty for lanes of single numbers."""
        if self.lanes:
            return ()
        if self.chunked and self.along:
            return of_sweeps()
        if self.chunked:
            return of_chunks(split=bool(self.split), whole=self.whole)
        return of_tokens(split=bool(self.blocked))

    def divides(self, cut: Configuration) -> bool:
        """Return whether a cut is for the several kernels that the form is divided into."""
        return self.divided is not None and cut.parallel > 0

    @property
    def divides_gradient(self) -> bool:
        """Whether its gradient can run in several kernels as well."""
        return self.divided is not None and self.divided.gradient is not None

    def that_of(self, cut: Configuration) -> "Kernel":
        """Return the kernel that a cut is for: this one, or its twin that loops over blocks."""
        return self.swept if cut.swept and self.swept is not None else self

    @property
    def leans(self) -> int:
        """The highest degree of leanness that its gradient has: see ``Configuration``."""
        if self.backward is None or self.lanes or (self.along and not self.chunked):
            return 0
        return 1 if self.along else LEANEST

    @property
    def plain(self) -> int:
        """The index of an argument by row of shape [B, R, H, …], no rows before the first."""
        own = (i for i, r in enumerate(self.rows) if not r.shared and r.name in self.taken)
        return next(own, 0)

    def fits(self, rows: int) -> int:
        """Return the rows of a chunk that reads, with its windows, at most ``rows`` rows."""
        if not self.chunked or self.window == 1:
            return rows
        return max(1, rows // self.window if self.slots else max(rows - self.window + 1, rows // 4))

    def sources(self, rows: int) -> int:
        """Return the rows of a tile for all that the windows of a chunk's rows read."""
        if self.slots:
            return max(2 * max(16, power_of_two(rows)), power_of_two(rows * self.window))
        return max(16, power_of_two(rows + self.window - 1))

    def anywhere(self, *, gradient: bool) -> bool:
        """Return whether it runs sequences that start anywhere in their documents."""
        return self.backward is not None or not gradient

    def refused(
        self, rows: Mapping[str, Tensor], states: States, *, gradient: bool
    ) -> str | None:  # fmt: skip
        """Return why the kernel cannot take these arguments, or None."""
        return refused(self, rows, states, gradient=gradient)

    def run(
        self, rows: Mapping[str, Tensor], states: States, place: Place
    ) -> tuple[Tensor, States]:  # fmt: skip
        """Run sequences through it: rows [B, R, H, …], states [M, …] → [B, R, H, d_v], states."""
        return run(self, rows, states, place)


PIECE = {True: 16, False: 64}
"""Chunks (or tokens) whose states are held at once for a gradient."""


@dataclass(frozen=True)
class Cutting:
    """How sequences are cut: a chunk's rows, a piece's chunks, the rows of the longest sequence (0:
    all that there are), and whether chunks end at multiples of their tokens in a document."""

    rows: int
    piece: int
    longest: int
    aligned: bool
    chosen: Configuration

    @classmethod
    def of(
        cls, kernel: Kernel, rows: list[Tensor], sizes: dict[str, int], numbers: list[int], *,
        sequences: int, gradient: bool, settle: Settle, alike: Hashable = None,
    ) -> "Cutting":  # fmt: skip
        """Choose the cut for an operator's arguments; ``numbers`` are those of ``Place.numbers``.

        ``settle`` may replace the cut that the model chooses; ``alike`` names what its answer
        depends on besides the other arguments. Raises ``RuntimeError`` where no cut may run.
        """
        place, like = Place.of(numbers), rows[kernel.plain]
        question = asked(kernel, sizes, like, gradient=gradient)
        if why := tuned.failed(question, like.device):
            raise RuntimeError(why)
        alike = None if alike is None else (alike, *(x.dtype for x in rows), *like.shape[1:3])
        chosen = chosen_of(kernel, sizes, question, like, place, sequences, settle, alike)
        return cls.cut(kernel, like, place, chosen)

    @classmethod
    def cut(
        cls, kernel: Kernel, like: Tensor, place: Place, chosen: Configuration
    ) -> "Cutting":  # fmt: skip
        """Return how sequences are cut, given the chosen configuration."""
        kernel = kernel.that_of(chosen)
        tall = place.rows(kernel.fits(chosen.rows), kernel.steps)
        if kernel.whole:
            tall = int(like.shape[1])
        aligned = kernel.chunked and place.anchor > 1
        piece = 1 if kernel.divides(chosen) else PIECE[kernel.chunked]
        return cls(tall, piece, place.longest * kernel.steps, aligned, chosen)


def asked(
    kernel: Kernel, sizes: Mapping[str, int], like: Tensor, *, gradient: bool
) -> tuned.Question:  # fmt: skip
    """Return the key of the tuner's answers, with memories' sizes, known before all rows."""
    own = {size: sizes[size] for state in kernel.states for size in state.sizes}
    return tuned.Question.of(kernel.name, own, like, gradient=gradient)


_known: dict[Hashable, Configuration] = {}
"""Earlier choices, by all that they depend on: to run the model at every call would take longer
than the kernels of a short sequence."""

FORGET = 4_096
"""Choices that are remembered at most; then all are forgotten and made again."""


def chosen_of(
    kernel: Kernel, sizes: dict[str, int], question: tuned.Question, like: Tensor, place: Place,
    sequences: int, settle: Settle, alike: Hashable = None,
) -> Configuration:  # fmt: skip
    """Choose a kernel's cut for arguments like these: the measured one, else the model's.

    With ``alike`` the model runs once for all arguments that share it, otherwise at every call.
    """
    longest = place.longest * kernel.steps or int(like.shape[1])
    work = Work(sequences * int(like.shape[2]), longest, like.element_size())
    device, gradient = limits(like.device), question.gradient

    def model(kernel: Kernel, work: Work) -> Configuration:
        most = place.wanted or MOST
        one = configured(kernel, sizes, device, work, gradient=gradient, most=most)
        always = divided_always()
        if gradient and always is None and not kernel.divides_gradient:
            always = False  # its gradient is one kernel, which makes a piece's states anew
        if gradient and versions.faulty(like.device):
            most = min(most, UNGROUPED)
        return divided_cut(
            kernel, sizes, device, work, one, most=most, always=always, gradient=gradient
        )

    def instead() -> Iterator[Configuration]:
        twin = twin_of(kernel, gradient=gradient)
        if twin is not None and not _always and not _too_large(twin, sizes, gradient=gradient):
            alike = Work(bytes=work.bytes)  # one for all launches of which that is asked once
            widest = replace(model(twin, alike), swept=True)
            yield from (widest, *narrower(twin.narrowing, widest))

    def settled() -> Configuration:
        first = model(kernel, work)
        found = settle(first, instead)
        if kernel.divides(found) or not kernel.divides(first):
            return found
        with in_several(always=False):  # what is divided spills far too much
            return settle(model(kernel, work), instead)

    def remembered() -> Configuration:
        key = (
            kernel.forward, *sizes.items(), work, device, like.device, alike, gradient,
            place.anchor, place.wanted, swept_always(), divided_always(), versions.offline(),
        )  # fmt: skip
        if alike is None:
            return settled()
        if key not in _known:
            if len(_known) >= FORGET:
                _known.clear()
            _known[key] = settled()
        return _known[key]

    found = tuned.chosen(
        question, like.device, remembered,
        lambda cut: _choices(kernel.that_of(cut), sizes, gradient=gradient),
        tunable=place.wanted is None,
    )  # fmt: skip
    found = model(kernel, work) if found.swept and _always else found
    return replace(found, **_changes[-1]) if _changes and gradient else found


def _choices(kernel: Kernel, sizes: dict[str, int], *, gradient: bool) -> Choices:
    """Return what the tuner may try; if the form can run in several kernels, those too."""
    found = choices(kernel, sizes, MOST)
    several = kernel.divides_gradient if gradient else kernel.divided is not None
    return replace(found, parallel=PARALLEL) if several else found


LIMIT = 600
"""Entries a thread, by the model's count, beyond which a kernel is refused at its smallest cut:
more than twice what registers hold."""

ALONG = 240
"""Entries a thread beyond which a kernel that loops over blocks of its memories is refused: its
other axes are too long for any block, and it would take many minutes to compile."""


_always: list[bool] = []
"""What ``sweeping`` asks for, the last one first."""


@contextmanager
def sweeping(*, always: bool) -> Iterator[None]:
    """Use kernels that loop over blocks of memories inside, wherever possible or nowhere."""
    _always.append(always)
    try:
        yield
    finally:
        _always.pop()


_changes: list[dict[str, Any]] = []
"""What ``recut`` asks for, the last one first."""


@contextmanager
def recut(**changes: int) -> Iterator[None]:
    """Cut kernels with gradients differently inside: for checks.

    ``changes`` are fields of ``Configuration``, such as ``lean``.
    """
    _changes.append(changes)
    try:
        yield
    finally:
        _changes.pop()


_divided: list[bool] = []
"""What ``in_several`` asks for, the last one first."""


@contextmanager
def in_several(*, always: bool) -> Iterator[None]:
    """Run forms in several kernels inside, wherever they can or nowhere: for checks."""
    _divided.append(always)
    try:
        yield
    finally:
        _divided.pop()


def divided_always() -> bool | None:
    """Return the setting of the innermost ``in_several``, or ``None``."""
    return _divided[-1] if _divided else None


def swept_always() -> bool | None:
    """Return the setting of the innermost ``sweeping``, or ``None``."""
    return _always[-1] if _always else None


def twin_of(kernel: Kernel, *, gradient: bool) -> Kernel | None:
    """Return the form's kernel that loops over blocks, if it has the same gradients."""
    twin = kernel.swept
    if twin is not None and gradient and twin.gradients != kernel.gradients:
        return None
    return twin


def suited(kernel: Kernel, sizes: Mapping[str, int], *, gradient: bool) -> Kernel:
    """Return a form's kernel for these sizes: the one that loops over blocks of its memories if
    registers cannot hold them, by the model's count."""
    twin = twin_of(kernel, gradient=gradient)
    if twin is None:
        return kernel
    if _always:
        return twin if _always[-1] else kernel
    least = _least_entries(kernel, sizes, gradient=gradient)
    return twin if least > budget(kernel, gradient=gradient) else kernel


def refused(
    kernel: Kernel, rows: Mapping[str, Tensor], states: States, *, gradient: bool
) -> str | None:  # fmt: skip
    """Return why a kernel cannot take these arguments, or None."""
    given = tuple(row for row in kernel.rows if row.name in rows)
    sizes = sizes_of(
        kernel, [rows[row.name] for row in given], [states[s.name] for s in kernel.states], given
    )  # fmt: skip
    kernel = suited(kernel, sizes, gradient=gradient)
    if gradient and kernel.backward is None:
        return "its kernel has no gradient"
    if found := _too_large(kernel, sizes, gradient=gradient):
        shown = ", ".join(f"{name} = {size}" for name, size in sorted(sizes.items()))
        return (
            f"its kernel does not fit on chip: at {shown} a thread would hold {found} numbers, "
            f"and {_limit(kernel)} are the limit"
        )
    like = rows.get(kernel.rows[kernel.plain].name)
    if like is None or torch.compiler.is_compiling():  # then the launch looks, and refuses
        return None
    return tuned.failed(asked(kernel, sizes, like, gradient=gradient), like.device)


def _limit(kernel: Kernel) -> int:
    return ALONG if kernel.along else LIMIT


def _too_large(kernel: Kernel, sizes: Mapping[str, int], *, gradient: bool) -> int:
    """Return a thread's entries at the smallest cut, if they exceed the limit, or 0."""
    found = _least_entries(kernel, sizes, gradient=gradient)
    return found if found > _limit(kernel) else 0


_counted: dict[Hashable, int] = {}
"""Entries a thread at the smallest cut, by kernel and sizes."""


def _least_entries(kernel: Kernel, sizes: Mapping[str, int], *, gradient: bool) -> int:
    """Count the entries that a thread holds at the smallest cut, once for each kernel and sizes."""
    key = (kernel.forward, kernel.along, gradient, *sizes.items())
    if key not in _counted:
        _counted[key] = least_entries(kernel, dict(sizes), gradient=gradient)
    return _counted[key]


def run(
    kernel: Kernel, rows: Mapping[str, Tensor], states: States, place: Place
) -> tuple[Tensor, States]:
    """Run sequences through a kernel: rows [B, R, H, …], states [M, …] → [B, R, H, d_v], states.

    Products of bfloat16 arguments have bfloat16 operands, those of float16 TF32; sums, states and
    everything else are float32 (float64 where the arguments are).
    """
    given = {name: rows[name] for name in kernel.taken}
    given |= kernel.before(**{n: given[n] for n in parameters(kernel.before)})
    tensors = [given[row.name].contiguous() for row in kernel.rows]
    real = torch.float64 if tensors[0].dtype == torch.float64 else torch.float32
    start = [states[state.name].to(real).contiguous() for state in kernel.states]
    gradient = torch.is_grad_enabled() and any(x.requires_grad for x in (*tensors, *start))
    kernel = suited(kernel, sizes_of(kernel, tensors, start), gradient=gradient)
    out, *found = kernel.operators.forward(
        tensors, start, place.positions, place.bounds, place.numbers(), gradient
    )
    return out, {state.name: x for state, x in zip(kernel.states, found, strict=False)}


def sizes_of(
    kernel: Kernel, rows: list[Tensor], states: list[Tensor], given: tuple[Row, ...] | None = None
) -> dict[str, int]:
    """Return the size of each axis by name, in the kernel's order: of rows (all of them, or those
    that are given), then of states."""
    found: dict[str, int] = {}
    for row, x in zip(kernel.rows if given is None else given, rows, strict=True):
        if row.view == "window":
            found[row.sizes[0]] = kernel.window
        if row.own:
            found |= dict(zip(row.own, x.shape[3:], strict=True))
    for state, x in zip(kernel.states, states, strict=True):
        found |= dict(zip(state.sizes, x.shape[1:], strict=True))
    return {name: int(size) for name, size in found.items()}
