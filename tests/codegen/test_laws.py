"""What holds for every rule, whatever it is: pieces, permutations, documents, masks, limits."""

import inspect
from functools import cache
from typing import Any

import pytest
import torch
from conformance import (
    Case,
    Result,
    Sizes,
    Tensors,
    agree,
    available,
    beginning,
    chunked,
    close,
    compiled,
    error,
    every_form,
    gradients,
    having,
    in_pieces,
    inputs,
    joined,
    run,
    start,
    taking,
    weighed,
)  # fmt: skip

from mnemic.compiler import symbols as sym
from mnemic.compiler.problem import HEAD

T = 29

DECODE = tuple(("recurrent", 1) for _ in range(9))
PIECES: dict[str, tuple[tuple[str, int], ...]] = {
    "recurrent 5": (("recurrent", 5), ("recurrent", 24)),
    "recurrent 16": (("recurrent", 16), ("recurrent", 13)),
    "recurrent 20": (("recurrent", 20), ("recurrent", 9)),
    "token by token": tuple(("recurrent", 1) for _ in range(T)),
    "chunk 5": (("chunk", 5), ("chunk", 24)),
    "chunk 16": (("chunk", 16), ("chunk", 13)),
    "chunk 20": (("chunk", 20), ("chunk", 9)),
    "three chunks": (("chunk", 3), ("chunk", 17), ("chunk", 9)),
    "prefill and decode": (("chunk", 20), *DECODE),
    "mixed": (("recurrent", 7), ("chunk", 18), ("recurrent", 1), ("chunk", 3)),
    "auto": (("auto", 26), ("auto", 2), ("auto", 1)),
    "an empty piece": (("recurrent", 11), ("auto", 0), ("recurrent", 18)),
}


def _splits() -> list[tuple[str, str]]:
    return [
        (name, pieces)
        for pieces, plan in PIECES.items()
        for name in (chunked() if "chunk" in dict(plan) else available())
    ]


@pytest.mark.few
@pytest.mark.parametrize(("name", "pieces"), _splits())
def test_pieces_are_the_whole(name: str, pieces: str) -> None:
    case = compiled(name)
    arguments = inputs(case, T)
    agree(run(case, arguments, PIECES[pieces]), _whole(name))


@cache
def _whole(name: str) -> Result:
    return run(compiled(name), inputs(compiled(name), T), "recurrent")


@pytest.mark.few
@pytest.mark.parametrize("name", [n for n in chunked() if n not in having("anchor")])
def test_the_chunk_size_is_irrelevant(name: str) -> None:
    case = compiled(name)
    arguments = inputs(case, T)
    for size in (1, 2, 3, 7, 32, 64):
        agree(run(case, arguments, "chunk", chunk_size=size), _whole(name))


@pytest.mark.few
@pytest.mark.parametrize(("name", "form"), every_form())
def test_batch_is_a_set(name: str, form: str) -> None:
    case = compiled(name)
    arguments = inputs(case, 11, sizes=Sizes(batch=3))
    order = torch.tensor([2, 0, 1])
    out, state = case.operator(**arguments, form=form, output_final_state=True)
    turned = {n: x[order] for n, x in arguments.items()}
    other, last = case.operator(**turned, form=form, output_final_state=True)
    assert error(other, out[order]) <= 1e-12
    close(last, {n: x[order] for n, x in state.items()}, 1e-12)


def _head_axis(case: Case, name: str) -> int:
    micro = {c.name for c in case.signature.coefficients if c.micro}
    stepped = case.signature.steps > 1 and name in {"k", "v", *case.signature.keys, *micro}
    return 3 if stepped else 2


def _numbered(case: Case) -> bool:
    """Whether anything depends on the head's number."""
    return any(HEAD in scalar.expr.free_symbols for scalar in case.rule.scalars)


@pytest.mark.few
@pytest.mark.parametrize(("name", "form"), every_form())
def test_heads_are_a_set(name: str, form: str) -> None:
    case = compiled(name)
    if _numbered(case):
        pytest.skip("its coefficients depend on the head's number")
    arguments = inputs(case, 11, sizes=Sizes(heads=3))
    order = torch.tensor([2, 0, 1])
    out, state = case.operator(**arguments, form=form, output_final_state=True)
    turned = {n: x.index_select(_head_axis(case, n), order) for n, x in arguments.items()}
    other, last = case.operator(**turned, form=form, output_final_state=True)
    assert error(other, out[:, :, order]) <= 1e-12
    moved = {n: x if n == "position" else x[:, order] for n, x in state.items()}
    close(last, moved, 1e-12)


