"""How kernels are launched: as operators of torch, without a value read back, documents at once."""

import importlib
import os
from collections.abc import Callable
from functools import wraps
from typing import Any

import pytest
from conformance import apart
from tiers import first_only

COMPILED = {
    "deltanet": 20,
    "ttt-linear": 20,  # intervals of the document
    "cosformer": 18,  # positions
    "mamba": 18,  # lanes
    "deltaformer": 20,  # kept pairs
    "huber-norm": 20,  # block by block
}
"""Specs and how many tokens: chunks from 16 on."""

BY_BLOCKS = ("huber-norm",)
"""Specs whose kernels are to go along their memories although registers would hold them."""

LENGTHS = (1, 0, 17, 9, 0)
PACKED = ("deltanet", "ttt-linear", "cosformer", "mamba", "deltaproduct", "swla")


def made(name: str, folder: str) -> Any:
    """A compiled spec in a folder of its own, and its operator."""

    return apart(name, f"{folder}/{name}")


def weighed(tensors: Any) -> Any:
    """A number that every entry enters with a weight of its own."""
    import torch

    found = [(x * torch.cos(torch.arange(x.numel()).to(x)).view(x.shape)).sum() for x in tensors]
    return torch.stack(found).sum()


def ends_of(out: Any, state: Any) -> dict[str, Any]:
    return {"out": out, **{f"state {n}": x for n, x in state.items()}}


def unchecked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Outside of debug mode, whose checks read values."""

    @wraps(function)
    def called(**arguments: Any) -> Any:
        told = os.environ.pop("MNEMIC_DEBUG", None)
        try:
            return function(**arguments)
        finally:
            if told is not None:
                os.environ["MNEMIC_DEBUG"] = told

    return called


@unchecked
def compiled_differences(
    name: str, tokens: int, folder: str, packed: bool = False
) -> dict[str, float]:
    """How far results of torch.compile are from the eager ones: from a start, then from a state."""
    import torch
    from conformance import Sizes, beginning, compiled, inputs

    torch._dynamo.reset()
    found, case = made(name, folder), compiled(name)
    rule = found.operator
    fused = importlib.import_module(f"{found.module.__name__}.support.fused")
    given = inputs(case, tokens, sizes=Sizes(1, tokens, 2, 4, 4))
    params = beginning(case, given["k"], given["v"])
    given = {n: x.requires_grad_() for n, x in given.items()}

    def call(arguments: Any, state: Any) -> Any:
        return rule(
            **arguments, params=params, form="triton", initial_state=state, output_final_state=True,
            cu_seqlens=torch.tensor([0, 1, 1, tokens]) if packed else None,
        )  # fmt: skip

    def everything(run: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        state: Any = {}
        for number in ("first", "second"):
            begun = {n: x.detach().clone() for n, x in state.items()}
            floating = {n: x.requires_grad_() for n, x in begun.items() if x.is_floating_point()}
            out, state = run(given, begun)
            ends = ends_of(out, state)
            leaves = {**given, **floating}
            loss = weighed([x for x in ends.values() if x.requires_grad])
            slopes = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
            told = zip(leaves, slopes, strict=True)
            found |= {f"{number} {n}": x.detach() for n, x in ends.items()}
            found |= {f"{number} gradient of {n}": x for n, x in told if x is not None}
        return found

    with fused.sweeping(always=name in BY_BLOCKS):
        expected = everything(call)
        seen = everything(torch.compile(call, fullgraph=True, backend="aot_eager"))
    assert expected.keys() == seen.keys()
    return {n: float((x.double() - seen[n].double()).abs().max()) for n, x in expected.items()}


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "name", first_only(COMPILED, "ttt-linear", "cosformer", "deltaformer", "huber-norm")
)
def test_one_graph(interpreter: Any, name: str, tmp_path: Any) -> None:
    found = interpreter(
        compiled_differences, name=name, tokens=COMPILED[name], folder=str(tmp_path)
    )
    assert sum("gradient of" in part for part in found) >= 6
    assert {part: error for part, error in found.items() if not error <= 1e-12} == {}


@unchecked
def lengths_differences(name: str, folder: str) -> dict[str, Any]:
    """How many graphs several lengths take, how often kernels start, and how far results are."""
    import torch
    from conformance import Sizes, beginning, compiled, inputs
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    found, case = made(name, folder), compiled(name)
    rule, launching = found.operator, found.module.__name__ + ".support.launch"
    launch, starts = importlib.import_module(launching).Launch, []
    start = launch.start
    launch.start = lambda self, *given: (starts.append(self.total), start(self, *given))[1]
    counted = CompileCounterWithBackend("aot_eager")
    call = torch.compile(rule, backend=counted, fullgraph=True)
    apart = {}
    for tokens in (20, 24, 33):
        given = inputs(case, tokens, sizes=Sizes(1, tokens, 2, 4, 4))
        params = beginning(case, given["k"], given["v"])
        given = {n: x.requires_grad_() for n, x in given.items()}

        def run(call: Any, form: str, given: Any = given, params: Any = params) -> Any:
            out, state = call(**given, params=params, form=form, output_final_state=True)
            ends = ends_of(out, state)
            loss = weighed([x for x in ends.values() if x.requires_grad])
            slopes = torch.autograd.grad(loss, list(given.values()), allow_unused=True)
            told = zip(given, slopes, strict=True)
            return ends | {f"gradient of {n}": x for n, x in told if x is not None}

        seen, expected = run(call, "triton"), run(rule, "recurrent")
        for part, x in expected.items():
            apart[f"{tokens} {part}"] = float((x - seen[part]).detach().double().abs().max())
    launch.start = start
    return {"graphs": counted.frame_count, "starts": starts, "apart": apart}


@pytest.mark.full
@pytest.mark.parametrize(
    "name",
    ["ttt-linear", *(pytest.param(name, marks=pytest.mark.full) for name in
                     ("gated-deltanet", "swla", "lru", "bregman-sigmoid"))],
)  # fmt: skip
def test_one_graph_for_all_lengths(interpreter: Any, name: str, tmp_path: Any) -> None:
    """Chunks that end at an anchor's multiples, plain ones, windows, lanes of numbers, tokens."""
    found = interpreter(lengths_differences, name=name, folder=str(tmp_path))
    assert found["graphs"] == 2, "one for the first length, one for all others"
    assert {20, 24, 33} <= set(found["starts"]), "kernels ran at every length"
    wrong = {part: x for part, x in found["apart"].items() if not x <= 1e-12}
    assert wrong == {}


