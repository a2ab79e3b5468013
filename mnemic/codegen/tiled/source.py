"""Plans → the source of ``kernels.py``: the kernels of a rule, and what each takes."""

from dataclasses import dataclass, field, replace

from mnemic.codegen import emit
from mnemic.codegen.adjoint import NoAdjoint, adjoint
from mnemic.codegen.plan import Plan
from mnemic.codegen.tiled import implicit, roots
from mnemic.codegen.tiled.axes import NoTiles
from mnemic.codegen.tiled.backward import backward
from mnemic.codegen.tiled.cut import Cut, cut
from mnemic.codegen.tiled.functions import CHUNK, TOKEN
from mnemic.codegen.tiled.kernel import forward
from mnemic.codegen.tiled.layout import Layout, Row, layout
from mnemic.codegen.tiled.signals import functions
from mnemic.codegen.tiled.windows import ROWS, opened

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
from .support.ops import TINY, norm
'''


FORMS = {
    "chunk": "Chunk by chunk: arguments [B, R, H, ...], states [M, ...].",
    "token": "Token by token: arguments [B, R, H, ...], states [M, ...].",
}
"""The kernels by name, and what each does."""

GRADIENT = "The gradient: arguments, d_out, what stood at each start, d_states -> gradients."


@dataclass(frozen=True)
class Form:
    """A form's plan before and after it was fused."""

    plan: Plan
    plain: Plan


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
        chunked = name == "chunk"
        table = CHUNK if chunked else TOKEN
        plan, windows = opened(form.plan, self.window)
        found = cut(plan, table)
        lay = layout(
            found.plan, self.logarithms, chunked=chunked, output=found.plan.output, windows=windows
        )
        signal = found.plan.signals.get("error") if chunked else None
        parts = self.own(implicit.functions(plan), roots.functions(plan))
        parts += [functions(signal)] if signal else []
        parts.append(forward(lay, self.numbers, f"{name}_forward", FORMS[name]))
        gradients: tuple[str, ...] | None = None
        try:
            plain, _ = opened(form.plain, self.window)
            text, gradients = self.gradient(cut(plain, table).plan, lay, name)
            parts.append(text)
        except NoTiles as reason:
            self.missing[f"{name} gradient"] = str(reason)
        products = any(", PRECISION" in part for part in parts)
        parts.append(before_of(found, lay, name))
        parts.append(kernel_of(found, lay, name, self.steps, gradients, products=products))
        return "\n\n".join(parts)

    def own(self, *sources: str) -> list[str]:
        """Functions of the spec's own that do not stand in the module yet."""
        found = [source for source in sources if source and source not in self.shared]
        self.shared += found
        return found

    def gradient(self, plan: Plan, lay: Layout, name: str) -> tuple[str, tuple[str, ...]]:
        """The kernel of a form's gradient, and the arguments that have one."""
        try:
            back = adjoint(plan)
        except NoAdjoint as reason:
            raise NoTiles(f"no gradient of ops.{reason}") from None
        output = next(n for n in back.plan.arguments() if n.startswith("d_out"))
        under = layout(
            back.plan, self.logarithms, chunked=lay.chunked, output=output, given=back.states,
            like=lay, windows=lay.windows,
        )  # fmt: skip
        under = replace(under, rows=_ordered(lay, under))
        known = {row.name for row in lay.rows}
        gradients = {n: g for n, g in back.gradients.items() if n in known}
        back = replace(back, gradients=gradients)
        return backward(under, back, self.numbers, f"{name}_backward", GRADIENT), tuple(gradients)


def kernels(
    chunk: Form | None, token: Form, logarithms: frozenset[str], steps: int,
    numbers: dict[str, str], window: int = 1,
) -> Kernels:  # fmt: skip
    """The kernels of a rule's forms: ``CHUNK`` and ``TOKEN`` (``None`` where there is none)."""
    parts: list[str] = []
    source = _Source(logarithms, steps, numbers, {}, window)
    for form, name in zip((chunk, token), FORMS, strict=True):
        try:
            if form is None:
                raise NoTiles("no chunk form")
            parts.append(source.form(form, name))
        except NoTiles as reason:
            source.missing[name] = str(reason)
            parts.append(f"{name.upper()} = None  # {reason}\n")
    none = all(name in source.missing for name in FORMS)
    return Kernels("" if none else "\n\n" + "\n\n".join(parts), source.missing)


def _ordered(lay: Layout, under: Layout) -> tuple[Row, ...]:
    """The rows of a gradient's kernel in the order of the form's, whether or not it reads them."""
    own = {row.name: row for row in under.rows}
    output = tuple(row for row in under.rows if row.name.startswith("d_out"))
    return (*(own.get(row.name, row) for row in lay.rows), *output)


def before_of(found: Cut, lay: Layout, name: str) -> str:
    """What PyTorch computes of the arguments, token by token, before the kernel."""
    plan = found.plan
    inside = {q.name for q in found.before}
    read = {n for q in found.before for n in q.reads()} - inside
    lines = [f"def {name}_before({', '.join(n for n in found.taken if n in read)}):"]
    lines.append('    """What PyTorch computes first, for every token at once."""')
    lines += emit.block(plan, found.before, 4, {})
    pairs = ", ".join(f'"{row.name}": {row.name}' for row in lay.rows if row.name in inside)
    return "\n".join([*lines, f"    return {{{pairs}}}"]) + "\n"


def kernel_of(
    found: Cut, lay: Layout, name: str, steps: int, gradients: tuple[str, ...] | None, *,
    products: bool,
) -> str:  # fmt: skip
    """What the kernels of a form take, as data of the module."""
    lines = [f"{name.upper()} = Kernel(", f"    {name}_forward,"]
    lines += [f"    {name}_backward," if gradients is not None else "    None,", "    rows=("]
    for row in lay.rows:
        view = "" if row.view == ROWS else f", {row.view!r}"
        lines.append(f"        Row({row.name!r}, {row.sizes!r}{view}),")
    lines += ["    ),", "    states=("]
    lines += [f"        Held({state.name!r}, {state.sizes!r})," for state in lay.states]
    lines += [
        "    ),",
        f"    gradients={gradients or ()!r},",
        f"    value={lay.value!r},",
        f"    split={lay.split!r},",
        f"    chunked={lay.chunked},",
        f"    steps={steps},",
        f"    before={name}_before,",
        f"    taken={found.taken!r},",
        *_windows(lay),
        f"    products={products},",
        ")",
    ]
    return "\n".join(lines) + "\n"


def _windows(lay: Layout) -> list[str]:
    if lay.windows.width == 1:
        return []
    return [f"    window={lay.windows.width},", f"    slots={lay.windows.slots},"]
