"""``verified.json``: what passes, what does not, and for whom the record speaks."""

import importlib
import json
import math
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from mnemic import pipeline
from mnemic.codegen import package
from mnemic.codegen.support import cases, compared, verified, verify, versions
from mnemic.codegen.support.cases import Case

CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return pipeline.compile("gated-deltanet", tmp_path / "layer").folder


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Compiled folders are modules under names of their own, which a test leaves behind."""
    known = set(sys.modules)
    yield
    for name in set(sys.modules) - known:
        if name.startswith("mnemic_compiled_"):
            del sys.modules[name]


def support(folder: Path, name: str) -> tuple[ModuleType, Any]:
    module = package.load(folder)
    return module, package.support(module, name)


def test_a_right_folder_passes(folder: Path) -> None:
    module, verify = support(folder, "verify")
    seen: list[Any] = []
    entry = verify.run(module.Layer, device="cpu", rule_hash="abc", told=seen.append)
    assert entry["passed"]
    assert set(entry["forms"]) == {"chunk"}
    assert set(entry["forms"]["chunk"]) == {"float32", "bfloat16", "float16"}
    names = {finding.case for finding in seen}
    assert names >= {"T = 1", "T = 63", "T = 64", "T = 65", "T = 131", "log decay -88",
                     "from a state", "not contiguous", "documents"}  # fmt: skip
    parts = set(entry["forms"]["chunk"]["float32"]["errors"])
    assert parts >= {"output", "state W", "initial W".replace("initial", "gradient of initial")}
    assert parts >= {f"gradient of {n}" for n in ("q", "k", "v", "eta", "log_alpha")}
    kept = json.loads((folder / "verified.json").read_text())
    assert kept["entries"] == [entry]
    assert entry["hash"] == "abc"
    assert entry["left out"] == []


def test_arguments_that_the_rule_refuses_are_left_out() -> None:
    """Steep decays make this rule forget its ridge, which raises; the other cases are compared."""
    module = pipeline.compile("rls-geometric").module
    verify = package.support(module, "verify")
    wanted = cases.plan(module.rule, CPU)
    found = {
        trial.name: list(trial.findings())
        for trial in verify.trials(module.Layer, wanted)
        if trial.name in ("float32, T = 65", "float32, log decay -88")
    }
    assert {x.part for x in found["float32, log decay -88"]} == {"refused"}
    assert all(x.allowed is None for x in found["float32, log decay -88"])
    assert all(x.passed and x.allowed is not None for x in found["float32, T = 65"])


def test_of_a_coefficient_that_is_the_same_at_every_token_gradients_are_summed() -> None:
    """Atlas' chunk form reads the weights of its features elsewhere than the recurrence does."""
    module = pipeline.compile("atlas").module
    verify = package.support(module, "verify")
    wanted = cases.plan(module.rule, CPU)
    (trial,) = (t for t in verify.trials(module.Layer, wanted) if t.name == "float32, T = 17")
    found = {x.part: x for x in trial.findings()}
    assert {"gradient of a0", "gradient of a1", "gradient of a2"} <= set(found)
    assert all(x.passed and x.allowed is not None for x in found.values())


def test_what_there_is_no_time_for_is_told(folder: Path) -> None:
    """One trial is always made; no case is left out of every dtype before another had them all."""
    module, verify = support(folder, "verify")
    began: list[str] = []
    entry = verify.run(module.Layer, device="cpu", keep=False, seconds=0, trying=began.append)
    assert began == ["float32, T = 1 (1 of 39, 0 s)"]
    assert entry["passed"]
    assert len(entry["left out"]) == 38
    assert entry["left out"][:3] == [
        "float32, T = 65", "float32, from a state", "float32, documents",
    ]  # fmt: skip
    assert set(entry["forms"]["chunk"]) == {"float32"}


