"""A layer's token through its kernel on states that lie in slots of a pool."""

import pytest
import torch

from mnemic import pipeline

RATE = {"from": "input", "per": "head", "activation": "exp(-x**2)/4"}
OWN = {"mnemic": 1, "name": "own", "bias": {"expr": "log(cosh(e))"}, "optimizer": {"rate": RATE}}

SPECS = {
    "matrices": "gated-deltanet",
    "a normaliser and a maximum": "mlstm",
    "positions and groups": {
        **OWN, "retention": {"decay": "channel"},
        "block": {"rotary": True, "groups": 2, "heads": 4},
    },
    "a window of gated tokens": {
        **OWN, "window": 3, "weights": "token", "retention": {"decay": "token"},
    },
    "an anchor": {
        **OWN, "retention": {"decay": "token", "order": "after"},
        "optimizer": {"rate": RATE, "anchor": {"chunk": 4}}, "readout": {"memory": "anchor"},
    },
    "layers": "ttt-mlp",
}  # fmt: skip


def apart(spec: object, values: int, dtype: str) -> dict:
    """How far outputs and slots are from the layer's PyTorch steps on each row; launches."""
    import importlib

    from test_step import begun

    module = pipeline.compile(spec).module
    step, cuts, buffers = (importlib.import_module(f"{module.__name__}.support.{n}")
                           for n in ("step", "step_cut", "buffers"))  # fmt: skip
    before = cuts.ENTRIES, cuts.MOST_WARPS, step.begin
    if values > 16:  # blocks of values, which share tails and normalisers
        cuts.ENTRIES, cuts.MOST_WARPS = 1, 4
    grids = []
    step.begin = lambda f, grid, *rest: (grids.append(list(grid)), before[2](f, grid, *rest))
    kept = getattr(torch, dtype)
    layer = begun(module, torch.float64 if kept == torch.float64 else torch.float32, values)
    x = torch.randn(3, 9, layer.dim).to(layer.out.weight)
    found: dict = {}

    def far(name: str, one: torch.Tensor, other: torch.Tensor) -> None:
        gap = (one.double() - other.double()).abs().max() / (1 + other.double().abs().max())
        found[name] = max(found.get(name, 0.0), float(gap))

    try:
        with torch.no_grad(), buffers.watched():
            _, state = layer(x[:, :3], output_state=True, form="recurrent", state_dtype=kept)
            pool = layer.pool(state, 5)
            layer.put(pool, torch.tensor([4, 1, 2]), state)
            places = {n: p.data_ptr() for n, p in pool.items()}
            untouched = {n: p[[0, 2, 3]].clone() for n, p in pool.items()}
            for x_t in x[:, 3:].unbind(1):
                y, state = layer.step(x_t, state, form="recurrent", state_dtype=kept)
                rows = torch.stack([x_t[1], torch.full_like(x_t[0], float("nan")), x_t[0]])
                indices = torch.tensor([1, -1, 4])
                z = layer.advance(rows, pool, indices=indices, form="triton")
                far("y", z[[2, 0]], y[:2])
                far("a row without a sequence", z[1], torch.zeros_like(z[1]))
                for name, s in state.items():
                    far(name, pool[name][[4, 1]], s[:2])
            for name, s in untouched.items():
                far(f"{name}, other slots", pool[name][[0, 2, 3]], s)
            whole = {n: p.clone() for n, p in pool.items()}
            none = layer.advance(x_t, pool, indices=torch.tensor([-1] * 3), form="triton")
            far("rows without sequences alone", none, torch.zeros_like(none))
            for name, s in whole.items():
                far(f"{name} then", pool[name], s)
    finally:
        cuts.ENTRIES, cuts.MOST_WARPS, step.begin = before
    assert {n: p.data_ptr() for n, p in pool.items()} == places
    return {"apart": found, "grids": grids}


@pytest.mark.parametrize(("name", "values"), [
    ("matrices", 10), ("matrices", 40),
    pytest.param("positions and groups", 6, marks=pytest.mark.full),
    pytest.param("a normaliser and a maximum", 40, marks=pytest.mark.full),
    pytest.param("an anchor", 10, marks=pytest.mark.full),
    pytest.param("a window of gated tokens", 40, marks=pytest.mark.full),
    pytest.param("layers", 10, marks=pytest.mark.full),
])  # fmt: skip
def test_slots_move_as_rows_do(interpreter, name: str, values: int) -> None:
    found = interpreter(apart, spec=SPECS[name], values=values, dtype="float64")
    assert found["grids"], "no kernel ran"
    assert any(grid[1] > 1 for grid in found["grids"]) == (values > 16)
    assert {n: x for n, x in found["apart"].items() if not x <= 1e-12} == {}


def test_slots_of_16_bits(interpreter) -> None:
    """Loaded and stored as they are; what is computed between is float32. Triton's interpreter cuts
    digits off where PyTorch (and a device) rounds: one place of 16 bits a token."""
    found = interpreter(apart, spec="gated-deltanet", values=10, dtype="bfloat16")
    assert found["grids"]
    assert {n: x for n, x in found["apart"].items() if not x <= 2**-6} == {}


def compiled(name: str) -> dict:
    """The kernels of a token whose states lie in slots, compiled for sm_90, and their troubles."""
    from dataclasses import replace

    from mnemic.kernels.jobs import Subject
    from mnemic.kernels.limits import target
    from mnemic.kernels.offline import compiling

    subject = Subject.of(pipeline.compile(name).module, 64, torch.bfloat16)
    launching = subject.support.Launch
    plain = launching.result

    def in_slots(self: object, *, in_place: bool) -> object:
        rows = torch.zeros(self.mixed.shape[0], dtype=torch.int64, device=self.mixed.device)
        return plain(replace(self, slots=rows), in_place=True)

    launching.result = in_slots
    try:
        with compiling(target("sm_90")) as log:
            subject.step()
    finally:
        launching.result = plain
    return {kernel.name: kernel.troubles for kernel in log.kernels}


def test_it_compiles_for_a_device(compiler) -> None:
    assert compiler(compiled, name="gated-deltanet") == {"step_kernel": []}
