"""Kernels over kept pairs in Triton's interpreter against the recurrence, in float64.

Outputs, final states and every gradient, from a state that earlier tokens left, in pieces: some
that end inside a chunk, and single tokens.
"""

import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch
from conformance import Case, Sizes, beginning, fused, in_pieces, inputs, run, start
from packaged import PATHS, having
from tiers import first_only

from mnemic import pipeline
from mnemic.codegen import module
from mnemic.codegen.streamed.streamed_source import keeps
from mnemic.compiler.derive import derive_spec
from mnemic.dsl.load import load

TOLERANCE = 1e-11
PIECES = (("triton", 21), ("triton", 1), ("triton", 18))
"""Chunks of 16 rows: the first piece ends inside one, the next is a token."""


def local(name: str, similarity: str, **more: Any) -> dict[str, Any]:
    """A weighted mean under a similarity that nothing names."""
    memory = {"kind": "nonparametric", "similarity": similarity, "degree": 0}
    return {"name": name, "weights": "similarity", "bias": "l2", "window": "all",
            "memory": memory, "optimizer": "nonparametric", "mnemic": 1, **more}  # fmt: skip


OWN = (
    local("weights", "1/(1 + d2)"),
    local("logits-windowed", "exp(-sqrt(1 + d2))", window=7),
    local("weights-decayed-windowed", "1/(1 + d2)", window=5, retention={"decay": "token"}),
)


def line(name: str, similarity: str, **more: Any) -> dict[str, Any]:
    """A local linear fit under a similarity that nothing names."""
    memory = {"kind": "nonparametric", "similarity": similarity, "degree": 1,
              "ridge": {"from": "input", "activation": "softplus"}}  # fmt: skip
    solver = {"kind": "conjugate-gradients", "tolerance": 1e-12, "iterations": 40}
    return local(name, similarity, **{
        "memory": memory, "optimizer": {"method": "nonparametric", "solver": solver}, **more,
    })  # fmt: skip


LINES = (
    line("lines-weights-decayed", "1/(1 + d2)", retention={"decay": "token"}),
    line("lines-logits-windowed", "exp(-sqrt(1 + d2))", window=7, retention={"decay": "token"}),
)


MOVING = (
    {"mnemic": 1, "name": "rows-that-decay", "features": "exponential", "bias": "l2",
     "optimizer": {"rate": "token"}, "retention": {"decay": "token"}},
    {"mnemic": 1, "name": "a-window-of-pairs", "features": "exponential", "bias": "dot",
     "window": 3},
    {"mnemic": 1, "name": "an-anchored-window-of-pairs", "features": "exponential", "bias": "l2",
     "window": 3, "optimizer": {"rate": "token", "anchor": {"chunk": 8}},
     "retention": {"decay": "token"}},
    local("keys-that-move", "1/(1 + exp(s))", keys={"carry": "own"},
          optimizer={"method": "nonparametric", "rate": "token"}),
)  # fmt: skip
"""Pairs that change while they are kept."""

DEEP = tuple(
    {"mnemic": 1, "extends": name, "name": name, "retention": {"normalize": "none"}}
    for name in ("deep-transformer", "dot", "swdt")
)
"""A memory beside pairs that change; and windows, whose steps add to the last pairs. A norm at
chunk ends has no kernel."""

TRANSFORMER = DEEP[0]

LAYERED = tuple(
    {"mnemic": 1, "name": name, "features": "exponential", "bias": bias, "memory": memory,
     "retention": {"decay": "token"}, "optimizer": {"rate": "token", "anchor": {"chunk": 8}}}
    for name, bias, memory in (
        ("tanh-layers", "l2",
         {"kind": "mlp", "activation": "tanh", "residual": False, "norm": False}),
        ("normed-layers", "l2", {"kind": "mlp", "residual": True, "norm": True}),
        ("gated-layers", "l2", {"kind": "glu", "residual": False, "norm": False}),
        ("three-layers", "dot", {"kind": "mlp", "depth": 3, "activation": "tanh", "norm": False}),
    )
)  # fmt: skip
"""Layers of one's own beside pairs: errors that see the prediction take sweeps that depend on
sweeps."""

SLOTS = {"mnemic": 1, "name": "a-residual-window", "features": "exponential", "bias": "l2",
         "window": 3, "optimizer": {"rate": "token"}}  # fmt: skip


