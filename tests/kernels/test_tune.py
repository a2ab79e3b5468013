"""The tuner in Triton's interpreter, with a clock of the test's own: what is timed, and chosen."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from mnemic import pipeline

SPEC = "linear-attention"
WIDTH, TOKENS = 16, 20
MODEL = {
    "rows": 32, "block": 16, "warps": 8, "stages": 1, "lean": False, "swept": False, "full": False,
    "sparing": False, "parallel": 0, "doubled": [],
}  # fmt: skip
"""What the model says at this size; without a device there is no reason to split."""
LONGER = {**MODEL, "rows": 64}
"""The same for four times as many tokens."""


def support(folder: str, name: str) -> Any:
    from pathlib import Path

    from mnemic.codegen import package

    module = package.load(Path(folder))
    return module if not name else import_module(f"{module.__name__}.{name}")


@contextmanager
def own_cache(folder: str, place: str) -> Iterator[None]:
    tuned = support(folder, "support.tuned")
    os.environ[tuned.VARIABLE] = place
    tuned.forget()
    try:
        yield
    finally:
        del os.environ[tuned.VARIABLE]
        tuned.forget()


class Changed:
    """A kernel that does something else where its launch has some options."""

    def __init__(self, kernel: Any, change: Callable[..., None], **options: int) -> None:
        self.kernel, self.change, self.options = kernel, change, options

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        def launch(*arguments: Any, **options: Any) -> None:
            self.kernel[grid](*arguments, **options)
            if all(options[name] == value for name, value in self.options.items()):
                self.change(*arguments)

        return launch


@contextmanager
def changed(folder: str, change: Callable[..., None], **options: int) -> Iterator[None]:
    """The chunk form's kernel changed for launches with some options."""
    kernel = support(folder, "kernels").CHUNK
    plain = kernel.forward
    object.__setattr__(kernel, "forward", Changed(plain, change, **options))
    try:
        yield
    finally:
        object.__setattr__(kernel, "forward", plain)


def slightly_wrong(folder: str) -> Callable[..., None]:
    """The output a thousandth too large."""
    place = len(support(folder, "kernels").CHUNK.rows)

    def change(*arguments: Any) -> None:
        arguments[place].mul_(1.001)

    return change


class Clock:
    """A timer that looks at which cuts it is given, and says what it was told to."""

    def __init__(self, folder: str, seconds: Callable[[dict[str, int]], float]) -> None:
        self.tuned, self.seconds = support(folder, "support.tuned"), seconds
        self.seen: list[dict[str, int]] = []

    def __call__(self, steps: Any, rounds: int) -> dict[int, float]:
        found = {}
        for number, step in steps.items():
            with self.tuned.recording() as runs:
                step()
            cut = vars(runs[-1].chosen)
            self.seen.append(cut)
            found[number] = self.seconds(cut)
        return found


def tuned_by(folder: str, clock: Clock, purposes: list[str], most: int) -> dict[str, Any]:
    import torch

    tune, shapes = support(folder, "support.tune"), support(folder, "support.shapes")
    wanted = shapes.Shape(1, TOKENS, 1, WIDTH, WIDTH, torch.float32)
    module = support(folder, "")
    report: dict[str, Any] = tune.run(
        module.Layer, wanted, timer=clock, purposes=tuple(purposes), most=most
    )
    return report


def called(folder: str, tokens: int, **options: Any) -> dict[str, Any]:
    """A call of the fused form: how its kernel was cut, how far it is from the recurrence."""
    import torch

    tuned, module = support(folder, "support.tuned"), support(folder, "")
    torch.manual_seed(1)
    layer = module.Layer(16, heads=1, key_dim=WIDTH, value_dim=WIDTH)
    with torch.no_grad():
        given = layer.arguments(torch.randn(1, tokens, 16))
        expected = module.rule(**given, form="recurrent")[0]
        with tuned.recording() as runs:
            found = module.rule(**given, **{"form": "triton", **options})[0]
    error = float((found - expected).abs().max())
    return {"cuts": [vars(run.chosen) for run in runs], "error": error}


# -- in the interpreter ------------------------------------------------------------------------


def with_a_wrong_cut(folder: str, place: str) -> dict[str, Any]:
    """Fewer warps are faster, but wrong; narrower stages are right, and a little faster."""
    clock = Clock(folder, lambda cut: 0.1 * cut["warps"] - 0.05 * cut["stages"])
    with own_cache(folder, place):
        with changed(folder, slightly_wrong(folder), num_warps=4):
            report = tuned_by(folder, clock, ["forward"], 6)
        same, other = called(folder, TOKENS - 1), called(folder, 4 * TOKENS)
        own_rows = called(folder, TOKENS, chunk_size=16)
    after = called(folder, TOKENS)
    return {"report": report, "timed": clock.seen, "same": same, "other": other,
            "own rows": own_rows, "after": after}  # fmt: skip