@pytest.mark.full
def test_one_graph_of_documents(interpreter: Any, tmp_path: Any) -> None:
    found = interpreter(
        compiled_differences, name="deltanet", tokens=20, folder=str(tmp_path), packed=True
    )
    assert {part: error for part, error in found.items() if not error <= 1e-12} == {}


@unchecked
def operators_checked(name: str, tokens: int, folder: str) -> list[str]:
    """The operators of a call and its gradient, each checked by torch."""
    import torch
    from conformance import Sizes, compiled, inputs
    from torch.utils._python_dispatch import TorchDispatchMode

    rule = made(name, folder).operator
    given = inputs(compiled(name), tokens, sizes=Sizes(1, tokens, 1, 4, 4))
    calls = []

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            if func.namespace == "mnemic":
                calls.append((func, args))
            return func(*args, **(kwargs or {}))

    leaves = {n: x.requires_grad_() for n, x in given.items()}
    with Seen():
        out, _ = rule(**leaves, form="triton")
        out.sum().backward()
    names = []
    for operator, args in calls:
        own = [_leaf(x) for x in args] if operator.name().endswith("forward") else args
        checks = ("test_schema", "test_autograd_registration", "test_faketensor")
        checks += ("test_aot_dispatch_static",) if operator.name().endswith("forward") else ()
        torch.library.opcheck(operator, tuple(own), test_utils=checks)
        names.append(operator.name().rsplit("_", 1)[1])
    return names


def _leaf(x: Any) -> Any:
    import torch

    if isinstance(x, list):
        return [_leaf(y) for y in x]
    if isinstance(x, torch.Tensor) and x.is_floating_point():
        return x.detach().clone().requires_grad_()
    return x


@pytest.mark.some(2)
@pytest.mark.parametrize("name", ["deltanet", "mamba", "deltaformer"])
def test_operators_by_torchs_own_checks(interpreter: Any, name: str, tmp_path: Any) -> None:
    found = interpreter(operators_checked, name=name, tokens=18, folder=str(tmp_path))
    assert found == ["forward", "backward"]