def arguments(case: Case, tokens: int, key: int = 3, heads: int = 1) -> dict[str, torch.Tensor]:
    value = key if case.signature.square else 5
    return inputs(case, tokens, sizes=Sizes(1, tokens, heads, key, value))


def difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    if found.shape != expected.shape:
        return float("inf")
    if not found.numel():
        return 0.0
    return float((found - expected).abs().max() / (1 + expected.abs().max()))


def apart(spec: Any) -> dict[str, float]:
    """What differs from the recurrence, by name, with all gradients."""
    case = fused(spec)
    given = arguments(case, 40, heads=2)
    state = start(case, given)
    expected = run(case, given, "recurrent", state=state)
    found = run(case, given, PIECES, state=state, chunk_size=16)
    parts = dict(found.parts())
    return {name: difference(parts[name], x) for name, x in expected.parts()}


def apart_in_one(spec: Any) -> dict[str, float]:
    """The same of a whole sequence: five chunks, whose starts are kept by three."""
    case = fused(spec)
    given = arguments(case, 70)
    expected = run(case, given, "recurrent")
    parts = dict(run(case, given, "triton", chunk_size=16).parts())
    return {name: difference(parts[name], x) for name, x in expected.parts()}


def apart_in_cuts(
    spec: Any, blocks: int, *, varied: bool = False, key: int = 3
) -> dict[str, float]:  # fmt: skip
    """Of a whole sequence in chunks of 16 rows against blocks of so many pairs (or of channels of
    memories beside them); ``varied``: more rows where there are more, as if only some lengths had
    been measured."""
    from importlib import import_module

    case = fused(spec)
    package = case.generated.kernels().__name__.removesuffix(".kernels")
    tuned, configuration = (
        import_module(f"{package}.support.{name}") for name in ("tuned", "configuration")
    )

    def answered(question: Any, _: Any) -> Any:
        rows = 32 if varied and question.length > 32 else 16
        return tuned.Answer(configuration.Configuration(rows, blocks, 8))

    given = arguments(case, 70, key)
    expected = run(case, given, "recurrent")
    before, tuned.answered = tuned.answered, answered
    try:
        parts = dict(run(case, given, "triton").parts())
    finally:
        tuned.answered = before
    return {name: difference(parts[name], x) for name, x in expected.parts()}


def apart_without_gradient(spec: Any) -> dict[str, float]:
    case = fused(spec)
    given = arguments(case, 40)
    state = start(case, given)
    options = {"params": beginning(case, given["k"], given["v"])}
    with torch.no_grad():
        out, end = in_pieces(case, given, "recurrent", state, **options)
        fast, last = in_pieces(case, given, PIECES, state, **options)
    return {"out": difference(fast, out)} | {n: difference(last[n], x) for n, x in end.items()}


def apart_at_the_start(spec: str) -> dict[str, float]:
    """Of a document that is shorter than a window, and one that goes on behind it."""
    case, found = fused(spec), {}
    for pieces in (("triton",), (("triton", 2), ("triton", 1), ("triton", 3))):
        given = arguments(case, 2 if len(pieces) == 1 else 6)
        expected = run(case, given, "recurrent")
        how = pieces[0] if len(pieces) == 1 else pieces
        parts = dict(run(case, given, how).parts())
        found |= {f"{n} {len(pieces)}": difference(parts[n], x) for n, x in expected.parts()}
    return found


def fallen_back(spec: Any) -> dict[str, Any]:
    """A gradient that no kernel gives: what is announced, and the numbers."""
    case = fused(spec)
    kernels = case.generated.kernels()
    kernels.CHUNK = replace(kernels.CHUNK, backward=None)
    given = arguments(case, 20)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = [run(case, given, "triton") for _ in range(2)]
    expected = run(case, given, "recurrent")
    parts = dict(found[1].parts())
    return {
        "told": [str(w.message) for w in told],
        "error": max(difference(parts[name], x) for name, x in expected.parts()),
    }


def missing(name: Any) -> dict[str, str]:
    """The kernels that a spec does not have, and why."""
    rule = derive_spec(load(name))
    return module.fused_kernels(rule, module.plans(rule), {}).missing