@pytest.mark.few
@pytest.mark.parametrize(("name", "form"), every_form())
def test_documents_are_apart(name: str, form: str) -> None:
    case = compiled(name)
    ends = torch.tensor([0, 7, 7, 20, 29])
    arguments = inputs(case, T, sizes=Sizes(batch=1))
    first = start(case, inputs(case, 1, sizes=Sizes(batch=4)))
    found = run(case, arguments, form, cu_seqlens=ends, state=first)
    leaves = {n: x.clone().requires_grad_() for n, x in arguments.items()}
    initial, (params, options) = {n: _leaf(x) for n, x in first.items()}, _begun(case, arguments)
    outs, states = [], []
    for i, (low, high) in enumerate(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)):
        piece = {n: x[:, low:high] for n, x in leaves.items()}
        own = {n: x[i : i + 1] for n, x in initial.items()}
        out, last = in_pieces(case, piece, form, own, **options)
        outs.append(out)
        states.append(last)
    whole = joined(states, _axes(case))
    leaves |= params
    _same(
        case, found.out, found.states, found.gradients, torch.cat(outs, 1), whole, leaves, initial
    )


def _begun(case: Case, arguments: Tensors) -> tuple[Tensors, dict[str, Any]]:
    """The initial duals of a deep memory, by the names of their gradients and as an option."""
    begun = beginning(case, arguments["k"], arguments["v"])
    params = {n: x.requires_grad_() for n, x in begun.items()}
    return {f"params.{n}": x for n, x in params.items()}, {"params": params} if params else {}


def _axes(case: Case) -> dict[str, str]:
    return {s.name: s.axes for s in case.signature.states}


def _leaf(x: torch.Tensor) -> torch.Tensor:
    return x.clone().requires_grad_() if x.is_floating_point() else x


def _same(
    case: Case, out: torch.Tensor, state: Tensors, grads: Tensors, expected: torch.Tensor,
    whole: Tensors, leaves: Tensors, initial: Tensors,
) -> None:  # fmt: skip
    loss = weighed(expected)
    for x in whole.values():
        loss = loss + weighed(x) if x.is_floating_point() else loss
    sources = {**leaves, **{f"initial {n}": x for n, x in initial.items() if x.requires_grad}}
    assert error(out, expected) <= 1e-9
    close(state, whole)
    close(grads, gradients(loss, sources, case))


MASKS = {
    "left": [[0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1], [1] * 11],
    "right": [[1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0]],
    "interior": [[1, 0, 1, 1, 0, 0, 1, 1, 1, 0, 1], [0, 1, 1, 1, 1, 1, 0, 1, 0, 1, 1]],
    "nothing left": [[0] * 11, [0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0]],
}


@pytest.mark.few
@pytest.mark.parametrize("which", MASKS)
@pytest.mark.parametrize(("name", "form"), every_form())
def test_masked_tokens_are_not_there(name: str, form: str, which: str) -> None:
    case = compiled(name)
    mask = torch.tensor(MASKS[which], dtype=torch.bool)
    clean = inputs(case, 11)
    garbage = torch.nan
    dirty = {n: _filled(x, mask, garbage) for n, x in clean.items()}
    first = start(case, clean)
    found = run(case, dirty, form, mask=mask, state=first)
    leaves = {n: x.clone().requires_grad_() for n, x in clean.items()}
    initial, (params, options) = {n: _leaf(x) for n, x in first.items()}, _begun(case, clean)
    outs, states = [], []
    for row in range(2):
        piece = {n: x[row : row + 1, mask[row]] for n, x in leaves.items()}
        own = {n: x[row : row + 1] for n, x in initial.items()}
        out, last = in_pieces(case, piece, form, own, **options)
        whole = torch.zeros(1, *found.out.shape[1:], dtype=torch.float64)
        outs.append(whole.index_copy(1, mask[row].nonzero()[:, 0], out))
        states.append(last)
    whole_state = joined(states, _axes(case))
    leaves |= params
    _same(
        case,
        found.out,
        found.states,
        found.gradients,
        torch.cat(outs),
        whole_state,
        leaves,
        initial,
    )


