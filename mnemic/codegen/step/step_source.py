"""The source of ``step.py``: the kernel of a layer's token and what it takes, or why none."""

from dataclasses import dataclass, replace

from mnemic.codegen.plan import Plan
from mnemic.codegen.step import swept_step
from mnemic.codegen.step.loads import Channels
from mnemic.codegen.step.prologue import Whole, whole
from mnemic.codegen.step.step_kernel import Drawn, check, kernel
from mnemic.codegen.support.signature import Signature
from mnemic.codegen.tiled import implicit_tile, roots
from mnemic.codegen.tiled.axes import NoTiles
from mnemic.codegen.tiled.data import held_of, listed
from mnemic.codegen.tiled.layout import Held, Layout, layout
from mnemic.codegen.tiled.windows import Windows
from mnemic.compiler.rule import Rule

HEADER = '''"""{title}: one token of the layer as one kernel.

{text}
Written by mnemic {version} from the spec {name} ({hash}). Tiles hold one memory [V, K] as [K, V];
vectors are of one head. The projections' outputs come in, the convolution, activations, norms,
positions, coefficients, the update, the read-out, its norm and its gate follow.
"""
# ruff: noqa
import math

import torch
import triton
import triton.language as tl

from .support import ops, tiles
from .support.step import Held, Step

'''

IMPORTED = '''
    @staticmethod
    def step_kernel():
        """The kernel of one token, imported when first asked for: it needs Triton."""
        from .step import STEP
        return STEP'''

DOC = "One token: projections [B, channels], window [B, taps - 1, channels], states [B, H, ...]."


@dataclass(frozen=True)
class Stepped:
    """The source of a layer's step, or why it has none."""

    text: str = ""
    missing: str = ""

    @property
    def attribute(self) -> str:
        """The lines of the layer that import its step, or say why it has none."""
        return f"    no_step = {self.missing!r}" if self.missing else IMPORTED


def stepped(
    rule: Rule, token: Plan, signature: Signature, numbers: dict[str, str]
) -> Stepped:  # fmt: skip
    """Return the kernel of a layer's token, or why it has none."""
    try:
        return Stepped(_source(rule, token, signature, numbers))
    except NoTiles as reason:
        return Stepped(missing=str(reason))


def _source(rule: Rule, token: Plan, signature: Signature, numbers: dict[str, str]) -> str:
    block = rule.problem.spec.block
    found = whole(rule, token, signature)
    drawn = Drawn(_laid(found, signature.window), found, block.convolution, block.groups, numbers)
    check(drawn)
    parts = [x for x in (implicit_tile.functions(found.plan), roots.functions(found.plan)) if x]
    parts.append(kernel(drawn, DOC))
    products = ", PRECISION" in parts[-1]
    twin = swept_step.stepped(drawn, DOC)
    if twin:
        products_too = ", PRECISION" in twin.text
        parts += [twin.text, _data(drawn, products=products_too, along=twin)]
    return "\n\n".join([*parts, _data(drawn, products=products, twin=bool(twin))])


def _laid(found: Whole, window: int) -> Layout:
    """Lay out everything; values may be cut where nothing before the norm mixes them."""
    plan, end = found.plan, found.plan.output
    plan.output = found.read
    views = Windows(window)
    split = layout(plan, frozenset(), chunked=False, output=found.read, windows=views).split
    plan.output = end
    lay = layout(plan, frozenset(), chunked=False, output=end, windows=views)
    return replace(lay, split=split)


def _data(
    drawn: Drawn, *, products: bool, along: swept_step.Stepped | None = None, twin: bool = False
) -> str:  # fmt: skip
    """Write what the kernel takes (or its twin ``along`` memories), as data of the module."""
    lay = drawn.lay
    lines = [
        f"{'SWEPT' if along else 'STEP'} = Step(",
        f"    {'step_swept_kernel' if along else 'step_kernel'},",
        f"    raws={drawn.raws!r},",
        *listed("states", map(held_of, lay.states)),
        f"    sizes={_sizes(drawn)!r},",
        f"    vectors={tuple(drawn.steps)!r},",
        f"    value={lay.sizes(drawn.whole.read)[-1]!r},",
        f"    split={lay.split!r},",
        f"    taps={drawn.taps},",
        f"    finishes={lay.plan.output != drawn.whole.read},",
        f"    gated={drawn.reads('rows_gate')},",
        f"    normed={drawn.reads('norm_weight')},",
        f"    places={drawn.places},",
        f"    numbered={drawn.reads('number')},",
        f"    products={products},",
        *_tails(drawn),
        *([f"    along={along.along!r},", f"    scratch={along.scratch!r},"] if along else []),
        *(["    swept=SWEPT,"] if twin else []),
        ")",
    ]
    return "\n".join(lines) + "\n"


def _tails(drawn: Drawn) -> list[str]:
    """Write what a window of tokens carries, where there is one."""
    tails = drawn.whole.tails
    if not tails:
        return []
    held = [Held(name, drawn.lay.sizes(window)) for name, window in tails.items()]
    return [*listed("tails", map(held_of, held)), f"    window={drawn.lay.windows.width},"]


def _sizes(drawn: Drawn) -> dict[str, str]:
    """Map a size's name to the vector whose channels have it (those of states tell the rest)."""
    found = {}
    for name, load in drawn.whole.loads.items():
        if isinstance(load, Channels) and name in drawn.lay.plan.graph:
            found[drawn.lay.sizes(name)[-1]] = "value" if load.vector == "v" else "key"
    return found