KEPT = [
    name for name in having("chunk, with gradient") if PATHS[name].parent.name in
    ("kernelised", "nonparametric")
]  # fmt: skip
"""The specs over kept pairs with kernels of chunks, backward too."""


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("softmax-attention", "PyTorch's own attention is its kernel"),
        (
            "kernel-regression",
            "a Cholesky factor of all kept pairs, a state of n² numbers whose triangular solves "
            "go through it row by row: PyTorch has the kernels",
        ),
        (
            SLOTS,
            "a window over kept pairs whose errors differ from step to step, so that every step "
            "has rows of its own for each of its pairs",
        ),
    ],
    ids=str,
)
def test_why_there_is_no_kernel(name: Any, why: str) -> None:
    assert missing(name)["chunk"] == why


def test_kept_pairs_are_told_from_memories() -> None:
    plans = module.plans(derive_spec(load("deltaformer")))
    assert plans.chunk is not None
    assert keeps(plans.chunk)
    assert not keeps(module.plans(derive_spec(load("gla"))).recurrent)


@pytest.mark.some(2)
@pytest.mark.parametrize(
    "kept", first_only(KEPT, "deltaformer", "gated-softmax", "local-linear-attention", "swa")
)
def test_pieces_of_a_spec(interpreter, kept: str) -> None:
    assert "chunk gradient" not in missing(kept)
    found = interpreter(apart, spec=kept)
    assert found
    assert max(found.values()) <= TOLERANCE, found


@pytest.mark.parametrize("spec", first_only(OWN, OWN[2]), ids=lambda s: s["name"])
def test_pieces_of_a_similarity_of_ones_own(interpreter, spec: Any) -> None:
    found = interpreter(apart, spec=spec)
    assert max(found.values()) <= TOLERANCE, found


@pytest.mark.full
@pytest.mark.parametrize("spec", first_only(LINES, LINES[1]), ids=lambda s: s["name"])
def test_pieces_of_a_line_of_ones_own(interpreter, spec: Any) -> None:
    """Conjugate gradients around the passes, and once more for the gradient."""
    found = interpreter(apart, spec=spec)
    assert max(found.values()) <= TOLERANCE, found


def apart_with_equal_keys(spec: str) -> dict[str, float]:
    """Several largest weights: a gradient is shared by all of them."""
    case = fused(spec)
    given = arguments(case, 20)
    given["k"][:, 5::3] = given["k"][:, 4:5]
    expected = run(case, given, "recurrent")
    parts = dict(run(case, given, "triton", chunk_size=16).parts())
    return {name: difference(parts[name], x) for name, x in expected.parts()}


def test_equal_keys_share_the_largest_weight(interpreter) -> None:
    found = interpreter(apart_with_equal_keys, spec="local-linear-attention")
    assert max(found.values()) <= TOLERANCE, found


def test_exact_products_take_nothing_rounded() -> None:
    rule = derive_spec(load("path"))
    text = module.fused_kernels(rule, module.plans(rule), {}).text
    exact = [line for line in text.splitlines() if "tiles.exact(" in line]
    assert any("tl.trans(" in line for line in exact)
    assert not any("tiles.turned(" in line for line in exact)


def test_a_factored_system_a_row_has_no_kernel() -> None:
    spec = {**LINES[0], "optimizer": "nonparametric"}
    rule = derive_spec(load(spec))
    found = module.fused_kernels(rule, module.plans(rule), {}).missing
    assert found["chunk"] == (
        "a system of every row that is factored (conjugate gradients would have a kernel)"
    )


@pytest.mark.some(1)
@pytest.mark.parametrize("spec", first_only(MOVING, *MOVING[2:]), ids=lambda s: s["name"])
def test_pairs_that_change_while_they_are_kept(interpreter, spec: Any) -> None:
    """Rows that decay, keys that move: each chunk's gradient has the pairs of its start."""
    for function in (apart, apart_in_one):
        found = interpreter(function, spec=spec)
        assert max(found.values()) <= TOLERANCE, found


@pytest.mark.parametrize("spec", ["deltaformer", OWN[2], MOVING[3]], ids=str)
def test_narrow_blocks_of_pairs(interpreter, spec: Any) -> None:
    found = interpreter(apart_in_cuts, spec=spec, blocks=16, varied=False)
    assert max(found.values()) <= TOLERANCE, found


@pytest.mark.parametrize("spec", [MOVING[0], MOVING[3]], ids=lambda s: s["name"])
def test_a_gradient_of_pairs_that_change_has_one_cut(interpreter, spec: Any) -> None:
    """Whatever cut its chunks would have by themselves: each is one launch."""
    found = interpreter(apart_in_cuts, spec=spec, blocks=32, varied=True)
    assert max(found.values()) <= TOLERANCE, found


