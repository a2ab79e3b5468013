"""Rules about blocks: the attention of a hybrid, and the options that belong to it."""

from collections.abc import Iterator

from mnemic.dsl.rules.rule import Rule
from mnemic.dsl.spec import Spec
from mnemic.errors import Issue


def attention_beside(spec: Spec) -> Iterator[Issue]:
    """Refuse windows, persistent tokens and positions of attention without a hybrid block."""
    block = spec.block
    if block.hybrid != "none":
        return
    told = {
        "attention_window": block.attention_window is not None,
        "persistent": block.persistent > 0,
        "rotary": block.rotary == "attention",
    }
    for field in (name for name, given in told.items() if given):
        reason = "there is no attention beside the memory"
        yield Issue(reason, f"block.{field}", hint="choose a hybrid, or leave it out")


def segments_of_context(spec: Spec) -> Iterator[Issue]:
    """Require a segment for a memory that is read as context, and refuse it for any other."""
    block = spec.block
    if block.hybrid != "context" and block.segment is not None:
        reason = "segments belong to the memory as context"
        yield Issue(reason, "block.segment", hint="write hybrid: context, or leave it out")
    if block.hybrid == "context" and block.segment is None:
        reason = "a memory as context is read at the start of each segment, which needs a size"
        yield Issue(reason, "block.segment", hint="write segment: 64")


def window_of_attention(spec: Spec) -> Iterator[Issue]:
    """Require a window of attention beside or after a memory; refuse it in a context."""
    block = spec.block
    if block.hybrid in ("gate", "layer") and block.attention_window is None:
        reason = f"the attention of hybrid: {block.hybrid} slides over a window, which needs a size"
        yield Issue(reason, "block.attention_window", hint="write attention_window: 64")
    if block.hybrid == "context" and block.attention_window is not None:
        reason = "with the memory as context, attention sees its own segment"
        yield Issue(reason, "block.attention_window", hint="leave it out, and set segment")


def whole_groups(spec: Spec) -> Iterator[Issue]:
    """Refuse a number of heads that is not divisible by that of groups, where both are given."""
    heads, groups = spec.block.heads, spec.block.groups
    if heads is not None and heads % groups:
        reason = f"{groups} query heads share a key head, so heads must be a multiple of it"
        yield Issue(reason, "block.heads", str(heads))


RULES: tuple[Rule, ...] = (
    attention_beside, segments_of_context, window_of_attention, whole_groups,
)  # fmt: skip