def test_shares_are_all_trials(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, verify = support(folder, "verify")
    trials, seen = verify.trials, []

    def first(*given: Any) -> Any:
        for trial in list(trials(*given))[:5]:
            seen.append(trial.name)
            yield trial

    monkeypatch.setattr(verify, "trials", first)
    shares = [verify.share(module.Layer, device="cpu", number=n, of=2) for n in (0, 1)]
    cases = [list(dict.fromkeys(f.case for f in one.findings)) for one in shares]
    assert cases == [["T = 1", "from a state", "log decay 0"], ["T = 65", "documents"]]
    entry = verify.recorded(module.Layer, shares, device="cpu", keep=False)
    assert entry["passed"]
    assert entry == verify.run(module.Layer, device="cpu", keep=False)
    shares = [verify.share(module.Layer, device="cpu", number=n, of=2, seconds=0) for n in (0, 1)]
    entry = verify.recorded(module.Layer, shares, device="cpu", keep=False)
    assert entry["left out"] == [f"float32, {c}" for c in ("from a state", "log decay 0",
                                                           "documents")]  # fmt: skip


def test_a_gpu_is_tried_at_the_sizes_that_are_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    rule = pipeline.compile("gated-deltanet").operator
    small, large = cases.plans(rule, torch.device("cuda"))
    assert (small.width, small.tokens) == (64, 0)
    assert (large.width, large.tokens, large.forms) == (128, 600, ("triton",))
    assert torch.bfloat16 in large.dtypes


def cuts(folder: str, faulty: bool) -> dict[str, Any]:
    """How the gradients of the long case are cut, and what is wrong with them."""
    layer = package.load(Path(folder)).Layer
    home = f"{layer.__module__.rpartition('.')[0]}.support"
    verify, launch = (importlib.import_module(f"{home}.{name}") for name in ("verify", "launch"))
    back, seen = launch.Launch.back, []

    def noted(self: Any, *given: Any) -> Any:
        chosen = self.cutting.chosen
        seen.append([chosen.lean, self.pieces, self.blocks])
        found = back(self, *given)
        return [2 * x for x in found] if faulty and chosen.lean == 2 else found

    launch.Launch.back = noted
    try:
        large = verify.plans(layer.rule, CPU)[-1]
        found = [f for trial in verify.trials(layer, large) for f in trial.findings()]
    finally:
        launch.Launch.back = back
    return {"cuts": seen, "wrong": [f"{f.case}, {f.part}" for f in found if not f.passed],
            "compared": sum(f.allowed is not None for f in found)}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("faulty", [False, pytest.param(True, marks=pytest.mark.full)])
def test_the_long_case_takes_pieces_blocks_and_every_lean_degree(
    interpreter, faulty: bool
) -> None:  # fmt: skip
    folder = str(pipeline.compile("gated-deltanet").folder)
    found = interpreter(cuts, folder=folder, faulty=faulty)
    forced = [cut for cut in found["cuts"] if cut[1] > 1]
    several = (0, 19, 2)  # in several kernels a piece is one chunk
    assert {tuple(cut) for cut in forced} == {(0, 2, 2), (1, 2, 2), (2, 2, 2), several}
    assert found["compared"] > 20
    assert bool(found["wrong"]) == faulty
    assert all(", lean 2, gradient of " in line for line in found["wrong"])


def test_a_fault_does_not_pass(folder: Path) -> None:
    """It is in gradients through carried states alone."""
    path = folder / "gated_deltanet.py"
    text = path.read_text(encoding="utf-8")
    head, at, rest = text.partition("def chunk(")
    place = rest.index('"""', rest.index('"""') + 3) + 3
    faulty = f"{rest[:place]}\n    W = W + (W - W.detach()) * 1e-2{rest[place:]}"
    path.write_text(head + at + faulty, encoding="utf-8")
    module, verify = support(folder, "verify")
    entry = verify.run(module.Layer, device="cpu")
    assert not entry["passed"]
    told = entry["forms"]["chunk"]["float32"]
    assert not told["passed"]
    assert all(", gradient of " in line and ": error " in line for line in told["wrong"])
    assert any("from a state, gradient of initial W" in line for line in told["wrong"])
    assert not any(line.startswith("T = 1,") for line in told["wrong"])


def entry(interpreted: bool = False, passed: bool = True) -> dict[str, Any]:
    forms = {"triton": {"bfloat16": {"passed": passed}}}
    return {"setting": verified.setting(CPU), "interpreted": interpreted, "forms": forms}


def test_for_whom_a_record_speaks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def trusted(dtype: torch.dtype = torch.bfloat16) -> bool:
        verified.passed.cache_clear()
        return verified.passed("triton", dtype, CPU, folder)

    assert not trusted()
    verified.store(entry(interpreted=True), folder)
    assert not trusted()
    verified.store(entry(), folder)
    assert trusted()
    assert not trusted(torch.float32)
    assert len(verified.entries(folder)) == 2
    verified.store(entry(passed=False), folder)
    assert not trusted()
    verified.store(entry(), folder)
    with monkeypatch.context() as other:
        other.setattr(versions, "installed", lambda: "99.0")
        assert not trusted()
    assert trusted()
    (folder / "ops.py").write_text("# changed\n", encoding="utf-8")
    verified.digest.cache_clear()
    assert not trusted()
    assert verified.entries(folder) == []


def test_a_torn_record_is_none(folder: Path) -> None:
    (folder / verified.RECORD).write_text("{", encoding="utf-8")
    assert verified.entries(folder) == []


def test_a_folder_with_a_record_is_still_ours(folder: Path) -> None:
    verified.store(entry(), folder)
    assert package.RECORD == verified.RECORD
    pipeline.compile("gated-deltanet", folder)
    assert not (folder / verified.RECORD).exists()


# -- versions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("triton", "capability", "known"),
    [
        ("3.3.1", (9, 0), 0), ("3.4.0", (9, 0), 1), ("3.6.0", (9, 0), 1), ("3.7.1", (9, 0), 1),
        ("3.8.0", (9, 0), 0), ("3.6.0", (8, 0), 0), ("3.9.0+git12", (9, 0), 0),
        ("3.6.0", (10, 0), 1), ("3.7.2", (10, 3), 1), ("3.8.0", (10, 0), 0), ("3.6.0", (12, 0), 0),
    ],
)  # fmt: skip
def test_faults_by_version(triton: str, capability: tuple[int, int], known: int) -> None:
    assert len(versions.faults(triton, capability)) == known


