"""What serving asks of a layer: states between tokens, a pool of them by index, in 16 bits.

What is expected is the layer on each row, document or prefix by itself, in float64.
"""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from mnemic import pipeline
from mnemic.codegen.support import pool as slots

States = dict[str, Tensor]
Layer = Any

FEW = ("gated-deltanet", "titans", "deltaformer", "lru", "atlas-mag")
"""A memory of one matrix; of layers under momentum and an anchor; kept pairs; complex numbers;
a hybrid with a window."""

OTHERS = (
    "softmax-attention", "gated-softmax", "kernel-regression", "local-linear-attention", "swla",
    "swdt", "path", "rls", "mesa", "log-linear", "retnet", "cosformer", "deltaproduct", "gsa",
    "mlstm", "lact", "atlas", "titans-mac", "titans-mal", "kl-simplex", "huber-coordinate",
    "ttt-linear", "rwkv7", "deltanet-momentum",
)  # fmt: skip

SPECS = [*FEW, *(pytest.param(name, marks=pytest.mark.full) for name in OTHERS)]

T = 11
AT = (0, 3, 4, 9, 11)


@pytest.fixture(autouse=True)
def plain() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def layer_of(name: str) -> Layer:
    return pipeline.compile(name).layer(16, heads=2).double()


def tokens(*shape: int) -> Tensor:
    return torch.randn(*shape, 16, dtype=torch.float64)


def off(found: Tensor, expected: Tensor) -> float:
    if not expected.numel():
        return 0.0
    apart = (found.double() - expected.double()).abs().max()
    return float(apart / (1 + expected.double().abs().max()))


def same(found: States, expected: States) -> None:
    """Padding behind a row's kept pairs is no part of its state."""
    assert found.keys() == expected.keys()
    for name, x in expected.items():
        whole = found[name]
        assert all(a >= b for a, b in zip(whole.shape, x.shape, strict=True)), name
        assert off(whole[tuple(slice(0, n) for n in x.shape)], x) < 1e-9, name


def part(states: States, number: int) -> States:
    return {name: x[:, number] for name, x in states.items()}


def row(states: States, number: int) -> States:
    return {name: x[number : number + 1] for name, x in states.items()}


# -- states after chosen tokens ----------------------------------------------------------------


@pytest.mark.parametrize("name", SPECS)
def test_states_between_tokens(name: str) -> None:
    layer, x = layer_of(name), tokens(2, T)
    y, last, found = layer(x, states_at=AT, output_state=True)
    whole, end = layer(x, output_state=True)
    assert off(y, whole) < 1e-9
    same(last, end)
    for number, count in enumerate(AT):
        if count:
            same(part(found, number), layer(x[:, :count], output_state=True)[1])
        if count < T:
            rest = layer(x[:, count:], state=part(found, number))
            assert off(rest, whole[:, count:]) < 1e-9


@pytest.mark.parametrize("name", SPECS)
def test_each_row_continues_from_the_prefix_that_was_accepted(name: str) -> None:
    """Two rows guess four tokens; of one row three are right, of the other none."""
    layer, x, more = layer_of(name), tokens(2, 9), tokens(2, 3)
    _, state = layer(x[:, :5], output_state=True)
    _, found = layer(x[:, 5:], state=state, states_at=range(5))
    accepted = torch.tensor([3, 0])
    y = layer(more, state=layer.state_at(found, accepted))
    for number, count in enumerate(accepted.tolist()):
        own = slice(number, number + 1)
        text = torch.cat([x[own, : 5 + count], more[own]], 1)
        assert off(y[own], layer(text)[:, 5 + count :]) < 1e-9


@pytest.mark.parametrize("name", SPECS)
def test_states_between_tokens_of_padded_rows(name: str) -> None:
    layer, x = layer_of(name), tokens(2, T)
    mask = torch.ones(2, T, dtype=torch.bool)
    mask[0, 1] = mask[1, 4:6] = mask[1, 10] = False
    y, found = layer(x.masked_fill(~mask[..., None], float("nan")), states_at=AT, mask=mask)
    assert off(y, layer(x, mask=mask)) < 1e-9
    for number, count in enumerate(AT[1:], 1):
        for own in range(2):
            text = x[own : own + 1, :count][:, mask[own, :count]]
            same(row(part(found, number), own), layer(text, output_state=True)[1])


