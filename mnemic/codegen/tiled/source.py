"""Plans → the source of ``kernels.py``: the kernels of a rule, and what each takes."""

from dataclasses import dataclass, field, replace

from mnemic.codegen.adjoint import Adjoint
from mnemic.codegen.error_functions import Signal
from mnemic.codegen.fuse import fuse
from mnemic.codegen.ops.errors import SIGNALS
from mnemic.codegen.ops.operation import CHUNK, LANES, TOKEN
from mnemic.codegen.plan import Call, Plan
from mnemic.codegen.streamed import streamed_source as pairs
from mnemic.codegen.tiled import implicit_tile, lanes, residuals, roots, signals, swept
from mnemic.codegen.tiled.alive import fullest, fullest_swept
from mnemic.codegen.tiled.axes import NoTiles
from mnemic.codegen.tiled.backward import Staged, backward
from mnemic.codegen.tiled.backward import staged as backward_stages
from mnemic.codegen.tiled.computed_before import Cut, cut
from mnemic.codegen.tiled.data import Data, before
from mnemic.codegen.tiled.divided import (
    GradientParts,
    divided,
    gradient_kernels,
    gradient_parts,
    running_sums,
)
from mnemic.codegen.tiled.divided.divided_source import parallel, scan
from mnemic.codegen.tiled.gradient_plan import given_back, ordered, output_of, reversed_of
from mnemic.codegen.tiled.kernel import forward, staged
from mnemic.codegen.tiled.latest import latest, memory_first, split_sum
from mnemic.codegen.tiled.layout import Held, Layout, Row, layout
from mnemic.codegen.tiled.printer import UnknownFunction
from mnemic.codegen.tiled.reordered import reordered, tidied, upright
from mnemic.codegen.tiled.widths import uniform
from mnemic.codegen.tiled.windows import opened

HEADER = '''"""{title}: fused kernels.

{text}
Written by mnemic {version} from the spec {name} ({hash}). Tiles hold one chunk; memories [V, K]
are held as [K, V].
"""
# ruff: noqa
import math

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from .support import ops, tiles
from .support.bodies import Body
from .support.divided import Divided, Tile
from .support.divided_gradient import DividedGradient, Part
from .support.fused import Held, Kernel, Row
from .support.levelled import Levelled
from .support.overlapping import OverlappingGradient, SourcedPart
from .support.streamed import Kept, Streamed
from .support.substituted import Substituted
from .support.ops import TINY, norm
'''


FORMS = {
    "chunk": "Chunk by chunk: arguments [B, R, H, ...], states [M, ...].",
    "token": "Token by token: arguments [B, R, H, ...], states [M, ...].",
}
"""The kernels by name, and what each does."""

SWEPT = {
    "chunk": "Chunk by chunk, memories block by block: arguments [B, R, H, ...], states [M, ...].",
    "token": "Token by token, memories block by block: arguments [B, R, H, ...], states [M, ...].",
}
"""By name, the kernels whose memories lie in the device's memory, and what each does."""

LEVELS = {
    "own": "What the rows of an aligned chunk read of each other: arguments [B, R, H, ...].",
    "level_token": "One level, token by token: arguments [B, R, H, ...], states [M, ...].",
    "level_chunk": "One level, chunk by chunk: arguments [B, R, H, ...], states [M, ...].",
}
"""The kernels of a tree of levels by name, and what each does."""

GRADIENT = "The gradient: arguments, d_out, what stood at each start, d_states -> gradients."


@dataclass(frozen=True)
class Form:
    """A form's plan before and after rewrites fused its operations."""

    plan: Plan
    plain: Plan


@dataclass(frozen=True)
class Levels:
    """The plans of a tree of levels (``codegen.tree``): a chunk's own rows, one level by token and
    by chunk; ``weights`` is the quantity of the first that weighs the levels."""

    forms: tuple[Form, Form, Form]
    weights: str


@dataclass(frozen=True)
class Kernels:
    """The source of the kernels, and the reasons where a form (or its gradient) has none."""

    text: str
    missing: dict[str, str]