@unchecked
def without_data(name: str, tokens: int, folder: str) -> dict[str, list[Any]]:
    """Shapes and dtypes of a call, a call from its state, and gradients, of tensors without data.

    Any value that is read raises, as a tensor without data has none. Beside them those of the
    same call with data.
    """
    import torch
    from conformance import Sizes, beginning, compiled, inputs
    from torch._subclasses.fake_tensor import FakeTensorMode

    rule = made(name, folder).operator
    case = compiled(name)
    given = inputs(case, tokens, sizes=Sizes(2, tokens, 2, 4, 4))
    given = {n: x.float() for n, x in given.items()}

    def everything(own: Any) -> dict[str, Any]:
        params = {n: torch.ones_like(x) for n, x in beginning(case, own["k"], own["v"]).items()}
        leaves = {n: x.requires_grad_() for n, x in own.items()}
        options = {"params": params, "form": "triton", "output_final_state": True}
        out, state = rule(**leaves, **options)
        ends = [x for x in (out, *state.values()) if x.requires_grad]
        slopes = torch.autograd.grad(
            [x.sum() for x in ends], list(leaves.values()), allow_unused=True
        )
        begun = {n: x.detach() for n, x in state.items()}
        one = {n: x[:, :1].detach() for n, x in own.items()}
        with torch.no_grad():
            after, last = rule(**one, **options, initial_state=begun)
        found = {**ends_of(out, state), **{f"next {n}": x for n, x in ends_of(after, last).items()}}
        found |= {f"d_{n}": x for n, x in zip(leaves, slopes, strict=True) if x is not None}
        return {n: [list(x.shape), str(x.dtype), list(x.stride())] for n, x in found.items()}

    real = everything({n: x.clone() for n, x in given.items()})
    with FakeTensorMode():
        fake = everything({n: torch.empty(x.shape, dtype=x.dtype) for n, x in given.items()})
    assert fake.keys() == real.keys()
    return {n: [fake[n], real[n]] for n in real}


@pytest.mark.parametrize(
    "name",
    first_only(["deltanet", "ttt-linear", "cosformer", "mamba", "swla"], "ttt-linear", "mamba"),
)
def test_no_value_is_read_back(interpreter: Any, name: str, tmp_path: Any) -> None:
    found = interpreter(without_data, name=name, tokens=20, folder=str(tmp_path))
    assert {n: both for n, both in found.items() if both[0] != both[1]} == {}


def documents_apart(name: str, lengths: list[int], folder: str) -> dict[str, float]:
    """How far documents in one launch are from the recurrence on each: outputs, states, gradients.

    Each begins with a state of its own; pieces are short, so that gradients have several.
    """
    import importlib

    import torch
    from conformance import Sizes, beginning, compiled, inputs

    case, found = compiled(name), made(name, folder)
    package = found.module.__name__
    importlib.import_module(f"{package}.support.fused").PIECE.update({True: 2, False: 5})
    launch = importlib.import_module(f"{package}.support.launch").Launch
    ends = torch.tensor([0, *lengths]).cumsum(0)
    total, width = int(ends[-1]), 5
    given = inputs(case, total, sizes=Sizes(1, total, 2, 5, width))
    earlier = inputs(case, 3, sizes=Sizes(len(lengths), 3, 2, 5, width))
    params = beginning(case, given["k"], given["v"]) if case.signature.params else {}
    rule, grids = found.operator, []
    begun = rule(**earlier, params=params, form="recurrent", output_final_state=True)[1]
    if "position" in begun:
        begun["position"] = begun["position"] + torch.arange(len(lengths))
    plain = launch._start

    def start(self: Any, function: Any, *rest: Any) -> None:
        grids.append(self.sequences)
        plain(self, function, *rest)

    launch._start = start
    results = []
    for form in ("recurrent", "triton"):
        own = {n: x.clone().requires_grad_() for n, x in given.items()}
        own_params = {n: x.clone().requires_grad_() for n, x in params.items()}
        state = {n: x.detach().clone() for n, x in begun.items()}
        state = {n: x.requires_grad_(x.is_floating_point()) for n, x in state.items()}
        options = {"chunk_size": 8} if form == "triton" else {}
        out, last = rule(
            **own, params=own_params, form=form, initial_state=state, output_final_state=True,
            cu_seqlens=ends, **options,
        )  # fmt: skip
        parts = ends_of(out, last)
        floating = {n: x for n, x in state.items() if x.requires_grad}
        leaves = {**own, **own_params, **{f"initial {n}": x for n, x in floating.items()}}
        loss = weighed([x for x in parts.values() if x.requires_grad])
        slopes = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
        parts |= {f"d_{n}": x for n, x in zip(leaves, slopes, strict=True) if x is not None}
        results.append(parts)
    assert set(grids) == {len(lengths)}
    one, two = results
    return {n: float((x.double() - two[n].double()).abs().max() / (1 + x.double().abs().max()))
            for n, x in one.items() if x.numel()}  # fmt: skip