def with_cuts_that_fail(folder: str, place: str) -> dict[str, Any]:
    from triton.errors import TritonError

    def raises(*arguments: Any) -> None:
        raise TritonError("out of resource: shared memory, Required: 300000, limit: 232448")

    clock = Clock(folder, lambda cut: 1.0)
    with own_cache(folder, place), changed(folder, raises, num_warps=4):
        return tuned_by(folder, clock, ["forward"], 4) | {"timed": clock.seen}


def with_none_right(folder: str, place: str) -> dict[str, Any]:
    import warnings

    choice = support(folder, "support.choice")
    clock = Clock(folder, lambda cut: 1.0)
    plain = choice.form
    with own_cache(folder, place):
        with changed(folder, slightly_wrong(folder)):
            report = tuned_by(folder, clock, ["forward"], 2)
        choice.form = lambda signature, asked, forms, like: "triton"  # as on a GPU, verified
        try:
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                found = [called(folder, TOKENS, form=form) for form in ("auto", "triton")]
        finally:
            choice.form = plain
        other = called(folder, 4 * TOKENS)
    told = [str(w.message) for w in seen]
    return {"report": report, "timed": clock.seen, "calls": found, "told": told, "other": other}


def trained_and_decoded(folder: str, place: str) -> dict[str, Any]:
    """Faster than the model's is the first neighbour alone, for one of two purposes."""
    clock = Clock(folder, lambda cut: 1.0 if cut == MODEL or cut["block"] == 64 else 2.0)
    with own_cache(folder, place):
        report = tuned_by(folder, clock, ["training", "decode"], 2)
    return report | {"timed": clock.seen}


# -- the tests ---------------------------------------------------------------------------------


def folder_of(spec: str = SPEC) -> str:
    return str(pipeline.compile(spec).folder)


def test_a_wrong_cut_is_never_timed_nor_chosen(interpreter, tmp_path) -> None:
    found = interpreter(with_a_wrong_cut, folder=folder_of(), place=str(tmp_path))
    (entry,) = found["report"]["tuned"]
    wrong = {trial["warps"]: trial["wrong"] for trial in entry["trials"] if trial["wrong"]}
    assert set(wrong) == {4}
    assert wrong[4].startswith("T = 31: output: error ")
    assert ", allowed " in wrong[4]
    assert entry["model"] == MODEL
    assert MODEL in found["timed"]
    assert all(cut["warps"] != 4 for cut in found["timed"])
    assert entry["choice"] == {**MODEL, "stages": 2}
    assert found["same"]["cuts"] == [entry["choice"]]
    assert (found["other"]["cuts"], found["after"]["cuts"]) == ([LONGER], [MODEL])
    assert found["own rows"]["cuts"][0]["rows"] == 16
    assert max(found[name]["error"] for name in ("same", "other", "own rows")) < 1e-5


def test_a_cut_that_does_not_fit_is_dropped(interpreter, tmp_path) -> None:
    found = interpreter(with_cuts_that_fail, folder=folder_of(), place=str(tmp_path))
    (entry,) = found["tuned"]
    dropped = [trial["wrong"] for trial in entry["trials"] if trial["warps"] == 4]
    assert dropped == [
        "TritonError: out of resource: shared memory, Required: 300000, limit: 232448"
    ]
    assert entry["choice"] == MODEL
    assert all(cut["warps"] != 4 for cut in found["timed"])


def test_where_no_cut_is_right_the_form_is_not_used(interpreter, tmp_path) -> None:
    found = interpreter(with_none_right, folder=folder_of(), place=str(tmp_path))
    (entry,) = found["report"]["tuned"]
    assert entry["choice"] is None
    assert entry["why"].startswith("T = 31: output: error ")
    assert found["timed"] == []
    assert [call["cuts"] for call in found["calls"]] == [[], []]
    assert max(call["error"] for call in found["calls"]) < 1e-5
    (told,) = found["told"]
    assert told.startswith(
        "linear-attention: no way of cutting its kernel passed its check here (T = 31: output: "
    )
    assert told.endswith("PyTorch's chunk form runs instead")
    assert found["other"]["cuts"] == [LONGER]


def test_training_and_decoding(interpreter, tmp_path) -> None:
    found = interpreter(trained_and_decoded, folder=folder_of(), place=str(tmp_path))
    training, decode = found["tuned"]
    assert (training["purpose"], training["question"]["gradient"]) == ("training", True)
    assert training["question"]["kernel"] == "chunk"
    assert (decode["question"]["kernel"], decode["question"]["length"]) == ("token", 1)
    for entry in (training, decode):
        assert [trial["wrong"] for trial in entry["trials"]] == ["", ""]
        assert entry["choice"] is not None
