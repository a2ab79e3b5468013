"""Gradients over kept pairs in two kernels, rows by the chunk and pairs by the block, against the
recurrence's autograd.

Triton interprets, in float64: outputs, states and all gradients, from a carried state, of documents
packed into a row and of padded batches, in blocks that end where no chunk does.
"""

import re
from importlib import import_module
from typing import Any

import pytest
import torch
from conformance import Sizes, error, fused, inputs, run, start
from test_kept_tiles import DEEP, KEPT, LINES, MOVING, OWN
from tiers import first_only

from mnemic import pipeline
from mnemic.codegen import module
from mnemic.compiler.derive import derive_spec
from mnemic.dsl.load import load

TOLERANCE = 1e-11
TOKENS = 45
CARRIED = 21
"""Pairs that are there before, where a state is carried: neither a chunk's rows nor a block's."""

KERNELS = (
    {"mnemic": 1, "name": "a-kernel-of-ones-own", "features": {"kernel": "log(2 + exp(2*s))"},
     "bias": "dot"},
    {"mnemic": 1, "name": "a-decayed-mean-of-ones-own", "weights": "similarity", "bias": "l2",
     "window": "all", "optimizer": "nonparametric", "retention": {"decay": "token"},
     "memory": {"kind": "nonparametric", "similarity": "exp(-sqrt(1 + d2))", "degree": 0}},
)  # fmt: skip
"""Rules that nobody wrote kernels for: a plain sum, and a mean relative to a largest logit."""

SHARED = [*KERNELS, *OWN, *LINES, "gated-softmax", "polysketchformer-4", "local-linear-attention"]
COUPLED = [*MOVING, *DEEP]


def named(spec: Any) -> str:
    return spec if isinstance(spec, str) else str(spec["name"])


def text(spec: Any) -> str:
    """The generated kernels."""
    rule = derive_spec(load(spec))
    return module.fused_kernels(rule, module.plans(rule), {}).text


def compared(
    spec: Any, rows: int, block: int, *, packed: bool = False, padded: bool = False, part: int = 8
) -> dict[str, Any]:  # fmt: skip
    """How far outputs, states and gradients are from the recurrence, by name; and the grids of the
    kernels in the order of their launches, where ``part`` chunks are made of earlier ones at once.
    """
    case = fused(spec)
    package = case.generated.kernels().__name__.removesuffix(".kernels")
    tuned, configuration, streamed, substituted = (
        import_module(f"{package}.support.{name}")
        for name in ("tuned", "configuration", "streamed", "substituted")
    )
    substituted.CHUNKS = part
    given = inputs(case, TOKENS, sizes=Sizes(1 if packed else 2, TOKENS, 2, 3, 5))
    others = inputs(case, TOKENS, sizes=Sizes(3 if packed else 2, TOKENS, 2, 3, 5))
    state, options = start(case, others, CARRIED), {}
    if packed:
        options = {"cu_seqlens": torch.tensor([0, 17, 18, TOKENS])}
    if padded:
        options = {"mask": torch.arange(TOKENS) < torch.tensor([TOKENS, 19])[:, None]}
    expected = dict(run(case, given, "recurrent", state=state, **options).parts())
    grids: list[tuple[str, list[int]]] = []
    begin, answered = streamed.begin, tuned.answered
    cut = configuration.Configuration(rows, block, 4)

    def noted(function: Any, grid: tuple[int, ...], *rest: Any) -> None:
        grids.append((function.__name__, list(grid)))
        begin(function, grid, *rest)

    streamed.begin, tuned.answered = noted, lambda *_: tuned.Answer(cut)
    try:
        found = dict(run(case, given, "triton", state=state, **options).parts())
    finally:
        streamed.begin, tuned.answered = begin, answered
    assert found.keys() == expected.keys()
    errors = {n: error(found[n], x) for n, x in expected.items()}
    before = next(iter(state.values())).shape[2]
    return {"errors": errors, "grids": grids, "before": before}


def wrong(found: dict[str, Any]) -> dict[str, float]:
    return {n: x for n, x in found["errors"].items() if not x <= TOLERANCE}


# -- numbers ---------------------------------------------------------------------------------------


