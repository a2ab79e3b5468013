"""Plans → the source of ``kernels.py``: the kernels of a rule, and what each takes."""

from dataclasses import dataclass

from mnemic.codegen import emit
from mnemic.codegen.plan import Given, Plan
from mnemic.codegen.tiled.axes import NoTiles
from mnemic.codegen.tiled.kernel import forward
from mnemic.codegen.tiled.layout import Layout, layout

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


@dataclass(frozen=True)
class Kernels:
    """The source of the kernels, or why a form has none."""

    text: str
    missing: dict[str, str]


def kernels(
    chunk: Plan | None, recurrent: Plan, logarithms: frozenset[str], steps: int,
    numbers: dict[str, str],
) -> Kernels:  # fmt: skip
    """The kernels of a rule's forms: ``CHUNK`` and ``TOKEN`` (``None`` where there is none)."""
    parts, missing = [], {}
    for plan, (name, doc) in zip((chunk, recurrent), FORMS.items(), strict=True):
        try:
            if plan is None:
                raise NoTiles("no chunk form")
            lay = layout(plan, logarithms, chunked=name == "chunk")
            source = forward(lay, numbers, f"{name}_forward", doc)
            parts.append(f"{_before(lay, name, numbers)}\n\n{source}\n\n{_kernel(lay, name, steps)}")
        except NoTiles as reason:
            missing[name] = str(reason)
            parts.append(f"{name.upper()} = None  # {reason}\n")
    text = "\n\n" + "\n\n".join(parts) if len(missing) < len(FORMS) else ""
    return Kernels(text, missing)


def _before(lay: Layout, name: str, numbers: dict[str, str]) -> str:
    """What PyTorch computes of the arguments, token by token, before the kernel."""
    plan = lay.plan
    read = [n for q in lay.before for n in q.reads() if isinstance(plan[n].op, Given)]
    taken = [n for n in plan.arguments() if n in read]
    lines = [f"def {name}_before({', '.join(taken)}):"]
    lines.append('    """What PyTorch computes first, for every token at once."""')
    lines += emit.block(plan, lay.before, 4, numbers)
    wanted = {r.name for r in lay.rows} & {q.name for q in lay.before}
    pairs = ", ".join(f'"{n}": {n}' for n in sorted(wanted))
    return "\n".join([*lines, f"    return {{{pairs}}}"])


def _kernel(lay: Layout, name: str, steps: int) -> str:
    outside = {q.name for q in lay.before}
    read = {r.name for r in lay.rows} | {n for q in lay.before for n in q.reads()}
    taken = tuple(n for n in lay.plan.arguments() if n in read - outside)
    lines = [f"{name.upper()} = Kernel(", f"    {name}_forward,", "    rows=("]
    lines += [f"        Row({row.name!r}, {row.sizes!r})," for row in lay.rows]
    lines += ["    ),", "    states=("]
    lines += [f"        Held({state.name!r}, {state.sizes!r})," for state in lay.states]
    lines += [
        "    ),",
        f"    value={lay.sizes(lay.plan.output)[-1]!r},",
        f"    split={lay.split!r},",
        f"    chunked={lay.chunked},",
        f"    steps={steps},",
        f"    before={name}_before,",
        f"    taken={taken!r},",
        ")",
    ]
    return "\n".join(lines) + "\n"
