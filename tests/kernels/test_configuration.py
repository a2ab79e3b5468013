"""The model of cuts: what it counts, how it fills a device, and what it refuses."""

import re
from ast import literal_eval
from typing import Any

import pytest

from mnemic import pipeline
from mnemic.codegen import module
from mnemic.codegen.tiled import alive


def model(name: str) -> tuple[Any, Any, Any]:
    from importlib import import_module

    module = pipeline.compile(name).module
    return tuple(
        import_module(f"{module.__name__}.{part}")
        for part in ("kernels", "support.configuration", "support.fused")
    )


def sized(kernel: Any, width: int) -> dict[str, int]:
    own = {s for entry in (*kernel.rows, *kernel.states) for s in entry.sizes}
    return {size: width for size in sorted(own - {"C", "SOURCES"})}


def cuts(name: str, width: int, **asked: Any) -> list[list[int]]:
    """The cuts of a chunk and of its gradient, for so many memories on so many processors."""
    from importlib import import_module

    kernels, configuration, _ = model(name)
    limits = import_module(f"{configuration.__package__}.limits")
    device = limits.Limits(asked.get("processors", 132))
    work = configuration.Work(asked.get("memories", 256), asked.get("length", 4096))
    found = []
    for gradient in (False, True):
        cut = configuration.configured(
            kernels.CHUNK, sized(kernels.CHUNK, width), device, work, gradient=gradient,
            most=asked.get("most", 64),
        )  # fmt: skip
        most = configuration.entries(
            kernels.CHUNK, sized(kernels.CHUNK, width), cut, gradient=gradient
        )
        assert most <= configuration.BUDGET[gradient]
        found.append([cut.rows, cut.block, cut.warps, cut.stages])
    return found


def shapes(name: str) -> list[list[str]]:
    """The shapes of tiles that are counted in a chunk's fullest moments."""
    kernels, _, _ = model(name)
    moments = [m for form in kernels.CHUNK.alive for m in form]
    return sorted({tuple(shape) for moment in moments for shape, _ in moment})  # type: ignore[arg-type]


def refusal(name: str, width: int, gradient: bool) -> str | None:
    import torch

    kernels, _, fused = model(name)
    kernel = kernels.CHUNK
    rows = {row.name: torch.empty(()).expand(1, 64, 2, *[width] * len(row.sizes))
            for row in kernel.rows}  # fmt: skip
    states = {s.name: torch.empty(()).expand(2, *[width] * len(s.sizes)) for s in kernel.states}
    found: str | None = fused.refused(kernel, rows, states, gradient=gradient)
    return found


def test_few_memories_are_cut_into_many_blocks(interpreter) -> None:
    many, _ = interpreter(cuts, name="linear-attention", width=64)
    few, gradient = interpreter(cuts, name="linear-attention", width=64, memories=8)
    assert many == [64, 64, 8, 1]
    assert few == [64, 16, 8, 1]
    assert gradient[1] == 64
    one, _ = interpreter(cuts, name="linear-attention", width=64, memories=8, processors=1)
    assert one == many


def test_what_is_alive_decides_on_rows(interpreter) -> None:
    form, gradient = interpreter(cuts, name="gated-deltanet", width=64)
    assert gradient[0] < form[0] <= 32
    small, _ = interpreter(cuts, name="gated-deltanet", width=64, most=8)
    assert small[0] == 8


def memories(name: str | dict) -> list[int]:
    """How many tiles as large as the memory are alive, of a token and of its gradient."""
    rule = pipeline.derive(name)
    text = module.fused_kernels(rule, module.plans(rule), {}).text
    (found,) = re.findall(r"alive=(\(.*?\n    \)),", text[text.index("TOKEN = Kernel(") :], re.S)
    return [max(dict(moment)["K", "V"] for moment in form) for form in literal_eval(found)]


def test_searches_for_roots_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    form, gradient = memories("f-divergence-chi2")
    monkeypatch.setattr(alive, "SEARCHED", 0)
    plain, plain_gradient = memories("f-divergence-chi2")
    assert form > plain
    assert gradient >= plain_gradient
    assert form - plain <= 3


def test_the_search_in_a_link_s_gradient_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The entries are looked for once more where the link is differentiated."""
    spec = {
        "mnemic": 1, "name": "own", "bias": "l2", "optimizer": {"rate": "token"},
        "retention": {"local": {"bregman": "exp(w) + w**2"}},
    }  # fmt: skip
    form, gradient = memories(spec)
    monkeypatch.setattr(alive, "BACK", "no such function")
    assert memories(spec)[0] == form
    assert memories(spec)[1] == gradient - 1  # those of the form's search, which came next


def test_windows_are_counted(interpreter) -> None:
    seen = interpreter(shapes, name="swla")
    assert any("SOURCES" in shape for shape in seen)
    assert not any("SOURCES" in shape for shape in interpreter(shapes, name="gated-deltanet"))


def test_what_does_not_fit_is_refused_with_the_limit(interpreter) -> None:
    assert interpreter(refusal, name="titans", width=64, gradient=True) is None
    told = interpreter(refusal, name="lact", width=256, gradient=True)
    assert told.startswith("its kernel does not fit on chip: at K = 256, K2 = 256")
    assert told.endswith("numbers, and 600 are the limit")
