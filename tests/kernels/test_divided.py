"""Forms in several kernels, divided at what their states reach, against the recurrence.

Triton interprets, in float64: outputs, states and gradients, from a carried state, in chunks of
eight rows and two blocks of values. The same with gradients is in ``test_divided_gradient.py``,
documents packed into a row and padded batches too.
"""

import importlib
import re
from typing import Any

import pytest
import torch
from conformance import apart

from mnemic import pipeline
from mnemic.codegen.support import configuration, dividing, limits, versions
from mnemic.kernels.limits import TARGETS

TOKEN = {"rate": "token"}

SPECS: dict[str, Any] = {
    "additive": "linear-attention",
    "additive, channel decays": "gla",
    "additive, a normaliser": "linear-attention-elu",
    "additive, a window": "swla",
    "affine": "gated-deltanet",
    "affine, channel decays": "kda",
    "affine, momentum": "titans-linear",
    "affine, momentum before": "deltanet-momentum",
    "affine, a batch": "batch-gd",
    "affine, several steps a token": "deltaproduct",
    "affine, a window": "omega-linear",
    "affine, keys of its own": "rwkv7",
    "additive, a window of several chunks from an anchor": {
        "bias": "dot", "window": 9, "optimizer": {"rate": "token", "anchor": {"chunk": 8}},
        "retention": {"decay": "token"},
    },
    "residual": "huber-coordinate",
    "residual, a window of weights": {
        "bias": "huber", "window": 3, "weights": "window", "optimizer": TOKEN,
        "retention": {"decay": "token"},
    },
    "frozen, a norm": "ttt-linear",
    "a loss of a user's own": {
        "bias": {"expr": "log(cosh(y - v))"}, "optimizer": TOKEN, "retention": {"decay": "token"},
    },
    "intervals of the document": {
        "bias": "l2", "optimizer": {"rate": "token", "anchor": {"chunk": 8}},
        "retention": {"decay": "token"},
    },
}  # fmt: skip

TOKENS = 19


def spec(name: str) -> str | dict:
    found = SPECS[name]
    return found if isinstance(found, str) else {"mnemic": 1, "name": "own", **found}


def text(name: str) -> str:
    return (pipeline.compile(spec(name)).folder / "kernels.py").read_text("utf-8")


def differences(
    name: str,
    folder: str,
    *,
    packed: bool = False,
    padded: bool = False,
    gradient: bool = True,
) -> dict[str, Any]:
    """How far outputs, states and gradients are from the recurrence, by name; and which kernels
    were launched."""
    import torch

    found = apart(spec(name), folder)
    package = found.module.__name__
    tuned, own, launch = (
        importlib.import_module(f"{package}.support.{part}")
        for part in ("tuned", "configuration", "launch")
    )
    importlib.import_module(f"{package}.support.divided_gradient").VALUES = 16
    begin, seen = launch.begin, []
    launch.begin = lambda f, *rest: (seen.append(f.__name__), begin(f, *rest))
    cut = own.Configuration(8, 16, 4, 2, parallel=4)
    tuned.answered = lambda *_: tuned.Answer(cut)
    rule = found.operator
    torch.manual_seed(0)
    rows, batch = (1, 3) if packed else (2, 2)
    layer = found.module.Layer(12, heads=2, key_dim=6, value_dim=6 if square(rule) else 20).double()
    x = torch.randn(rows, TOKENS, layer.dim, dtype=torch.float64)
    earlier = torch.randn(batch, 5, layer.dim, dtype=torch.float64)
    with torch.no_grad():
        given, learned = layer.arguments(x), layer.params()
        begun = rule(**layer.arguments(earlier), params=learned, form="recurrent",
                     output_final_state=True)[1]  # fmt: skip
    options: dict[str, Any] = {}
    if packed:
        options = {"cu_seqlens": torch.tensor([0, 1, 1, TOKENS])}
    if padded:
        options = {"mask": torch.arange(TOKENS) < torch.tensor([TOKENS, 11])[:, None]}
    results = []
    for form in ("recurrent", "triton"):
        leaves = {n: a.detach().clone().requires_grad_(gradient) for n, a in given.items()}
        start = {n: s.clone().requires_grad_(gradient and s.is_floating_point())
                 for n, s in begun.items()}  # fmt: skip
        params = {n: p.detach().clone().requires_grad_(gradient) for n, p in learned.items()}
        y, states = rule(**leaves, params=params, form=form, initial_state=start,
                         output_final_state=True, **options)  # fmt: skip
        ends = {"y": y, **{n: s for n, s in states.items() if s.is_floating_point()}}
        slopes = {}
        if gradient:
            leaves |= {f"start {n}": s for n, s in start.items() if s.requires_grad}
            leaves |= {f"learned {n}": p for n, p in params.items()}
            loss = sum((e * torch.cos(torch.arange(e.numel()).double()).view(e.shape)).sum()
                       for e in ends.values())  # fmt: skip
            told = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
            slopes = {f"d_{n}": torch.zeros_like(a) if g is None else g
                      for (n, a), g in zip(leaves.items(), told, strict=True)}  # fmt: skip
        results.append({**ends, **slopes})
    one, two = results
    errors = {n: float((one[n] - two[n]).abs().max() / (1 + one[n].abs().max())) for n in one}
    return {"errors": errors, "kernels": seen}


