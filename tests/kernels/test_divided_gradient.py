"""Gradients in several kernels, divided at what the gradients of states reach, against the
recurrence's autograd.

Triton interprets, in float64: outputs, states and all gradients, from a carried state, in chunks of
eight rows, two blocks of values of the scan and of what is parallel; documents packed into a row
(one shorter than any window), and padded batches. Of windows the gradients of the rows that stand
before the first are those of states.
"""

import re

import pytest
from test_divided import SPECS, body, differences, text, wrong

from mnemic import pipeline

DIVIDED = tuple(SPECS)

WINDOWED = tuple(name for name in DIVIDED if "window" in name)
"""Chunks add to each other's rows."""

CHEAP = ("additive", "affine", "additive, a window of several chunks from an anchor")
"""Those that the first tier runs; the others take seconds each."""

TRIED = [
    pytest.param(name, marks=() if name in CHEAP else pytest.mark.full) for name in DIVIDED
]  # fmt: skip

KERNELS = ("chunk_back_parallel", "chunk_back_scan", "chunk_back_rest")
SUMS = "chunk_back_sums"


def kernels_of(name: str) -> tuple[str, ...]:
    """The kernels of a spec's gradient."""
    return tuple(kernel for kernel in (*KERNELS, SUMS) if f"def {kernel}(" in text(name))


@pytest.mark.some(2)
@pytest.mark.parametrize("name", TRIED)
def test_a_divided_gradient_is_the_recurrences(interpreter, tmp_path, name: str) -> None:
    folder = str(tmp_path / "own")
    found = interpreter(differences, name=name, folder=folder)
    assert wrong(found) == {}
    assert {"y", "d_q", "d_k", "d_v"} <= found["errors"].keys()
    assert any(n.startswith("d_start ") for n in found["errors"])
    assert (name in WINDOWED) == ("d_start k_tail" in found["errors"])
    assert found["kernels"] == ["chunk_parallel", "chunk_scan", *kernels_of(name)]


@pytest.mark.full
@pytest.mark.parametrize("name", DIVIDED)
@pytest.mark.parametrize("how", ["packed", "padded"])
def test_documents_and_padded_rows(interpreter, tmp_path, name: str, how: str) -> None:
    folder = str(tmp_path / "own")
    found = interpreter(differences, name=name, folder=folder, **{how: True})
    assert wrong(found) == {}


# -- what is generated ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", DIVIDED)
def test_where_chunks_share_rows_each_has_its_own_gradient_of_them(name: str) -> None:
    stored = set(re.findall(r"tiles\.store_tile\(\s*grad_(\w+),", body(name, "chunk_back_rest")))
    assert stored == ({"k", "v"} if name in WINDOWED else set())
    assert (SUMS in kernels_of(name)) == (name in WINDOWED)
    for argument in stored:
        assert f"grad_{argument}, at_seen, heads" in body(name, SUMS)


def stored(name: str, kernel: str) -> set[str]:
    return set(re.findall(r"tiles\.store_\w+\(\s*tile_(\w+),", body(name, kernel)))


def loaded(name: str, kernel: str) -> set[str]:
    return set(re.findall(r"tiles\.load_\w+\(\s*tile_(\w+),", body(name, kernel)))


@pytest.mark.some(2)
@pytest.mark.parametrize("name", DIVIDED)
def test_what_kernels_store_is_loaded_by_later_ones(name: str) -> None:
    kernels = kernels_of(name)
    for number, kernel in enumerate(kernels):
        later = set().union(*(loaded(name, other) for other in kernels[number + 1 :]))
        assert stored(name, kernel) <= later
    assert any(n.startswith("d_") for n in stored(name, "chunk_back_scan"))
    assert stored(name, "chunk_back_rest") == set()


@pytest.mark.some(2)
@pytest.mark.parametrize("name", DIVIDED)
def test_no_gradient_of_a_state_reaches_what_is_computed_before_the_scan(name: str) -> None:
    carried = set(re.findall(r"start_(d_\w+),", body(name, "chunk_back_scan").split("):")[0]))
    assert carried
    if "chunk_back_parallel" in kernels_of(name):
        parallel = body(name, "chunk_back_parallel")
        assert not carried & set(re.findall(r"\w+", parallel.split('"""')[2]))