@pytest.mark.parametrize("spec", first_only(DEEP, TRANSFORMER), ids=str)
def test_memories_and_windows_beside_pairs(interpreter, spec: Any) -> None:
    for function in (apart, apart_in_one, apart_at_the_start):
        found = interpreter(function, spec=spec)
        assert max(found.values()) <= TOLERANCE, found


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "spec", first_only([*DEEP, *LAYERED], TRANSFORMER, DEEP[1], LAYERED[2]), ids=str
)
def test_memories_are_gone_along_by_blocks(interpreter, spec: Any) -> None:
    """Twenty hidden channels in blocks of sixteen, from the second on with channels that are not
    there."""
    found = interpreter(apart_in_cuts, spec=spec, blocks=16, key=5)
    assert max(found.values()) <= TOLERANCE, found


def swept(spec: Any) -> str:
    rule = derive_spec(load(spec))
    return module.fused_kernels(rule, module.plans(rule), {}).text


@pytest.mark.parametrize("spec", [*DEEP, *LAYERED], ids=str)
def test_nothing_of_the_hidden_axis_lives_outside_its_blocks(spec: Any) -> None:
    """What has an entry a hidden channel is named inside loops along them alone."""
    text = swept(spec)
    assert "    along='DK2'," in text
    depth = 0
    for line in text[: text.index("def chunk_before")].splitlines():
        indent = len(line) - len(line.lstrip())
        if line.strip():
            depth = depth if indent > depth else 0
        if "for low_DK2 in" in line:
            depth = depth or indent
        elif "at_DK2" in line or "BDK2)" in line:
            assert depth, line


def test_pairs_alone_have_nothing_to_go_along() -> None:
    text = swept("deltaformer")
    assert "along=" not in text
    assert "low_" not in text


def spilled(spec: Any, name: str) -> dict[str, list[int]]:
    """Bytes of a thread's stack in the kernels of a training step at 64 channels."""
    from mnemic.kernels.jobs import Subject
    from mnemic.kernels.limits import target
    from mnemic.kernels.offline import compiling

    found: dict[str, list[int]] = {}
    subject = Subject.of(pipeline.compile(spec).module, 64, torch.bfloat16)
    with compiling(target(name)) as log:
        subject.backward()
    for kernel in log.kernels:
        found.setdefault(kernel.name, []).append(kernel.resources.stack + kernel.resources.spill)
    return found


@pytest.mark.full
@pytest.mark.parametrize("name", first_only(["sm_90", "sm_80"], "sm_90"))
def test_a_memory_beside_pairs_spills_nothing(compiler, name: str) -> None:
    found = compiler(spilled, spec=TRANSFORMER, name=name)
    assert found.keys() == {"chunk_forward", "chunk_backward"}
    assert not any(any(stacks) for stacks in found.values()), found


def test_pieces_without_a_gradient(interpreter) -> None:
    found = interpreter(apart_without_gradient, spec=TRANSFORMER)
    assert max(found.values()) <= TOLERANCE, found


def test_a_gradient_without_a_kernel_falls_back(interpreter) -> None:
    found = interpreter(fallen_back, spec=TRANSFORMER)
    assert found["error"] <= TOLERANCE
    (told,) = found["told"]
    assert told == (
        "deep-transformer: its kernel has no gradient; PyTorch's chunk form runs instead"
    )


def refused(width: int) -> list[str]:
    """What is announced where a memory does not fit, in 16 bits."""
    case = fused(TRANSFORMER)
    given = inputs(case, 20, sizes=Sizes(1, 20, 1, width, width), dtype=torch.bfloat16)
    params = {
        "W1": torch.zeros(1, width, 4 * width, dtype=torch.bfloat16),
    }
    with warnings.catch_warnings(record=True) as told, torch.no_grad():
        warnings.simplefilter("always")
        out, _ = case.operator(**given, form="triton", params=params)
    assert out.dtype == torch.bfloat16
    return [str(w.message) for w in told]


def test_what_does_not_fit_is_announced(interpreter) -> None:
    (told,) = interpreter(refused, width=1024)
    assert told.startswith(
        "deep-transformer: its kernel does not fit on chip at sizes of 1024 and 4096: a thread "
    )
    assert told.endswith("numbers, and 240 are the limit; PyTorch's chunk form runs instead")
