"""What is held of a drawn spec's fused kernels: interpreted, against the recurrence in float64.

From a fresh start at a few tokens; then over several chunks from a carried state, through which a
gradient flows in and out; and in one way more of several, which a spec's own text draws: cut in
pieces that hand their states on, packed documents, masked tokens, chunks of a few rows, several
query heads a key's, or the form's other kernels.
"""

import importlib
import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from random import Random
from typing import Any

from fuzz_layers import WILD

Spec = dict[str, Any]
Way = Callable[[], AbstractContextManager[Any]]

EXACT = 1e-8
"""How far kernels may be off, relative to 1 + the largest entry."""

FRESH = (3, 21)
"""Tokens from a fresh start."""
LENGTHS = {True: (1, 17, 32, 40, 70), False: (1, 5, 12)}
"""Tokens from a carried state, with a kernel of chunks or of tokens alone."""
ROWS, FEW = 16, 4
"""Rows a chunk: of several chunks, and of so many that parts of eight chunks have an end."""


def kernels(spec: Spec) -> str:
    """Compare fused kernels with the recurrence; ``wild`` where a rule leaves its bound."""
    import tempfile

    from conformance import fused

    with tempfile.TemporaryDirectory() as folder:
        case = fused(spec, f"{folder}/drawn")
        if "triton" not in case.generated.forms:
            return "no kernel"
        for tokens in FRESH:
            if not _agrees(case, tokens, "triton"):
                return "wild"
        random = Random(json.dumps(spec, sort_keys=True))
        for trial in (_carried, random.choice(_others(case))):
            if not trial(case, random):
                return "wild"
    return "kernels agree"


def _agrees(
    case: Any, tokens: int, pieces: Any, *, carried: bool = False, heads: int = 2, groups: int = 1,
    batch: int = 1, way: Way = nullcontext, told: Spec | None = None, **options: Any,
) -> bool:  # fmt: skip
    """Compare one run, with every gradient, and from a state without any, for which kernels are
    cut otherwise; return whether that had a meaning."""
    import torch
    from conformance import Result, Sizes, agree, in_pieces, inputs, run, start

    width = 5 if case.signature.square else 6
    arguments = inputs(case, tokens, sizes=Sizes(batch, tokens, heads, 5, width, groups))
    told = dict(told or {}) | ({"state": start(case, arguments)} if carried else {})
    expected = run(case, arguments, "recurrent", **told)
    if not all(float(x.abs().max()) < WILD for _, x in expected.parts() if x.numel()):
        return False
    assert all(torch.isfinite(x).all() for _, x in expected.parts())
    with way():
        agree(run(case, arguments, pieces, **told, **options), expected, EXACT)
        if carried:
            state = told.pop("state")
            with torch.no_grad():
                ends = in_pieces(case, arguments, pieces, state, **told, **options)
            agree(Result(*ends, {}), Result(expected.out, expected.states, {}), EXACT)
    return True


# -- trials ----------------------------------------------------------------------------------

Trial = Callable[[Any, Random], bool]


def _length(case: Any, random: Random, least: int = 1) -> int:
    """A drawn number of tokens, as far as the rule's positions reach behind a carried state."""
    lengths = LENGTHS[case.generated.kernels().CHUNK is not None]
    drawn = random.choice([n for n in lengths if n >= least])
    return int(case.signature.at_most(drawn + 5)) - 5


def _carried(case: Any, random: Random) -> bool:
    """Over several chunks from a state."""
    return _agrees(case, _length(case, random), "triton", carried=True, chunk_size=ROWS)


def _pieces(case: Any, random: Random) -> bool:
    """In calls that hand their states on, one of them a token's."""
    tokens = _length(case, random, 5)
    first = random.randrange(1, tokens - 1)
    cut = (("triton", first), ("triton", 1), ("triton", tokens - first - 1))
    return _agrees(case, tokens, cut, carried=True, chunk_size=ROWS)


def _documents(case: Any, random: Random) -> bool:
    """Packed, one of them empty."""
    import torch

    tokens = _length(case, random, 5)
    ends = sorted((0, tokens, *random.choices(range(tokens), k=3)))
    told = {"cu_seqlens": torch.tensor([*ends, tokens])}
    return _agrees(case, tokens, "triton", told=told, chunk_size=ROWS)


def _masked(case: Any, random: Random) -> bool:
    """With tokens that leave a carried state alone, in two rows."""
    import torch

    tokens = _length(case, random, 5)
    live = [[random.random() < 0.8 for _ in range(tokens)] for _ in range(2)]
    told = {"mask": torch.tensor(live)}
    return _agrees(
        case, tokens, "triton", carried=True, batch=2, heads=1, told=told, chunk_size=ROWS
    )


def _few_rows(case: Any, random: Random) -> bool:
    """In chunks of a few rows, so many that a piece of them ends."""
    fused = _fused(case)
    held, fused.PIECE = fused.PIECE, {True: 2, False: 3}
    try:
        tokens = _length(case, random, 5)
        return _agrees(case, tokens, "triton", carried=True, chunk_size=FEW)
    finally:
        fused.PIECE = held


def _grouped(case: Any, random: Random) -> bool:
    """With two query heads for each key's."""
    return _agrees(case, _length(case, random), "triton", groups=2, chunk_size=ROWS)


def _swept(case: Any, random: Random) -> bool:
    """Along memories block by block."""
    return _so(case, random, lambda: _fused(case).sweeping(always=True))


def _several(case: Any, random: Random) -> bool:
    """In several kernels."""
    return _so(case, random, lambda: _fused(case).in_several(always=True))


def _lean(case: Any, random: Random) -> bool:
    """With a gradient as lean as it may be."""
    cut = {"lean": case.generated.kernels().CHUNK.leans, "rows": ROWS, "block": 16, "stages": 1}
    return _so(case, random, lambda: _fused(case).recut(**cut))


def _so(case: Any, random: Random, way: Way) -> bool:
    tokens = _length(case, random, 17 if case.generated.kernels().CHUNK is not None else 5)
    return _agrees(case, tokens, "triton", carried=True, way=way, chunk_size=ROWS)


def _others(case: Any) -> list[Trial]:
    """The ways that a rule's kernels have."""
    module = case.generated.kernels()
    forms = [form for form in (module.CHUNK, module.TOKEN) if form is not None]
    found: list[Trial] = [_pieces, _documents, _masked, _few_rows, _grouped]
    found += [_swept] * any(getattr(form, "swept", None) is not None for form in forms)
    found += [_several] * any(getattr(form, "divided", None) is not None for form in forms)
    found += [_lean] * (getattr(module.CHUNK, "leans", 0) > 0)
    return found


def _fused(case: Any) -> Any:
    """The compiled folder's own copy of what launches kernels."""
    package = case.generated.kernels().__name__.removesuffix(".kernels")
    return importlib.import_module(f"{package}.support.fused")