def test_versions_that_get_a_pattern_of_the_kernels_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    assert versions.distrusted("3.6.0", (9, 0)) is None  # launches keep clear of its fault
    told = versions.distrusted("3.5.1", (8, 0))
    assert told == "Triton 3.5.1 is too old: 3.6.0 or newer is needed"
    told = versions.distrusted("3.7.1", (10, 0))  # no launch keeps clear of a race
    assert told is not None
    assert told.startswith("Triton 3.7.1 on sm_100: products in a loop")
    fault = versions.Fault("x is wrong", (3, 6, 0), (3, 6, 9), ((9, 0),), "issue 1", avoided=False)
    monkeypatch.setattr(versions, "FAULTS", (fault,))
    assert versions.distrusted("3.6.1", (9, 0)) == "Triton 3.6.1 on sm_90: x is wrong (issue 1)"


def test_why_the_fused_form_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def told() -> str | None:
        versions._unusable.cache_clear()
        return versions.unusable(CPU)

    assert told() == "its kernels run on a GPU, and the arguments are on cpu"
    for name in ("TRITON_INTERPRET", versions.OFFLINE):
        with monkeypatch.context() as other:
            other.setenv(name, "1")
            assert told() is None
    with monkeypatch.context() as other:
        other.setattr(versions, "installed", lambda: None)
        assert told() == "Triton is not installed"
    versions._unusable.cache_clear()


def test_an_announcement_is_made_once() -> None:
    versions.announced.cache_clear()
    with pytest.warns(RuntimeWarning, match="only this"):
        versions.announce("only this")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        versions.announce("only this")


def test_what_a_problem_makes_of_roundings_is_allowed_the_fused_form_alone() -> None:
    short, single = torch.bfloat16, 3e-7
    base = compared.allowed("triton", short, compared.Own(1e-3))
    wide = compared.allowed("triton", short, compared.Own(1e-3, single))
    assert wide == pytest.approx(base + 2**16 * single)
    plain = compared.allowed("chunk", short, compared.Own(1e-3, single))
    assert plain == compared.allowed("chunk", short, compared.Own(1e-3)) < base
    assert compared.allowed("triton", short, compared.Own(1e-3, 1e-5)) is None
    assert compared.allowed("triton", torch.float32, compared.Own(1e-6, 1e-5)) < 2e-5


def test_what_the_recurrence_is_off_by() -> None:
    """In the dtype, and in float32 where that has 16 bits."""

    def run(real: torch.dtype) -> dict[str, torch.Tensor]:
        return {"output": torch.tensor([1 / 3], dtype=torch.float64).to(real)}

    exact, own = compared.known(run, torch.bfloat16)
    assert exact["output"].dtype == torch.float64
    assert 1e-4 < own["output"].plain < 1e-3
    assert 1e-9 < own["output"].single < 1e-8
    assert compared.known(run, torch.float32)[1]["output"].single == 0