def square(rule: Any) -> bool:
    """Whether values must have as many channels as keys."""
    return bool(rule.signature.square)


def checked(found: dict[str, Any]) -> None:
    assert wrong(found) == {}
    assert found["kernels"][:2] == ["chunk_parallel", "chunk_scan"]


def wrong(found: dict[str, Any]) -> dict[str, float]:
    return {n: x for n, x in found["errors"].items() if not x <= 1e-9}


def test_without_a_gradient_there_are_two_kernels(interpreter, tmp_path) -> None:
    folder = str(tmp_path / "own")
    found = interpreter(differences, name="affine", folder=folder, gradient=False)
    checked(found)
    assert found["kernels"] == ["chunk_parallel", "chunk_scan"]


# -- which quantities leave the scan -------------------------------------------------------------


def body(name: str, kernel: str) -> str:
    """The text of one kernel of a spec."""
    behind = text(name).split(f"def {kernel}(")[1]
    return behind.split("\n@triton")[0].split("\ndef ")[0]


def stored(name: str) -> set[str]:
    return set(re.findall(r"tiles\.store_\w+\(tile_(\w+),", body(name, "chunk_parallel")))


def loaded(name: str) -> set[str]:
    return set(re.findall(r"tiles\.load_\w+\(tile_(\w+),", body(name, "chunk_scan")))


@pytest.mark.some(10)
@pytest.mark.parametrize("name", SPECS)
def test_what_one_kernel_stores_the_other_loads(name: str) -> None:
    assert stored(name)
    assert stored(name) == loaded(name)


@pytest.mark.parametrize("name", SPECS)
def test_no_state_reaches_what_is_computed_in_parallel(name: str) -> None:
    parallel, scan = body(name, "chunk_parallel"), body(name, "chunk_scan")
    states = set(re.findall(r"start_(\w+),", scan.split("):")[0]))
    assert states
    assert not states & set(re.findall(r"\w+", parallel.split('"""')[2]))


def test_the_inverse_leaves_the_scan_of_a_delta_rule() -> None:
    inverse = "tiles.unit_lower_inverse("
    assert inverse in body("affine", "chunk_parallel")
    assert inverse not in body("affine", "chunk_scan")
    assert body("affine", "chunk_scan").count("tiles.dot(") == 5


def test_a_system_that_reads_the_state_stays_in_the_scan() -> None:
    solved = "tiles.residual("
    assert solved not in body("residual", "chunk_parallel")
    assert " residual(" in body("residual", "chunk_scan")


def test_what_is_light_or_larger_than_its_operands_is_computed_where_it_is_read() -> None:
    """The rows against rows are handed on; keys against values, a memory a chunk, are not."""
    assert stored("additive") == {"q_k_low"}
    assert body("additive", "chunk_scan").count("tiles.dot(") == 3


@pytest.mark.parametrize("name", ["mesa", "mlstm"])
def test_where_no_product_leaves_the_scan_there_is_one_kernel(name: str) -> None:
    """A state reaches every product that would be worth a kernel."""
    found = (pipeline.compile(name).folder / "kernels.py").read_text("utf-8")
    assert "def chunk_forward(" in found
    assert "def chunk_scan(" not in found
    assert "divided=" not in found


# -- the choice --------------------------------------------------------------------------------


def cut_of(memories: int, length: int, width: int, *, always: bool | None = None) -> Any:
    """The model's cut on a device like an H100."""
    from mnemic.codegen.package import load, support

    module = load(pipeline.compile("gated-deltanet").folder)
    configuration, limits, dividing = (
        support(module, part) for part in ("configuration", "limits", "dividing")
    )
    kernel, sizes = module.rule.kernels().CHUNK, {"K": width, "V": width}
    device, work = limits.Limits(132, 65_536, 2_048, 232_448), configuration.Work(memories, length)
    one = configuration.configured(kernel, sizes, device, work, gradient=False)
    return dividing.divided_cut(kernel, sizes, device, work, one, most=64, always=always)