def test_an_additive_scan_multiplies_once_and_has_nothing_before_it() -> None:
    assert kernels_of("additive") == KERNELS[1:]
    assert body("additive", "chunk_back_scan").count("tiles.dot(") == 1


def test_the_gradient_of_an_inverse_leaves_the_scan_of_a_delta_rule() -> None:
    scan, rest = (body("affine", kernel) for kernel in KERNELS[1:])
    assert scan.count("tiles.dot(") == 5
    assert "tiles.strictly_lower(" in rest
    assert "tiles.strictly_lower(" not in scan


def test_gradients_are_summed_over_values_inside_the_last_kernel() -> None:
    """No part of a gradient is stored for each block of values, as the one kernel does."""
    assert "behind" in body("affine", "chunk_backward")
    assert "behind" not in body("affine", "chunk_back_rest")
    assert "for part in tl.range(0, (V + BV - 1) // BV):" in body("affine", "chunk_back_rest")


# -- the choice --------------------------------------------------------------------------------


def chosen(name: str) -> dict[str, int]:
    """Warps of what is computed in parallel, 0 where one kernel is chosen, by shape: of a form with
    its gradient."""
    from mnemic.codegen.package import load, support

    module = load(pipeline.compile(name).folder)
    configuration, limits, dividing = (
        support(module, part) for part in ("configuration", "limits", "dividing")
    )
    kernel, device = module.rule.kernels().CHUNK, limits.Limits(132, 65_536, 2_048, 232_448)
    found = {}
    for shape, (memories, length, width) in {
        "long": (8, 8192, 128), "many": (256, 4096, 128), "short": (8, 40, 16),
    }.items():  # fmt: skip
        sizes, work = {"K": width, "V": width}, configuration.Work(memories, length)
        one = configuration.configured(kernel, sizes, device, work, gradient=True)
        cut = dividing.divided_cut(
            kernel, sizes, device, work, one, most=64, always=None, gradient=True
        )
        found[shape] = cut.parallel
    return found


@pytest.mark.parametrize(("name", "divided"), [
    ("linear-attention", {"long", "many"}), ("gated-deltanet", {"long", "many", "short"}),
])  # fmt: skip
def test_the_model_divides_a_gradient_where_that_is_faster(interpreter, name, divided) -> None:
    """A chunk of a delta rule is long in one kernel, so that a few of them are worth three more
    launches."""
    found = interpreter(chosen, name=name)
    assert {shape for shape, warps in found.items() if warps} == divided


# -- compiled without a device -----------------------------------------------------------------


def compiled(device: str, *, faulty: bool = False) -> dict[str, tuple[int, int, int]]:
    """Of a delta rule at 128 channels, by kernel: rows a chunk, bytes of registers that a thread
    spills, products that some versions of Triton get wrong; ``faulty``: as if this were one."""
    import torch

    from mnemic.codegen.package import load, support
    from mnemic.kernels.jobs import Subject
    from mnemic.kernels.limits import target
    from mnemic.kernels.offline import compiling

    module = load(pipeline.compile("gated-deltanet").folder)
    versions = support(module, "versions")
    own, versions.faulty = versions.faulty, lambda _: faulty
    try:
        subject = Subject.of(module, 128, torch.bfloat16)
        with compiling(target(device)) as log:
            subject.backward()
    finally:
        versions.faulty = own
    return {kernel.name: (kernel.constants["C"], kernel.resources.spill, kernel.transposed)
            for kernel in log.kernels}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("device", ["sm_80", "sm_90"])
def test_at_128_channels_kernels_spill_little(compiler, device: str) -> None:
    """The last of them spills 1.3 KB on sm_90, which costs less than chunks of half the rows."""
    found = compiler(compiled, device=device)
    assert found.keys() == {"chunk_parallel", "chunk_scan", *KERNELS}
    spilling = {kernel for kernel, (_, spilt, _) in found.items() if spilt > 1_024}
    assert spilling <= {"chunk_back_rest"}
    assert found["chunk_back_rest"][1] <= 2_048


@pytest.mark.full
def test_where_triton_gets_products_of_warp_groups_wrong_chunks_have_none_of_those(
    compiler,
) -> None:
    """Else a program would have two warps, and spill much."""
    found = compiler(compiled, device="sm_90", faulty=True)
    assert found.keys() == {"chunk_parallel", "chunk_scan", *KERNELS}
    assert {(rows, wrong) for rows, _, wrong in found.values()} == {(32, 0)}