@pytest.mark.parametrize("name", SPECS)
def test_states_between_tokens_of_documents(name: str) -> None:
    layer, x = layer_of(name), tokens(1, T)
    ends = torch.tensor([0, 4, 4, T])
    y, last, found = layer(x, states_at=(2, 4, 9), cu_seqlens=ends, output_state=True)
    whole, end = layer(x, cu_seqlens=ends, output_state=True)
    assert off(y, whole) < 1e-9
    same(last, end)
    for number, (low, high) in enumerate(((0, 2), (0, 4), (4, 9))):
        same(part(found, number), layer(x[:, low:high], output_state=True)[1])


def test_gradients_go_through_states_between() -> None:
    layer, x = layer_of("gated-deltanet"), tokens(1, 7)

    def slope(run: Callable[[Tensor], Tensor]) -> Tensor:
        leaf = x.clone().requires_grad_()
        with torch.enable_grad():
            return torch.autograd.grad(run(leaf).sin().sum(), leaf)[0]

    found = slope(lambda x: layer(x, states_at=(2, 5))[1]["W"][:, 1])
    expected = slope(lambda x: layer(x[:, :5], output_state=True)[1]["W"])
    assert off(found, expected) < 1e-12
    assert expected.abs().max() > 0


WRONG = [
    ((3, 3), r"states_at: read \[3, 3\], numbers of tokens that rise, from 0 to T = 11, are need"),
    ((4, 12), r"states_at: read \[4, 12\]"), ((-1,), r"states_at: read \[-1\]"),
    ((1.5,), r"states_at: read \(1.5,\)"), ("3", "states_at: read 3"), (5, "states_at: read 5"),
    (torch.tensor([2.0]), r"states_at: read \[2.0\]"),
]  # fmt: skip


@pytest.mark.parametrize(("at", "told"), WRONG)
def test_wrong_numbers_are_told(at: Any, told: str) -> None:
    layer = layer_of("gated-deltanet")
    with pytest.raises(ValueError, match=told):
        layer(tokens(1, T), states_at=at)


def test_no_document_has_the_state_before_all() -> None:
    layer = layer_of("gated-deltanet")
    with pytest.raises(ValueError, match=r"states_at: read \[0, 4\], .* from 1 to T = 11"):
        layer(tokens(1, T), states_at=(0, 4), cu_seqlens=torch.tensor([0, T]))


def test_numbers_in_a_tensor_and_none() -> None:
    layer, x = layer_of("gated-deltanet"), tokens(1, T)
    _, found = layer(x, states_at=torch.tensor([2, 5]))
    assert list(found["W"].shape) == [1, 2, 2, 8, 8]
    y, none = layer(x, states_at=())
    assert off(y, layer(x)) < 1e-12
    assert none == {}


# -- a pool ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SPECS)
def test_rows_step_in_slots_of_a_pool(name: str) -> None:
    layer, x = layer_of(name), tokens(2, T)
    _, state = layer(x[:, :5], output_state=True)
    _, other = layer(x[1:, :3], output_state=True)
    pool = layer.pool(state, 4, tokens=T)
    places = {n: p.data_ptr() for n, p in pool.items()}
    layer.put(pool, torch.tensor([3, -1]), state)  # the second row has no sequence
    layer.put(pool, torch.tensor([1]), other)
    same(layer.take(pool, torch.tensor([3])), row(state, 0))
    expected = [layer(x[:1]), layer(x[1:])]
    for count in range(3):
        rows = torch.stack([x[0, 5 + count], torch.full((16,), float("nan")), x[1, 3 + count]])
        y = layer.advance(rows.double(), pool, indices=torch.tensor([3, -1, 1]))
        assert off(y[0], expected[0][0, 5 + count]) < 1e-9
        assert off(y[2], expected[1][0, 3 + count]) < 1e-9
        assert not y[1].any()
    same(row(pool, 3), layer(x[:1, :8], output_state=True)[1])
    same(row(pool, 1), layer(x[1:, :6], output_state=True)[1])
    for own, p in pool.items():
        assert p.data_ptr() == places[own]
        assert not p[0].any()
        assert not p[2].any()