def signs(given: torch.Tensor) -> torch.Tensor:
    """What jumps beside 1, by less than bfloat16 moves its argument."""
    return torch.sign(given.double() - (1 + 2.0**-9)) / 19


def test_what_jumps_is_measured_on_vectors_that_are_off_by_a_rounding() -> None:
    case = Case("ones", {"q": torch.ones(64, dtype=torch.float64), "eta": torch.ones(3)}, {}, {})
    asked: list[int] = []

    def drawn(draw: int, step: float) -> dict[str, torch.Tensor]:
        asked.append(draw)
        found = compared.moved(case, ("q",), torch.bfloat16, draw)
        assert torch.equal(found.arguments["eta"], case.arguments["eta"])
        return {"output": signs(found.arguments["q"])}

    def run(real: torch.dtype) -> dict[str, torch.Tensor]:
        return {"output": signs(case.arguments["q"].to(real))}

    own = compared.known(run, torch.bfloat16, drawn)[1]["output"]
    small = compared.allowed("triton", torch.bfloat16, own, 1e-3)
    assert small is not None
    assert small < 0.02
    assert not asked
    turned = compared.allowed("triton", torch.bfloat16, own, 1.0)
    assert turned == pytest.approx(2 * 0.1 + small)
    assert asked == [*range(compared.DRAWS)]


def test_what_jumps_by_as_much_as_it_is_says_nothing() -> None:
    for jump, found, said in ((0.2, 0.3, True), (0.3, 0.3, False), (0.3, 0.7, True)):
        own = compared.Own(1e-4, moved=lambda jump=jump: jump)
        most = compared.allowed("triton", torch.bfloat16, own, found)
        assert (most is not None) == said
        assert most is None or (found <= most) == (found < 2 * jump + 0.01)


def test_a_form_of_which_nothing_was_compared_has_not_passed() -> None:
    right, none = {"passed": True, "wrong": []}, {"passed": False, "wrong": []}
    wrong = {"passed": False, "wrong": ["output"]}
    for told, passed in (
        ({"a": right, "b": none}, True), ({"a": none, "b": none}, False),
        ({"a": right, "b": wrong}, False),
    ):  # fmt: skip
        assert verify._passed(told) == passed
    said = [verify.outcome(told) for told in (right, wrong, none)]
    assert said == ["passed", "FAILED", "nothing could be compared"]


def test_vectors_are_moved_by_a_place_of_the_type() -> None:
    given = torch.randn(200, dtype=torch.float64).bfloat16().double()
    case = Case("some", {"q": given}, {"W": given}, {"W": given, "position": torch.arange(3)})
    found = compared.moved(case, ("q",), torch.bfloat16, 1)
    for x in (found.arguments["q"], found.params["W"], found.state["W"]):
        apart = (x / given - 1).abs()
        assert set(apart.mul(2**8).round(decimals=9).tolist()) == {0.0, 1.0}
    assert not torch.equal(found.arguments["q"], found.params["W"])
    assert torch.equal(found.state["position"], torch.arange(3))


def test_what_is_symmetric_is_moved_so() -> None:
    given = torch.randn(2, 5, 5, dtype=torch.float64).bfloat16().double()
    case = Case("some", {}, {}, {"H": (given + given.mT).bfloat16().double(), "W": given})
    found = compared.moved(case, (), torch.bfloat16, 1).state
    assert torch.equal(found["H"], found["H"].mT)
    for name, x in found.items():
        assert 0.4 < (x != case.state[name]).double().mean() < 0.9, name


def test_a_draw_that_has_no_numbers_allows_nothing() -> None:
    def run(real: torch.dtype) -> dict[str, torch.Tensor]:
        return {"output": torch.ones(1, dtype=real)}

    def drawn(draw: int, step: float) -> dict[str, torch.Tensor]:
        return {"output": torch.tensor([float("nan") if draw == 0 else 1.0])}

    own = compared.known(run, torch.bfloat16, drawn)[1]["output"]
    assert compared.allowed("triton", torch.bfloat16, own, 1.0) == pytest.approx(0.01)