@dataclass
class _Source:
    logarithms: frozenset[str]
    steps: int
    numbers: dict[str, str]
    missing: dict[str, str]
    window: int = 1
    expanded: bool = False
    """Whether keys have features of their own, more than a head has channels."""
    shared: list[str] = field(default_factory=list)
    """Functions of links that stand in the module already."""

    def form(self, form: Form, name: str) -> str:
        """Write the kernels of one form.

        Raises ``NoTiles`` where it has none.
        """
        if pairs.keeps(form.plan):
            return self.over_pairs(form.plain, name)
        return self.tiles(form, name, FORMS[name], chunked=name == "chunk")

    def tiles(
        self, form: Form, name: str, doc: str, *, chunked: bool, also: tuple[str, ...] = ()
    ) -> str:  # fmt: skip
        """Write the kernels of a plan on tiles; ``also`` are to be arguments in any case.

        Raises ``NoTiles`` where it has none.
        """
        kind = CHUNK if chunked else TOKEN
        plain, windows = opened(uniform(form.plain), self.window)
        plain = cut(plain, kind, also).plan
        plan, _ = opened(uniform(form.plan), self.window)
        found = cut(plan, kind, also)
        if chunked:
            plain = reordered(plain)
            found = replace(found, plan=memory_first(_fused(tidied(plain))))
        lay = layout(
            found.plan, self.logarithms, chunked=chunked, output=found.plan.output, windows=windows
        )
        signal = found.plan.signals.get("error") if chunked else None
        parts = self.own(implicit_tile.functions(plan), roots.functions(plan))
        try:
            parts += _error(signal, plain) if signal else []
        except UnknownFunction as error:
            raise NoTiles(f"the function {error}") from None
        parts.append(forward(lay, self.numbers, f"{name}_forward", doc))
        data = Data(
            lay.rows, lay.states, None, lay.value, lay.split, chunked=chunked,
            windows=lay.windows, alive=(fullest(lay, staged(lay)),),
        )  # fmt: skip
        try:
            text, data = self.gradient(plain, lay, data, name)
            parts.append(text)
        except NoTiles as reason:
            self.missing[f"{name} gradient"] = str(reason)
        apart, data = self.divided(plain, lay, data, name)
        parts += apart
        data = replace(data, products=any(", PRECISION" in part for part in parts))
        twin = self.by_blocks(plain, lay, data, found, name)
        first, told = self.data(found, replace(data, swept=bool(twin)), name)
        return "\n\n".join([*parts, first, *twin, told])

    def divided(
        self, plain: Plan, lay: Layout, data: Data, name: str
    ) -> tuple[list[str], Data]:  # fmt: skip
        """Write a chunk form's and its gradient's kernels, the plan divided at what the states
        reach; return the kernels, and the form's data with what they take."""
        found = divided(lay) if name == "chunk" else None
        if found is None:
            return [], data
        parts = [
            parallel(found, self.numbers, f"{name}_parallel"),
            scan(found, self.numbers, f"{name}_scan"),
        ]
        data = replace(data, divided=found)
        if data.gradients is not None:
            found_back = self.gradient_parts(plain, lay)
            if found_back is not None:
                parts += gradient_kernels.kernels(found_back, self.numbers, f"{name}_back")
                data = replace(data, divided_gradient=found_back)
        return parts, data

    def gradient_parts(self, plain: Plan, lay: Layout) -> GradientParts | None:
        """Divide a form's gradient at what the gradients of states reach, if that can be done."""
        back = reversed_of(plain)
        under, _ = self.laid(replace(back, plan=upright(tidied(back.plan))), lay)
        return gradient_parts(*self.laid(replace(back, plan=running_sums(under)), lay))

    def by_blocks(
        self, plain: Plan, lay: Layout, whole: Data, found: Cut, name: str
    ) -> list[str]:  # fmt: skip
        """Write the kernels of a form that loop over blocks of its memories, where these may exceed
        registers and have an axis that allows it."""
        if name not in SWEPT or (lay.split and not self.expanded):
            return []
        lay = replace(lay, split="")
        along = swept.axes(lay, lambda along: self.spread(lay, along))
        if not along:
            return []
        form = swept.of_form(self.spread(lay, along), along)
        parts = [swept.forward(form, self.numbers, f"{name}_swept_forward", SWEPT[name])]
        data = replace(
            whole, split="", gradients=None, alive=(fullest_swept(*form.all),), along=along,
            divided=None, divided_gradient=None,
            scratch=(form.stored,),
        )  # fmt: skip
        try:
            back, turned = self.gradient_by_blocks(plain, lay, along)
            title = f"{name}_swept_backward"
            parts.append(swept.backward(turned, back, self.numbers, title, GRADIENT))
            data = replace(
                data, gradients=tuple(back.gradients), scratch=(*data.scratch, turned.stored()),
                alive=(*data.alive, fullest_swept(turned)),
            )  # fmt: skip
        except NoTiles as reason:
            parts.append(f"# No gradient block by block: {reason}.\n")
        return [*parts, data.printed(f"{name}_swept", found.taken, self.steps, before=name)]

    def gradient_by_blocks(
        self, plain: Plan, lay: Layout, along: tuple[str, ...]
    ) -> tuple[Adjoint, swept.Sweeps]:
        """Return the gradient of a form that goes along axes, and its sweeps."""
        back = reversed_of(plain)
        under, back = self.laid(replace(back, plan=tidied(back.plan)) if lay.chunked else back, lay)
        under, back = self.laid(replace(back, plan=swept.spread(under, along)), lay)
        return back, swept.of_gradient(under, back, along)

    def spread(self, lay: Layout, along: tuple[str, ...]) -> Layout:
        """Lay a form out without functions of memories that are gone along."""
        plan = swept.spread(lay, along)
        return layout(
            plan, self.logarithms, chunked=lay.chunked, output=plan.output, windows=lay.windows,
            like=lay,
        )  # fmt: skip

    def lanes(self, form: Form) -> str:
        """Write the kernels of a diagonal memory's token form, channels side by side.

        Raises ``NoTiles`` where it has none.
        """
        found = cut(form.plan, LANES)
        plan = found.plan
        names = tuple(plan.arguments())
        parts = self.own(implicit_tile.functions(form.plan))
        parts.append(lanes.forward(plan, self.numbers, "token_forward", FORMS["token"]))
        rows = tuple(Row(n, _letters(plan, n), "zero") for n in names)
        back = given_back(reversed_of(plan), rows)
        parts.append(lanes.backward(back, names, self.numbers, "token_backward", GRADIENT))
        states = tuple(Held(n, _letters(plan, n)) for n in plan.states())
        value = _letters(plan, plan.output)[-1]
        data = Data(rows, states, tuple(back.gradients), value, "", lanes=True)
        return "\n\n".join([*parts, *self.data(found, data, "token")])

    def levels(self, found: Levels) -> str:
        """Write the kernels of a tree: of a chunk's own rows, and of one level.

        Raises ``NoTiles`` where one of them, or its gradient, has none.
        """
        parts = [
            self.tiles(form, name, doc, chunked=name != "level_token",
                       also=(found.weights,) if name == "own" else ())
            for (name, doc), form in zip(LEVELS.items(), found.forms, strict=True)
        ]  # fmt: skip
        for name in LEVELS:
            if f"{name} gradient" in self.missing:
                raise NoTiles(self.missing.pop(f"{name} gradient"))
        named = ", ".join(name.upper() for name in LEVELS)
        parts.append(f"CHUNK = TOKEN = Levelled({named}, weights={found.weights!r})\n")
        return "\n\n".join(parts)

    def over_pairs(self, plan: Plan, name: str) -> str:
        """Write the kernels of a form whose states grow."""
        if name == "token":
            through = "a token of kept pairs goes through the chunk's kernel"
            raise NoTiles(self.missing.get("chunk", through))
        found = pairs.source(plan, self.logarithms, self.steps, self.numbers, self.window)
        if found.missing:
            self.missing[f"{name} gradient"] = found.missing
        parts = self.own(implicit_tile.functions(plan))
        if any(isinstance(q.op, Call) and q.op.function in SIGNALS for q in plan.ordered()):
            parts += _error(plan.signals["error"], plan)
        return "\n\n".join([*parts, found.text])

    def data(self, found: Cut, data: Data, name: str) -> tuple[str, str]:
        """Write what PyTorch computes before a form's kernels, and the data of what they take."""
        first = before(found.plan, found.before, found.taken, data.rows, name)
        return first, data.printed(name, found.taken, self.steps)

    def own(self, *sources: str) -> list[str]:
        """Return those functions of the spec's own that the module does not define yet."""
        found = [source for source in sources if source and source not in self.shared]
        self.shared += found
        return found

    def gradient(self, plan: Plan, lay: Layout, data: Data, name: str) -> tuple[str, Data]:
        """Write a form's gradient kernel; return it, and the form's data with what it takes."""
        back = reversed_of(plan)
        if lay.chunked:
            back = replace(back, plan=tidied(back.plan))
            split_sum(back.plan, latest(back.plan, back.gradients.values()))
        under, back = self.laid(back, lay)
        staged = Staged.of(under, back)
        text = backward(staged, back, self.numbers, f"{name}_backward", GRADIENT)
        return text, replace(
            data, gradients=tuple(back.gradients), scratch=((), staged.scratch.counts),
            alive=(*data.alive, fullest(under, backward_stages(under, back))),
        )  # fmt: skip

    def laid(self, back: Adjoint, lay: Layout) -> tuple[Layout, Adjoint]:
        """Lay a gradient out on tiles as its form lies, with the form's own arguments alone."""
        under = layout(
            back.plan, self.logarithms, chunked=lay.chunked, output=output_of(back),
            given=back.states, like=lay, windows=lay.windows,
        )  # fmt: skip
        under = replace(under, rows=ordered(lay.rows, under.rows))
        return under, given_back(back, lay.rows)