def _filled(x: torch.Tensor, mask: torch.Tensor, garbage: float) -> torch.Tensor:
    return x.masked_fill(~mask.reshape(*mask.shape, *[1] * (x.ndim - 2)), garbage)


@pytest.mark.few
@pytest.mark.parametrize(("name", "form"), every_form())
def test_groups_of_queries_share_a_memory(name: str, form: str) -> None:
    case = compiled(name)
    arguments = inputs(case, 11, sizes=Sizes(groups=3))
    found = run(case, arguments, form, state=start(case, arguments))
    single = [{**arguments, "q": arguments["q"][:, :, group::3]} for group in range(3)]
    alone = [run(case, a, form, state=start(case, arguments)) for a in single]
    for group, expected in enumerate(alone):
        assert error(found.out[:, :, group::3], expected.out) <= 1e-9
        close(found.states, expected.states)


def _read_at_start(case: Case) -> set[str]:
    """The coefficients that the state at a document's start depends on."""
    start = getattr(case.generated, "start", None)
    return set() if start is None else set(inspect.signature(start).parameters)


@pytest.mark.few
@pytest.mark.parametrize(("name", "form"), every_form())
def test_no_tokens_leave_the_state_alone(name: str, form: str) -> None:
    case = compiled(name)
    arguments = inputs(case, 0)
    state = start(case, arguments)
    found = run(case, arguments, form, state=state)
    assert found.out.shape == (2, 0, 2, arguments["v"].shape[-1])
    close(found.states, state, 1e-12)
    if set(case.operator.coefficients) & _read_at_start(case):
        with pytest.raises(ValueError, match="with T = 0 there is no token"):
            case.operator(**arguments, form=form, output_final_state=True)
        return
    out, fresh = case.operator(**arguments, form=form, output_final_state=True)
    assert out.shape[1] == 0
    five = inputs(case, 5)
    after, expected = run(case, five, form, state=fresh), run(case, five, form)
    assert error(after.out, expected.out) <= 1e-12
    close(after.states, expected.states, 1e-12)
    read = _read_at_start(case)
    close(*({n: x.gradients[n] for n in five if n not in read} for x in (after, expected)))


@pytest.mark.few
@pytest.mark.parametrize("name", chunked())
def test_one_sequence_one_head(name: str) -> None:
    case = compiled(name)
    arguments = inputs(case, T, sizes=Sizes(batch=1, heads=1, key=1, value=1))
    agree(run(case, arguments, "chunk", chunk_size=8), run(case, arguments, "recurrent"))


@pytest.mark.few
@pytest.mark.parametrize(("name", "form"), every_form())
def test_long_sequences_stay_finite(name: str, form: str) -> None:
    case = compiled(name)
    size = Sizes(batch=1, heads=1)
    length = 150 if case.rule.retained.mode == "multiplicative" else 1000  # a root a token is slow
    arguments = inputs(case, length, sizes=size, dtype=torch.float32)
    with torch.no_grad():
        out, state = case.operator(**arguments, form=form, output_final_state=True)
    assert torch.isfinite(out).all()
    assert all(torch.isfinite(x).all() for x in state.values())


# -- limits ----------------------------------------------------------------------------------


@pytest.mark.few
@pytest.mark.parametrize(
    ("name", "form"), [(n, f) for n, f in every_form() if n in having("own decay")]
)
def test_a_decay_of_one_is_no_decay(name: str, form: str) -> None:
    case = compiled(name)
    without = {"decay": 1, "row_decay": None}
    plain = compiled({"extends": name, "name": name, "retention": without})
    arguments = inputs(case, 19)
    rest = {n: x for n, x in arguments.items() if n not in ("log_alpha", "log_beta")}
    decays = {n: torch.zeros_like(x) for n, x in arguments.items() if n not in rest}
    state = start(plain, rest)
    found = run(case, {**rest, **decays}, form, state=state)
    expected = run(plain, rest, form, state=state)
    assert error(found.out, expected.out) <= 1e-9
    close({n: found.states[n] for n in expected.states}, expected.states)
    close({n: found.gradients[n] for n in expected.gradients}, expected.gradients)