def test_no_number_is_never_right_where_the_recurrence_has_one() -> None:
    half, nan = torch.float16, float("nan")
    ones, none = torch.ones(2), torch.tensor([1.0, float("inf")])
    assert math.isnan(compared.error(none, ones))
    assert compared.allowed("triton", half, compared.Own(0.1), 0.1) is None
    assert not nan <= compared.allowed("triton", half, compared.Own(0.1), nan)
    assert not nan <= compared.allowed("triton", half, compared.Own(1e-4), nan)
    assert compared.allowed("triton", half, compared.Own(nan), nan) is None


def in_half(folder: str) -> list[str]:
    """What is wrong in float16 with gradients that go through numbers beyond 65,504."""
    layer = package.load(Path(folder)).Layer
    verify = importlib.import_module(f"{layer.__module__.rpartition('.')[0]}.support.verify")
    wanted = verify.plans(layer.rule, CPU)[0]
    case = next(c for c in verify.cases(layer, wanted) if c.name == "T = 16")
    found = [*verify._of(layer.rule, case, torch.float16, wanted)]
    assert any(finding.form == "triton" for finding in found)
    return [f"{f.case} {f.part} {f.error} {f.allowed}" for f in found if not f.passed]


def test_products_of_float16_have_the_range_of_float32(interpreter) -> None:
    assert interpreter(in_half, folder=str(pipeline.compile("ttt-linear").folder)) == []


def at_tolerance(folder: str) -> list[tuple[bool, float, float]]:
    """Whether the conjugate gradients of a fused form may be off in float64 as they are, by how
    much they are at most, and how much more is allowed."""
    layer = package.load(Path(folder)).Layer
    home = f"{layer.__module__.rpartition('.')[0]}.support"
    verify = importlib.import_module(f"{home}.verify")
    wanted = verify.plans(layer.rule, CPU)[0]
    case = next(c for c in verify.cases(layer, wanted) if c.name == "T = 16")
    found = [f for f in verify._of(layer.rule, case, torch.float64, wanted) if f.form == "triton"]
    return [(f.passed, f.error, f.allowed) for f in found if f.part != "state position"]


@pytest.mark.parametrize("tolerance", [1e-10, pytest.param(1e-5, marks=pytest.mark.full)])
def test_a_solver_may_stop_at_its_tolerance_and_be_no_further_off(interpreter, tolerance) -> None:
    solver = {"kind": "conjugate-gradients", "tolerance": tolerance, "iterations": 60}
    spec = {
        "mnemic": 1, "name": "stops", "bias": "l2", "weights": "similarity", "window": "all",
        "memory": {
            "kind": "nonparametric", "similarity": "exp(s)", "degree": 1,
            "ridge": {"from": "parameter", "per": "head", "activation": "softplus"},
        },
        "optimizer": {"method": "nonparametric", "solver": solver},
    }  # fmt: skip
    found = interpreter(at_tolerance, folder=str(pipeline.compile(spec).folder))
    assert all(passed for passed, _, _ in found)
    assert max(error for _, error, _ in found) > 0.02 * tolerance  # it does stop there
    assert all(most < 10 * tolerance for _, _, most in found)


def test_what_a_solver_leaves_is_bounded_by_the_condition_of_its_system() -> None:
    matrix = torch.diag(torch.tensor([1.0, 1e-3], dtype=torch.float64))
    target = torch.ones(2, dtype=torch.float64)

    def run(dtype: torch.dtype, b: torch.Tensor = target) -> dict[str, torch.Tensor]:
        return {"output": torch.linalg.solve(matrix.to(dtype), b.to(dtype))}

    def drawn(draw: int, step: float) -> dict[str, torch.Tensor]:
        case = Case("some", {"q": target}, {}, {})
        return run(
            torch.float64, compared.moved(case, ("q",), target.dtype, draw, step).arguments["q"]
        )

    exact, own = compared.known(run, torch.float64, drawn, 1e-9)
    for size, right in ((1e-9, True), (1e-8, False)):  # of the residual
        left = size * torch.tensor([0.0, 1.0], dtype=torch.float64)
        error = compared.error(run(torch.float64, target + left)["output"], exact["output"])
        most = compared.allowed("chunk", torch.float64, own["output"], error)
        assert (error <= most) == right