@pytest.mark.parametrize("name", SPECS)
def test_rows_without_a_sequence_alone_move_nothing(name: str) -> None:
    layer, x = layer_of(name), tokens(1, 5)
    _, state = layer(x, output_state=True)
    pool = {n: p.clone() for n, p in state.items()}
    y = layer.advance(x[:, 0] * float("nan"), pool, indices=torch.tensor([-1]))
    assert not y.any()
    assert {n for n, p in pool.items() if not torch.equal(p, state[n])} == set()


def test_nothing_has_to_be_read_to_move_on() -> None:
    """As on a device, where numbers are not read: a batch without any sequence too."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Reads(TorchDispatchMode):
        seen: ClassVar[list[str]] = []

        def __torch_dispatch__(self, f: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if f.name() in ("aten::_local_scalar_dense", "aten::nonzero", "aten::equal"):
                self.seen.append(f.name())
            return f(*args, **(kwargs or {}))

    layer, x = layer_of("gated-deltanet"), tokens(3, 1)
    _, state = layer(tokens(2, 5), output_state=True)
    for indices in ([1, -1, 0], [-1, -1, -1]):
        pool = {n: p.clone() for n, p in state.items()}
        with Reads():
            places = slots.Places.of(torch.tensor(indices))
            own = slots.taken(pool, places)
            rows = slots.rows(x[:, 0], places)
            _, after = layer.step(rows, own)
            slots.put(layer.signature, pool, places, after)
        assert Reads.seen == []
        moved = [n for n, p in pool.items() if not torch.equal(p, state[n])]
        assert moved == ([] if max(indices) < 0 else list(pool))


def test_a_pool_without_room_for_more_pairs_is_told() -> None:
    layer, x = layer_of("softmax-attention"), tokens(1, 5)
    _, state = layer(x, output_state=True)
    pool = layer.pool(state, 2, tokens=6)
    layer.put(pool, torch.tensor([0]), state)
    layer.advance(x[:, 0], pool, indices=torch.tensor([0]))
    told = (
        r"pool\['keys'\]: read room for \[2, 6, 8\], the next has \[2, 7, 8\]; make the pool with"
    )
    with pytest.raises(ValueError, match=told):
        layer.advance(x[:, 0], pool, indices=torch.tensor([0]))


SLOTS = [
    (torch.tensor([0, 0]), r"indices: read \[0, 0\], -1 or slots from 0 to 2 are allowed, each"),
    (torch.tensor([0, 3]), r"indices: read \[0, 3\]"), (torch.tensor([-2, 1]), r"read \[-2, 1\]"),
    (torch.tensor([0]), r"read torch.int64 \[1\], torch.int32 or torch.int64 \[2\] needed"),
    (torch.tensor([0.0, 1.0]), r"indices: read torch.float32"), ([0, 1], "indices: read list"),
]  # fmt: skip


@pytest.mark.parametrize(("indices", "told"), SLOTS)
def test_wrong_slots_are_told(indices: Any, told: str) -> None:
    layer = layer_of("gated-deltanet")
    pool = layer.pool(layer(tokens(1, 3), output_state=True)[1], 3)
    with pytest.raises(ValueError, match=told):
        layer.advance(tokens(2), pool, indices=indices)


STATES = [
    (torch.tensor([1, 0]), r"index: read torch.int64 \[2\], torch.int32 or torch.int64 \[3\]"),
    (torch.tensor([-1, 0, 0]), r"read \[-1, 0, 0\], numbers of states from 0 to 4 are allowed"),
    (torch.tensor([5, 0, 0]), r"index: read \[5, 0, 0\]"), ([4, 1, 0], "index: read list"),
    (torch.tensor([[4, 1, 0]]), r"index: read torch.int64 \[1, 3\]"),
]  # fmt: skip


@pytest.mark.parametrize(("index", "told"), STATES)
def test_wrong_numbers_of_states_are_told(index: Any, told: str) -> None:
    layer = layer_of("gated-deltanet")
    _, states = layer(tokens(3, 4), states_at=range(5))
    with pytest.raises(ValueError, match=told):
        layer.state_at(states, index)


def test_a_row_for_every_slot() -> None:
    layer = layer_of("gated-deltanet")
    _, state = layer(tokens(3, 4), output_state=True)
    pool = layer.pool(state, 8)
    with pytest.raises(
        ValueError, match=r"\['W'\]: read shape \[3, 2, 8, 8\], expected \[2, …\]: a"
    ):
        layer.put(pool, torch.tensor([6, 0]), state)
    assert not any(p.any() for p in pool.values())
    with pytest.raises(ValueError, match="indices: read list, a torch"):
        layer.put(pool, [6, 0, 3], state)
    with pytest.raises(ValueError, match="indices: read list"):
        layer.take(pool, [6])
    with pytest.raises(ValueError, match=r"expected \[3, …\]: indices= names the slots of a pool"):
        layer.advance(tokens(3), pool)


@pytest.mark.parametrize("slots", [0, -1, 2.5, True])
def test_a_pool_has_a_slot_at_least(slots: Any) -> None:
    layer = layer_of("gated-deltanet")
    _, state = layer(tokens(1, 3), output_state=True)
    with pytest.raises(ValueError, match=f"slots: read {slots}, a whole number of at least 1"):
        layer.pool(state, slots)
    with pytest.raises(ValueError, match="tokens: read -1, a whole number of at least 0"):
        layer.pool(state, 2, tokens=-1)


# -- 16 bits -----------------------------------------------------------------------------------


def rounded(state: States) -> States:
    """What is kept between calls: single numbers of weights and positions as they are."""
    alone = ("angle", "position", "tokens", "log_kept", "m")
    found = {}
    for name, x in state.items():
        stays = name.rpartition(".")[2] in alone
        found[name] = x if stays or not x.is_floating_point() else x.bfloat16()
    return found


SOLVED = ("kernel-regression", "rls", "mesa")


@pytest.mark.parametrize(
    "name", [s for s in SPECS if (s if isinstance(s, str) else s.values[0]) not in SOLVED]
)
def test_states_in_16_bits_are_rounded_once_a_call(name: str) -> None:
    layer, x = layer_of(name), tokens(2, 8)
    _, found = layer(x[:, :5], output_state=True, state_dtype=torch.bfloat16)
    expected = rounded(layer(x[:, :5], output_state=True)[1])
    for count in range(5, 8):
        assert {n: s.dtype for n, s in found.items()} == {n: s.dtype for n, s in expected.items()}
        same(found, expected)
        y, found = layer.step(x[:, count], found, state_dtype=torch.bfloat16)
        z, exact = layer.step(x[:, count], {n: s.clone() for n, s in expected.items()})
        expected = rounded(exact)
        assert off(y, z) < 1e-12
    assert any(s.dtype == torch.bfloat16 for s in found.values())


def test_a_pool_in_16_bits() -> None:
    layer, x = layer_of("gated-deltanet"), tokens(2, 12)
    _, state = layer(x[:, :5], output_state=True, state_dtype=torch.bfloat16)
    pool, plain = layer.pool(state, 2), {n: s.clone() for n, s in state.items()}
    assert {p.dtype for p in pool.values()} == {torch.bfloat16}
    indices = torch.tensor([1, 0])
    layer.put(pool, indices, state)
    for count in range(5, 12):
        y = layer.advance(x[:, count], pool, indices=indices)
        z = layer.advance(x[:, count], plain)
        assert off(y, z) < 1e-12
    same(layer.take(pool, indices), plain)
    whole = layer(x)
    assert 1e-6 < off(y, whole[:, -1]) < 0.02


@pytest.mark.parametrize("name", SOLVED)
def test_what_systems_are_solved_with_is_not_rounded(name: str) -> None:
    layer, x = layer_of(name), tokens(1, 5)
    told = r"state_dtype: read torch.bfloat16, but systems are solved with .*float32 is allowed"
    with pytest.raises(ValueError, match=told):
        layer(x, output_state=True, state_dtype=torch.bfloat16)
    _, state = layer(x, output_state=True, state_dtype=torch.float32)
    short = {n: s.bfloat16() if s.is_floating_point() else s for n, s in state.items()}
    with pytest.raises(ValueError, match=r"state\['\w+'\]: read torch.bfloat16, but systems"):
        layer.advance(x[:, 0], short)


def test_another_dtype_is_refused() -> None:
    layer = layer_of("gated-deltanet")
    told = "state_dtype: read torch.int8, allowed: torch.bfloat16, torch.float16, torch.float32, "
    with pytest.raises(ValueError, match=told):
        layer(tokens(1, 3), output_state=True, state_dtype=torch.int8)