def chosen() -> dict[str, int]:
    """Warps of what is computed in parallel, 0 where one kernel is chosen, by shape."""
    shapes = {"long": (8, 8192, 128), "many": (256, 4096, 128), "short": (8, 40, 16)}
    return {name: cut_of(*shape).parallel for name, shape in shapes.items()} | {
        "never": cut_of(8, 8192, 128, always=False).parallel,
        "always": cut_of(8, 40, 16, always=True).parallel,
    }


def test_the_model_divides_where_that_is_faster(interpreter) -> None:
    found = interpreter(chosen)
    assert {name for name, warps in found.items() if warps} == {"long", "many", "always"}


def staged() -> dict[str, int]:
    """Of how many turns a scan's loads are kept, by shape."""
    shapes = {"few": (8, 8192, 64), "many": (1024, 4096, 64), "wide": (1024, 4096, 128)}
    return {name: cut_of(*shape, always=True).stages for name, shape in shapes.items()}


def test_loads_begin_two_turns_before_unless_two_programs_share_a_multiprocessor(
    interpreter,
) -> None:
    """Memories of 128 channels leave room for one program, which waits less with three stages."""
    assert interpreter(staged) == {"few": 3, "many": 2, "wide": 3}


# -- kernels that spill ------------------------------------------------------------------------

WIDE = (64, 64, ())
"""Rows and block of a scan, and the kernels that have twice the warps."""

MUCH = {"first": 3_000, "last": 2_500}


@pytest.mark.parametrize(
    ("parallel", "scan", "expected"),
    [
        ({}, {}, WIDE),
        ({64: {"first": 2_000}}, {(64, 64): 200}, WIDE),
        ({64: {"first": 3_000}}, {}, (32, 64, ())),
        ({}, {(64, 64): 300}, (64, 32, ())),
        ({}, {(64, block): 900 for block in (64, 32, 16)}, (32, 64, ())),
        ({64: MUCH, 32: MUCH}, {}, (16, 64, ())),
        ({64: MUCH, 32: MUCH, 16: MUCH}, {}, (64, 64, ("first",))),
    ],
)
def test_each_kernel_that_spills_much_gives_way_by_itself(
    parallel: dict, scan: dict, expected: tuple
) -> None:
    """Fewer rows first; then more warps, where that leaves next to nothing: of ``first`` alone."""

    def spilled(cut: configuration.Configuration) -> dict[str, int]:
        own = {"first": 0, "last": 0} | parallel.get(cut.rows, {})
        return {n: x // (10 if n == "first" else 3) if n in cut.doubled else x
                for n, x in own.items()}  # fmt: skip

    start = configuration.Configuration(64, 64, 4, 2, parallel=4)
    found = dividing.settled(
        start, spilled, lambda cut: {"scan": scan.get((cut.rows, cut.block), 0)}, object()
    )
    assert (found.rows, found.block, found.doubled) == expected
    assert (found.warps, found.parallel) == (4, 4)
    assert [found.parallel_warps(n) for n in ("first", "last")] == [
        8 if n in expected[2] else 4 for n in ("first", "last")
    ]


def test_where_all_spill_far_too_much_one_kernel_is_asked_for() -> None:
    start = configuration.Configuration(64, 64, 4, 2, parallel=4)
    found = dividing.settled(start, lambda _: {"first": 0}, lambda _: {"scan": 40_000}, object())
    assert found.parallel == 0


def test_a_tuner_that_changes_warps_changes_those_of_every_kernel() -> None:
    """Else a kernel that had twice as many would have more than any other may have."""
    found = configuration.Configuration(64, 64, 4, 2, parallel=4, doubled=("chunk_back_rest",))
    choices = configuration.Choices((64,), (64,), (4,), (2,), dividing.PARALLEL)
    near = [cut for cut in choices.around(found) if cut.parallel != found.parallel]
    assert [cut.parallel_warps("chunk_back_rest") for cut in near] == [0, 8]


@pytest.mark.parametrize("name", TARGETS)
def test_kernels_compiled_offline_are_cut_for_their_target(monkeypatch, name: str) -> None:
    monkeypatch.setenv(versions.OFFLINE, name)
    assert limits.limits(torch.device("cpu")).shared == TARGETS[name].shared