def _error(signal: Signal, plan: Plan) -> tuple[str, ...]:
    """Write the functions of an error signal, and of the system that a chunk's residuals solve."""
    system = residuals.functions(signal.parameters, swept=signal.bounded and _solves(plan))
    return (*signals.functions(signal), *system)


def _solves(plan: Plan) -> bool:
    """Return whether the residuals of a chunk solve a system."""
    return any(isinstance(q.op, Call) and q.op.function == "residual" for q in plan.ordered())


def _fused(plan: Plan) -> Plan:
    fuse(plan)
    return plan


def _letters(plan: Plan, name: str) -> tuple[str, ...]:
    """Return the sizes of a token's quantity, named by the letters of its axes."""
    return tuple(letter.upper() for letter in plan.axes(name))


def kernels(
    chunk: Form | None, token: Form, logarithms: frozenset[str], steps: int,
    numbers: dict[str, str], *, diagonal: bool, window: int = 1, expanded: bool = False,
    no_chunk: str | None = None,
) -> Kernels:  # fmt: skip
    """Write the kernels of a rule's forms: ``CHUNK`` and ``TOKEN`` (``None`` where there is none).

    A ``diagonal`` memory goes token by token alone, its channels side by side. ``expanded`` keys
    have more features than a head has channels. ``no_chunk`` says why a rule with a chunk form is
    given without it.
    """
    parts: list[str] = []
    source = _Source(logarithms, steps, numbers, {}, window, expanded)
    for form, name in zip((chunk, token), FORMS, strict=True):
        try:
            if form is None:
                raise NoTiles(no_chunk or "no chunk form")
            if diagonal and name == "chunk":
                raise NoTiles("a diagonal memory goes token by token")
            parts.append(source.lanes(form) if diagonal else source.form(form, name))
        except NoTiles as reason:
            source.missing[name] = str(reason)
            parts.append(f"{name.upper()} = None  # {reason}\n")
    none = all(name in source.missing for name in FORMS)
    return Kernels("" if none else "\n\n" + "\n\n".join(parts), source.missing)


def tree(found: Levels, logarithms: frozenset[str], numbers: dict[str, str]) -> Kernels:
    """Write the kernels of a tree of levels, each of which is a memory of its own."""
    source = _Source(logarithms, 1, numbers, {})
    try:
        return Kernels("\n\n" + source.levels(found), {})
    except NoTiles as reason:
        return Kernels("", dict.fromkeys(FORMS, str(reason)))