@pytest.mark.some(2)
@pytest.mark.parametrize("spec", SHARED, ids=named)
def test_a_program_a_chunk_and_a_program_a_block(interpreter, spec: Any) -> None:
    """45 rows are three chunks of sixteen; behind 21 pairs, or what a window leaves of them."""
    found = interpreter(compared, spec=spec, rows=16, block=32)
    assert wrong(found) == {}
    assert {"gradient of q", "gradient of k", "gradient of v"} <= found["errors"].keys()
    assert any(name.startswith("gradient of initial") for name in found["errors"])
    assert found["grids"] == [
        ["chunk_forward", [4, 3]],
        ["chunk_backward", [4, 3]],
        ["chunk_backward_pairs", [4, -(-(found["before"] + TOKENS) // 32)]],
    ]


@pytest.mark.some(2)
@pytest.mark.parametrize(("rows", "block"), [(32, 16), (16, 64), (64, 16), (16, 16)])
@pytest.mark.parametrize("spec", [KERNELS[1], OWN[2], "swa"], ids=named)
def test_other_chunks_and_blocks(interpreter, spec: Any, rows: int, block: int) -> None:
    """Chunks shorter and longer than blocks, and a window that ends inside them."""
    found = interpreter(compared, spec=spec, rows=rows, block=block)
    assert wrong(found) == {}


@pytest.mark.some(2)
@pytest.mark.parametrize("how", ["packed", "padded"])
@pytest.mark.parametrize("spec", [*KERNELS, "gated-softmax", OWN[2]], ids=named)
def test_documents_and_padded_rows(interpreter, spec: Any, how: str) -> None:
    found = interpreter(compared, spec=spec, rows=16, block=32, **{how: True})
    assert wrong(found) == {}


# -- what is generated -----------------------------------------------------------------------------


def body(source: str, kernel: str) -> str:
    """The statements of one kernel."""
    found = source[source.index(f"def {kernel}(") :]
    return found[: found.index("\n\n\n")].split('"""')[2]


@pytest.mark.some(3)
@pytest.mark.parametrize("spec", [n for n in KEPT if n not in COUPLED] + SHARED[:-3], ids=named)
def test_where_a_gradient_of_pairs_is_a_plain_sum_it_is_shared_out(spec: Any) -> None:
    source = text(spec)
    rows, pairs = (body(source, f"chunk_backward{name}") for name in ("", "_pairs"))
    assert "    c = chunks - 1 - tl.program_id(1)" in rows
    assert "kept_d_" not in rows
    assert not re.search(r"store_\w+\(grad_", pairs)
    stored = set(re.findall(r"store_\w+\(\s*(handed_\w+),", rows))
    assert stored == set(re.findall(r"load_\w+\(\s*(handed_\w+),", pairs))


@pytest.mark.some(2)
@pytest.mark.parametrize("spec", COUPLED, ids=named)
def test_where_rows_wait_for_later_ones_a_program_has_a_memory(spec: Any) -> None:
    """Pairs that change, and memories beside them."""
    source = text(spec)
    assert "def chunk_backward(" in source
    assert "chunk_backward_pairs" not in source
    assert "tl.program_id(1)" not in source


def test_only_numbers_a_row_are_handed_on_where_tiles_are_made_of_them() -> None:
    """The largest logit, the sum of weights and its gradient; of a plain sum nothing."""
    source = text("gated-softmax")
    assert set(re.findall(r"Held\('(\w+)', \(\)\)", source)) == {"top", "whole", "d_whole"}
    assert "handed_" not in text(KERNELS[0])


# -- compiled without a device ---------------------------------------------------------------------


def compiled(spec: Any, device: str, width: int, *, faulty: bool = False) -> dict[str, list[int]]:
    """Warps, bytes that a thread spills, and products that some versions of Triton get wrong on
    Hopper, of the kernels of a training step; ``faulty``: as if this were such a version."""
    from mnemic.codegen.package import support
    from mnemic.kernels.jobs import Subject
    from mnemic.kernels.limits import target
    from mnemic.kernels.offline import compiling

    generated = pipeline.compile(spec).module
    versions = support(generated, "versions")
    own, versions.faulty = versions.faulty, lambda _: faulty
    try:
        subject = Subject.of(generated, width, torch.bfloat16)
        with compiling(target(device)) as log:
            subject.backward()
    finally:
        versions.faulty = own
    return {k.name: [k.num_warps, k.resources.stack, k.transposed] for k in log.kernels}


@pytest.mark.full
@pytest.mark.parametrize("device", ["sm_90", "sm_80"])
@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("spec", first_only([*KERNELS, "gated-softmax"], KERNELS[1]), ids=named)
def test_four_warps_spill_nothing(compiler, spec: Any, device: str, width: int) -> None:
    found = compiler(compiled, spec=spec, device=device, width=width)
    assert set(found) == {"chunk_forward", "chunk_backward", "chunk_backward_pairs"}
    assert all((warps, stack) == (4, 0) for warps, stack, _ in found.values()), found


@pytest.mark.full
def test_no_product_that_is_compiled_wrongly_is_asked_for(compiler) -> None:
    found = compiler(compiled, spec="gated-softmax", device="sm_90", width=64, faulty=True)
    assert not any(transposed for *_, transposed in found.values()), found
