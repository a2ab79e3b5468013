"""Plans → the source of ``kernels.py``: the kernels of a rule, and what each takes."""

from dataclasses import dataclass, field, replace

from mnemic.codegen import emit
from mnemic.codegen.adjoint import Adjoint, NoAdjoint, adjoint
from mnemic.codegen.functions import Signal
from mnemic.codegen.fuse import fuse
from mnemic.codegen.plan import Call, Plan
from mnemic.codegen.streamed import source as pairs
from mnemic.codegen.tiled import implicit, lanes, residuals, roots, signals
from mnemic.codegen.tiled.alive import Tiles, fullest
from mnemic.codegen.tiled.axes import NoTiles
from mnemic.codegen.tiled.backward import backward
from mnemic.codegen.tiled.backward import staged as backward_stages
from mnemic.codegen.tiled.cut import Cut, cut
from mnemic.codegen.tiled.functions import CHUNK, TOKEN, TileFunction
from mnemic.codegen.tiled.kernel import forward, staged
from mnemic.codegen.tiled.latest import latest, memory_first, parted
from mnemic.codegen.tiled.layout import Held, Layout, Row, layout
from mnemic.codegen.tiled.printer import UnknownFunction
from mnemic.codegen.tiled.reordered import reordered, tidied
from mnemic.codegen.tiled.windows import ROWS, Windows, opened

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
from .support.fused import Held, Kernel, Row
from .support.levelled import Levelled
from .support.streamed import Kept, Streamed
from .support.ops import TINY, norm
'''


FORMS = {
    "chunk": "Chunk by chunk: arguments [B, R, H, ...], states [M, ...].",
    "token": "Token by token: arguments [B, R, H, ...], states [M, ...].",
}
"""The kernels by name, and what each does."""

LEVELS = {
    "own": "What the rows of an aligned chunk read of each other: arguments [B, R, H, ...].",
    "level_token": "One level, token by token: arguments [B, R, H, ...], states [M, ...].",
    "level_chunk": "One level, chunk by chunk: arguments [B, R, H, ...], states [M, ...].",
}
"""The kernels of a tree of levels by name, and what each does."""

ONE = TileFunction(("",), "")
"""Stands for any function of single numbers."""

GRADIENT = "The gradient: arguments, d_out, what stood at each start, d_states -> gradients."


@dataclass(frozen=True)
class Form:
    """A form's plan before and after it was fused."""

    plan: Plan
    plain: Plan


@dataclass(frozen=True)
class Levels:
    """The plans of a tree of levels (``codegen.level``): a chunk's own rows, one level by token
    and by chunk; ``weights`` is the quantity of the first that weighs the levels."""

    forms: tuple[Form, Form, Form]
    weights: str


@dataclass(frozen=True)
class Kernels:
    """The source of the kernels, and why a form (or its gradient) has none."""

    text: str
    missing: dict[str, str]


@dataclass
class _Source:
    logarithms: frozenset[str]
    steps: int
    numbers: dict[str, str]
    missing: dict[str, str]
    window: int = 1
    shared: list[str] = field(default_factory=list)
    """Functions of links that stand in the module already."""

    def form(self, form: Form, name: str) -> str:
        """The kernels of one form.

        Raises ``NoTiles`` where it has none.
        """
        if pairs.keeps(form.plan):
            return self.over_pairs(form.plain, name)
        return self.tiles(form, name, FORMS[name], chunked=name == "chunk")

    def tiles(
        self, form: Form, name: str, doc: str, *, chunked: bool, also: tuple[str, ...] = ()
    ) -> str:  # fmt: skip
        """The kernels of a plan on tiles; ``also`` are to be arguments in any case.

        Raises ``NoTiles`` where it has none.
        """
        table = CHUNK if chunked else TOKEN
        plain, windows = opened(form.plain, self.window)
        plain = cut(plain, table, also).plan
        plan, _ = opened(form.plan, self.window)
        found = cut(plan, table, also)
        if chunked:
            plain = reordered(plain)
            found = replace(found, plan=memory_first(_fused(tidied(plain))))
        lay = layout(
            found.plan, self.logarithms, chunked=chunked, output=found.plan.output, windows=windows
        )
        signal = found.plan.signals.get("error") if chunked else None
        parts = self.own(implicit.functions(plan), roots.functions(plan))
        try:
            parts += _error(signal, plain) if signal else []
        except UnknownFunction as error:
            raise NoTiles(f"the function {error}") from None
        parts.append(forward(lay, self.numbers, f"{name}_forward", doc))
        tiles = [fullest(lay, staged(lay))]
        gradients: tuple[str, ...] | None = None
        try:
            text, gradients, most = self.gradient(plain, lay, name)
            parts.append(text)
            tiles.append(most)
        except NoTiles as reason:
            self.missing[f"{name} gradient"] = str(reason)
        products = any(", PRECISION" in part for part in parts)
        data = Data(
            lay.rows, lay.states, gradients, lay.value, lay.split, chunked=chunked,
            windows=lay.windows, products=products, alive=tuple(tiles),
        )  # fmt: skip
        parts += [before_of(found, lay.rows, name), kernel_of(found, data, name, self.steps)]
        return "\n\n".join(parts)

    def lanes(self, form: Form) -> str:
        """The kernels of a diagonal memory's token form, channels side by side.

        Raises ``NoTiles`` where it has none.
        """
        found = cut(form.plan, dict.fromkeys(lanes.FUNCTIONS, ONE))
        plan = found.plan
        names = tuple(plan.arguments())
        parts = self.own(implicit.functions(form.plan))
        parts.append(lanes.forward(plan, self.numbers, "token_forward", FORMS["token"]))
        back = _reversed(plan)
        back = replace(back, gradients={n: g for n, g in back.gradients.items() if n in names})
        parts.append(lanes.backward(back, names, self.numbers, "token_backward", GRADIENT))
        rows = tuple(Row(n, _letters(plan, n), "zero") for n in names)
        states = tuple(Held(n, _letters(plan, n)) for n in plan.states())
        value = _letters(plan, plan.output)[-1]
        data = Data(rows, states, tuple(back.gradients), value, "", lanes=True)
        parts += [before_of(found, rows, "token"), kernel_of(found, data, "token", self.steps)]
        return "\n\n".join(parts)

    def levels(self, found: Levels) -> str:
        """The kernels of a tree: of a chunk's own rows, and of one level.

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
        """The kernels of a form whose states grow."""
        if name == "token":
            through = "a token of kept pairs goes through the chunk's kernel"
            raise NoTiles(self.missing.get("chunk", through))
        found = pairs.source(plan, self.logarithms, self.steps, self.numbers, self.window)
        if found.missing:
            self.missing[f"{name} gradient"] = found.missing
        return found.text

    def own(self, *sources: str) -> list[str]:
        """Functions of the spec's own that do not stand in the module yet."""
        found = [source for source in sources if source and source not in self.shared]
        self.shared += found
        return found

    def gradient(
        self, plan: Plan, lay: Layout, name: str
    ) -> tuple[str, tuple[str, ...], tuple[Tiles, ...]]:
        """The kernel of a form's gradient, the arguments that have one, and its fullest moments."""
        back = _reversed(plan)
        if lay.chunked:
            back = replace(back, plan=tidied(back.plan))
            parted(back.plan, latest(back.plan, back.gradients.values(), CHUNK))
        output = next(n for n in back.plan.arguments() if n.startswith("d_out"))
        under = layout(
            back.plan, self.logarithms, chunked=lay.chunked, output=output, given=back.states,
            like=lay, windows=lay.windows,
        )  # fmt: skip
        under = replace(under, rows=_ordered(lay, under))
        known = {row.name for row in lay.rows}
        gradients = {n: g for n, g in back.gradients.items() if n in known}
        back = replace(back, gradients=gradients)
        text = backward(under, back, self.numbers, f"{name}_backward", GRADIENT)
        return text, tuple(gradients), fullest(under, backward_stages(under, back))


@dataclass(frozen=True)
class Data:
    """What the kernels of a form take: see ``support.fused.Kernel``."""

    rows: tuple[Row, ...]
    states: tuple[Held, ...]
    gradients: tuple[str, ...] | None
    value: str
    split: str
    chunked: bool = False
    lanes: bool = False
    windows: Windows = Windows()
    products: bool = False
    alive: tuple[tuple[Tiles, ...], ...] = ()


def _error(signal: Signal, plan: Plan) -> tuple[str, ...]:
    """The functions of an error signal, and of the system that a chunk's residuals solve."""
    system = residuals.functions(signal.parameters, _solver(plan))
    return (*signals.functions(signal), *system)


def _solver(plan: Plan) -> str:
    """How the residuals of a chunk are solved, where they solve anything."""
    for quantity in plan.ordered():
        match quantity.op:
            case Call("residual", options=options):
                return str(dict(options)["solver"])
    return "substitution"


def _fused(plan: Plan) -> Plan:
    fuse(plan)
    return plan


def _reversed(plan: Plan) -> Adjoint:
    try:
        return adjoint(plan)
    except NoAdjoint as reason:
        raise NoTiles(f"no gradient of ops.{reason}") from None


def _letters(plan: Plan, name: str) -> tuple[str, ...]:
    """The sizes of a token's quantity by their letters."""
    return tuple(letter.upper() for letter in plan.axes(name))


def kernels(
    chunk: Form | None, token: Form, logarithms: frozenset[str], steps: int,
    numbers: dict[str, str], *, diagonal: bool, window: int = 1,
) -> Kernels:  # fmt: skip
    """The kernels of a rule's forms: ``CHUNK`` and ``TOKEN`` (``None`` where there is none).

    A ``diagonal`` memory goes token by token alone, its channels side by side.
    """
    parts: list[str] = []
    source = _Source(logarithms, steps, numbers, {}, window)
    for form, name in zip((chunk, token), FORMS, strict=True):
        try:
            if form is None:
                raise NoTiles("no chunk form")
            if diagonal and name == "chunk":
                raise NoTiles("a diagonal memory goes token by token")
            parts.append(source.lanes(form) if diagonal else source.form(form, name))
        except NoTiles as reason:
            source.missing[name] = str(reason)
            parts.append(f"{name.upper()} = None  # {reason}\n")
    none = all(name in source.missing for name in FORMS)
    return Kernels("" if none else "\n\n" + "\n\n".join(parts), source.missing)


def tree(found: Levels, logarithms: frozenset[str], numbers: dict[str, str]) -> Kernels:
    """The kernels of a tree of levels, each of which is a memory of its own."""
    source = _Source(logarithms, 1, numbers, {})
    try:
        return Kernels("\n\n" + source.levels(found), {})
    except NoTiles as reason:
        return Kernels("", dict.fromkeys(FORMS, str(reason)))


def _ordered(lay: Layout, under: Layout) -> tuple[Row, ...]:
    """The rows of a gradient's kernel in the order of the form's, whether or not it reads them."""
    own = {row.name: row for row in under.rows}
    output = tuple(row for row in under.rows if row.name.startswith("d_out"))
    return (*(own.get(row.name, row) for row in lay.rows), *output)


def before_of(found: Cut, rows: tuple[Row, ...], name: str) -> str:
    """What PyTorch computes of the arguments, token by token, before the kernel."""
    plan = found.plan
    inside = {q.name for q in found.before}
    read = {n for q in found.before for n in q.reads()} - inside
    lines = [f"def {name}_before({', '.join(n for n in found.taken if n in read)}):"]
    lines.append('    """What PyTorch computes first, for every token at once."""')
    lines += emit.block(plan, found.before, 4, {})
    pairs = ", ".join(f'"{row.name}": {row.name}' for row in rows if row.name in inside)
    return "\n".join([*lines, f"    return {{{pairs}}}"]) + "\n"


def kernel_of(found: Cut, data: Data, name: str, steps: int) -> str:
    """What the kernels of a form take, as data of the module."""
    lines = [f"{name.upper()} = Kernel(", f"    {name}_forward,"]
    lines += [f"    {name}_backward," if data.gradients is not None else "    None,", "    rows=("]
    for row in data.rows:
        view = "" if row.view == ROWS else f", {row.view!r}"
        lines.append(f"        Row({row.name!r}, {row.sizes!r}{view}),")
    lines += ["    ),", "    states=("]
    lines += [f"        Held({state.name!r}, {state.sizes!r})," for state in data.states]
    lines += [
        "    ),",
        f"    gradients={data.gradients or ()!r},",
        f"    value={data.value!r},",
        f"    split={data.split!r},",
        f"    chunked={data.chunked},",
        f"    steps={steps},",
        f"    before={name}_before,",
        f"    taken={found.taken!r},",
        *(["    lanes=True,"] if data.lanes else []),
        *(["    whole=True,"] if name == "own" else []),
        *_windows(data.windows),
        f"    products={data.products},",
        *_alive(data.alive),
        ")",
    ]
    return "\n".join(lines) + "\n"


def _alive(alive: tuple[tuple[Tiles, ...], ...]) -> list[str]:
    """What lives at once, of the form and of its gradient, a moment a line."""
    lines = ["    alive=("]
    for moments in alive:
        lines += ["        (", *(f"            {moment!r}," for moment in moments), "        ),"]
    return [*lines, "    ),"] if alive else []


def _windows(windows: Windows) -> list[str]:
    if windows.width == 1:
        return []
    return [f"    window={windows.width},", f"    slots={windows.slots},"]