@pytest.mark.few
@pytest.mark.parametrize(("spec", "form"), [(n, f) for n, f in every_form() if n in taking("eta")])
def test_a_rate_of_zero_leaves_the_decayed_state(spec: str, form: str) -> None:
    case = compiled(spec)
    if case.rule.retained.mode == "multiplicative":
        pytest.skip("its constraint scales the state anew")
    rate = sym.coefficient("eta")
    if any(expr.has(rate) for expr in case.rule.problem.keys.values()):
        pytest.skip("its write is not scaled by the rate")
    arguments = inputs(case, 19)
    for name in arguments.keys() & {"eta", "lam"}:
        arguments[name] = torch.zeros_like(arguments[name])
    state = start(case, arguments)
    if "keys" in state:  # no memory: kept keys, which a rate moves
        _, last = case.operator(
            **arguments, form=form, initial_state=state, output_final_state=True
        )  # fmt: skip
        kept = state["keys"].shape[2]
        assert error(last["keys"][:, :, :kept], state["keys"]) <= 1e-9
        assert error(last["keys"][:, :, kept:], arguments["k"].transpose(1, 2)) <= 1e-9
        return
    if case.rule.applied.normalize != "none":
        pytest.skip("its norms scale the state anew")
    for name in [n for n in state if n.rstrip("0123456789") == "S"]:
        state[name] = torch.zeros_like(state[name])
    out, last = case.operator(**arguments, form=form, initial_state=state, output_final_state=True)
    assert torch.isfinite(out).all()
    memories = [n for n in state if n.rstrip("0123456789") in ("A", "W", "U")]
    assert memories
    for memory in memories:
        held = whole(state[memory])
        found = whole(last[memory])[:, :, : held.shape[2]]
        assert error(found, _decay(arguments, held) * held) <= 1e-9


def _decay(arguments: Tensors, held: torch.Tensor) -> torch.Tensor:
    """The decay of all tokens together, as a memory has it."""
    decay = torch.ones_like(held)
    if "log_alpha" in arguments:
        total = arguments["log_alpha"].sum(1)
        decay = decay * torch.exp(total[..., None, :] if total.ndim > 2 else total[..., None, None])
    if "log_beta" in arguments:
        decay = decay * torch.exp(arguments["log_beta"].sum(1)[..., None])
    return decay


def whole(memory: torch.Tensor) -> torch.Tensor:
    """A memory [B, H, d_v, D], summed over the levels that it may have."""
    return memory.sum(2) if memory.ndim == 5 else memory


LOSSES = ["l2", "huber", "robust", {"kind": "lp", "p": 3}, {"expr": "log(cosh(e))"}]


@pytest.mark.few
@pytest.mark.parametrize("momentum", [None, "token"])
@pytest.mark.parametrize("decay", [1.0, "token", "channel"])
@pytest.mark.parametrize("bias", LOSSES, ids=str)
def test_a_window_of_one_is_online(bias: object, decay: object, momentum: str | None) -> None:
    rate = {"rate": {"from": "input", "activation": "sigmoid(x)/16"}}
    optimizer = {**rate, **({"method": "momentum", "momentum": momentum} if momentum else {})}
    spec = {
        "name": "online", "bias": bias, "retention": {"decay": decay}, "optimizer": optimizer,
        "weights": "token",
    }  # fmt: skip
    online = compiled(spec)
    wide = compiled({**spec, "window": 3, "weights": "window"})
    arguments = inputs(online, 19)
    older = torch.zeros(*arguments["gamma"].shape, 2, dtype=torch.float64)
    windowed = {**arguments, "gamma": torch.cat([older, arguments["gamma"][..., None]], -1)}
    expected = _memory_alone(online, arguments, "recurrent")
    for case, given in ((online, arguments), (wide, windowed)):
        for form in case.forms:
            close(_memory_alone(case, given, form), expected)


def _memory_alone(case: Case, arguments: Tensors, form: str) -> Tensors:
    """Output, memory and gradients, but for the window's tail and its gates."""
    leaves = {n: x.clone().requires_grad_() for n, x in arguments.items()}
    out, state = case.operator(**leaves, form=form, output_final_state=True)
    shared = {n: x for n, x in leaves.items() if n != "gamma"}
    found = gradients(weighed(out) + weighed(state["W"]), shared)
    return {"out": out.detach(), "W": state["W"].detach(), **found}
