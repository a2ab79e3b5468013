"""One block for every memory, so that specs differ in their rules alone."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final

from mnemic.codegen.support.block import Block as Sizer
from mnemic.dsl import combinations
from mnemic.dsl.block import Block
from mnemic.dsl.documents import Layers
from mnemic.dsl.load import load
from mnemic.dsl.memory import Memory, Nonparametric
from mnemic.dsl.spec import Spec
from mnemic.dsl.texts import texts
from mnemic.errors import InvalidSpec, Issue
from mnemic.search.space.choices import parse
from mnemic.search.space.contradictions import contradictions
from mnemic.search.space.known import chosen
from mnemic.search.space.space import Space

OWN: Final = ("scale",)
"""Entries that stay a spec's own where the shared block does not write them. ``scale`` multiplies
the query: it is the temperature of an exponential kernel, so a part of how a memory is read."""


def with_block(space: Space, source: str) -> Space:
    """Return the space with its block replaced by that of another spec.

    Args:
        space: a space whose block has no choices.
        source: a YAML file, or the name of a packaged spec; only its entry ``block`` is used.

    Raises:
        InvalidSpec: ``source`` is not a spec, or the space's block has choices.
        UsageError: there is no such file or name.
    """
    block = load(source).block
    written = {str(key): node for key, node in space.root.items}
    if chosen(written.get("block")):
        where = Layers((space.document,)).where(("block",))
        message = f"the space chooses here, and --block {source} fixes the block of every point"
        raise InvalidSpec([Issue(message, where, hint="leave out --block, or the choices")])
    document = replace(
        space.document,
        data={**space.document.data, "block": _written(block)},
        positions=_without(space.document.positions),
        key_positions=_without(space.document.key_positions),
    )
    spec = {key: value for key, value in document.data.items() if key != "search"}
    root, wrong = parse(document, spec)
    assert not wrong  # the space has been read with the same choices
    return replace(space, document=document, root=root)


def by_hand(space: Space, name: str) -> Spec:
    """Load a spec by name or path, in the space's block; see `fitted`."""
    return fitted(space, load(name))


def fitted(space: Space, spec: Spec) -> Spec:
    """Return the spec in the space's block, if the space has one without choices.

    Raises:
        InvalidSpec: the spec and the block contradict each other.
    """
    items = {str(key): node for key, node in space.root.items}
    if "block" not in items or chosen(items["block"]):
        return spec
    block = load({"name": "block", "block": space.document.data["block"]}).block
    return in_block(spec, block, space.settings.model.dim)


def in_block(spec: Spec, block: Block, dim: int) -> Spec:
    """Return the spec with another block around it; `OWN` entries that it leaves out are kept.

    A similarity in s = k·q/√d_k is meant for keys and queries whose entries have variance one.
    If the new block makes them unit vectors and the spec's own block did not, s would lie within
    ±1/√d_k and all pairs would weigh nearly the same. So the spec gets the scale √d_k, which
    restores the variance of s.

    Args:
        dim: channels of the model, which determine those of the heads.

    Raises:
        InvalidSpec: the spec and the block contradict each other.
    """
    own = {name: getattr(spec.block, name) for name in OWN if name not in block.model_fields_set}
    changed = {"block": block.model_copy(update=own), "memory": _scaled(spec, block, dim)}
    found = spec.model_copy(update=changed)
    issues = [*combinations.issues(found), *contradictions(found)]
    if issues:
        raise InvalidSpec([replace(i, where=f"{spec.name} {i.where}".strip()) for i in issues])
    return found


def _scaled(spec: Spec, block: Block, dim: int) -> Memory:
    """Return the memory, with the scale that unit vectors need where s would lose its variance."""
    memory = spec.memory
    shortened = block.qk_norm == "l2" and spec.block.qk_norm == "none"
    if not (isinstance(memory, Nonparametric) and memory.scale is None and shortened):
        return memory
    if not any(text.where == "memory.similarity" and "s" in text.names for text in texts(spec)):
        return memory
    told = Sizer(block.heads, block.key_dim, block.value_dim)
    width = told.sizes(dim, square=False).key_dim
    return memory.model_copy(update={"scale": math.sqrt(width)})


def _written(block: Block) -> dict[str, Any]:
    """Return every entry with defaults, so that none is inherited from a base of the space."""
    data: dict[str, Any] = block.model_dump(mode="json", by_alias=True)
    return {k: v for k, v in data.items() if k not in OWN or k in block.model_fields_set}


def _without(positions: Any) -> dict[Any, Any]:
    """Return the positions outside the block, which is no longer part of the space's text."""
    return {place: at for place, at in positions.items() if place[:1] != ("block",)}