@pytest.mark.some(1)
@pytest.mark.parametrize("name", first_only(PACKED, "ttt-linear", "mamba", "swla"))
def test_documents_in_one_launch(interpreter: Any, name: str, tmp_path: Any) -> None:
    found = interpreter(documents_apart, name=name, lengths=list(LENGTHS), folder=str(tmp_path))
    assert sum(part.startswith("d_") for part in found) >= 4
    assert {part: error for part, error in found.items() if not error <= 1e-10} == {}


def without_kernels(name: str, folder: str) -> dict[str, float]:
    """How far calls are from the recurrence whose sizes every kernel refuses: documents packed into
    a row, and rows of a batch, that begin with states at different positions."""
    import importlib
    import warnings

    import torch
    from conformance import Sizes, beginning, compiled, inputs

    case, made_of = compiled(name), made(name, folder)
    fused = importlib.import_module(f"{made_of.module.__name__}.support.fused")
    fused.LIMIT = fused.ALONG = 0
    fused.run = None
    rule, lengths = made_of.operator, torch.tensor(LENGTHS)
    earlier = inputs(case, 3, sizes=Sizes(len(lengths), 3, 2, 5, 5))
    params = beginning(case, earlier["k"], earlier["v"]) if case.signature.params else {}
    begun = rule(**earlier, params=params, form="recurrent", output_final_state=True)[1]
    if "position" in begun:
        begun["position"] = begun["position"] + torch.arange(len(lengths))
    total, batch = int(lengths.sum()), len(lengths)
    calls = {
        "documents": (
            Sizes(1, total, 2, 5, 5),
            {"cu_seqlens": torch.tensor([0, *lengths.cumsum(0)])},
        ),
        "rows": (Sizes(batch, 21, 2, 5, 5), {}),
    }
    found = {}
    for kind, (sizes, options) in calls.items():
        given = inputs(case, sizes.tokens, sizes=sizes)
        results = []
        for form in ("recurrent", "triton"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that another form runs is said once
                out, last = rule(
                    **given, params=params, form=form, initial_state=dict(begun),
                    output_final_state=True, **options,
                )  # fmt: skip
            results.append(ends_of(out, last))
        one, two = results
        found |= {
            f"{kind}: {n}": float((x.double() - two[n].double()).abs().max())
            for n, x in one.items()
        }
    return found


@pytest.mark.parametrize("name", ["deltanet", "ttt-linear", "swla", "titans"])
def test_where_kernels_refuse_all_documents_and_rows_are_right(
    interpreter: Any, name: str, tmp_path: Any
) -> None:
    found = interpreter(without_kernels, name=name, folder=str(tmp_path))
    assert {part: error for part, error in found.items() if not error <= 1e-10} == {}


def names_of_two(folder: str) -> list[list[str]]:
    """The operators' names of the same code in two folders."""
    import importlib
    from pathlib import Path

    found = []
    for place in ("one", "two"):
        package = made("deltanet", f"{folder}/{place}").module.__name__
        kernels = importlib.import_module(f"{package}.kernels")
        found.append([k.operators.forward.name() for k in (kernels.CHUNK, kernels.TOKEN)])
    texts = {p.read_text("utf-8") for p in Path(folder).glob("*/deltanet/kernels.py")}
    assert len(texts) == 1
    return found


@pytest.mark.full
def test_the_same_code_twice(interpreter: Any, tmp_path: Any) -> None:
    one, two = interpreter(names_of_two, folder=str(tmp_path))
    assert len({*one, *two}) == 4
    assert {name.split("_")[1] for name in one} == {name.split("_")[1] for name in two}
