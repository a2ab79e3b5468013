"""Hybrids of memory and attention against loops that see one token, one head, one key at a time."""

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from conformance import close
from torch import Tensor

from mnemic.codegen.package import load, support
from mnemic.pipeline import compile as compile_spec

DIM, HEADS, TOKENS = 16, 4, 11
MEMORIES = ("gla", "gated-deltanet", "titans-linear", "rls", "gsa", "titans", "softmax-attention")
KINDS: dict[str, dict[str, Any]] = {
    "context": {"hybrid": "context", "segment": 4},
    "gate": {"hybrid": "gate", "attention_window": 3},
    "layer": {"hybrid": "layer", "attention_window": 3},
}
BESIDE: dict[str, Any] = {"persistent": 2, "rotary": "attention", "heads": HEADS, "groups": 2}

Tensors = dict[str, Tensor]


def made(kind: str, memory: str = "gated-deltanet", **beside: Any) -> Any:
    """A hybrid layer in float64, always the same one; its norms' weights are not all one."""
    block = {**BESIDE, **KINDS[kind], **beside}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layer = _type(json.dumps([memory, block]))(DIM).double()
        for name, weight in layer.named_parameters():
            if name.startswith("gate."):
                weight.data.uniform_(0.5, 2.0)
        return layer


@cache
def _type(text: str) -> Any:
    memory, block = json.loads(text)
    spec = {"mnemic": 1, "name": "hybrid", "extends": memory, "block": block}
    if memory == "titans":
        spec["optimizer"] = {"anchor": {"chunk": 4}}
    return load(compile_spec(spec).folder).Layer


def sequence(batch: int = 2, tokens: int = TOKENS) -> Tensor:
    """x [B, T, dim]."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(batch, tokens, DIM, dtype=torch.float64, generator=generator)


# -- the reference ---------------------------------------------------------------------------

Key = tuple[Tensor, int]
"""A token [dim] that is seen, and its position."""


def attended(layer: Any, query: Key, keys: list[Key]) -> Tensor:
    """Softmax attention of one token over the tokens that it sees, one head after another."""
    attention, groups = layer.attention, layer.memory_type.block.groups
    width = attention.width
    own = turned(layer, (attention.project_q.weight @ query[0]).view(HEADS, width), query[1])
    pairs = [(attention.project_kv.weight @ x).view(2, HEADS // groups, width) for x, _ in keys]
    k = [turned(layer, pair[0], position) for pair, (_, position) in zip(pairs, keys, strict=True)]
    heads = []
    for h in range(HEADS):
        scores = torch.stack([own[h] @ row[h // groups] for row in k]) / width**0.5
        weights = scores.exp() / scores.exp().sum()
        heads.append(sum(w * pair[1, h // groups] for w, pair in zip(weights, pairs, strict=True)))
    return attention.out.weight @ torch.cat(heads)


def turned(layer: Any, x: Tensor, position: int) -> Tensor:
    """Heads [H, d] as d/2 complex numbers, times exp(i · position · 10000^(−2j/d))."""
    if not layer.beside.rotary:
        return x
    half = x.shape[-1] // 2
    angle = position * 10_000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    z = torch.complex(x[:, :half], x[:, half:]) * torch.polar(torch.ones(half).double(), angle)
    return torch.cat([z.real, z.imag], -1)


def gated(layer: Any, y: Tensor, m: Tensor) -> Tensor:
    def rms(x: Tensor) -> Tensor:
        return x / (x.square().mean() + 1e-6).sqrt()

    return rms(y) * layer.gate.branch * torch.sigmoid(rms(m) * layer.gate.memory)


def remembered(layer: Any, tokens: list[Tensor]) -> list[Tensor]:
    """The memory alone on a sequence, step by step."""
    found, state = [], None
    for x_t in tokens:
        y_t, state = layer.memory.step(x_t[None], state)
        found.append(y_t[0])
    return found


def persistent(layer: Any) -> list[Tensor]:
    return [] if layer.persistent is None else list(layer.persistent)


def as_gate(layer: Any, x: Tensor) -> Iterator[Tensor]:
    before = persistent(layer)
    tokens = [*before, *x]
    m = remembered(layer, tokens)
    for t in range(len(before), len(tokens)):
        yield gated(layer, windowed(layer, tokens, t), m[t])


def as_layer(layer: Any, x: Tensor) -> Iterator[Tensor]:
    before = persistent(layer)
    y = remembered(layer, [*before, *x])
    for t in range(len(before), len(y)):
        yield windowed(layer, y, t)


def windowed(layer: Any, tokens: list[Tensor], t: int) -> Tensor:
    """Attention of token t over the persistent ones and those less than a window away."""
    fixed, window = len(persistent(layer)), layer.beside.window
    seen = [j for j in range(t + 1) if j < fixed or t - j < window]
    return attended(layer, (tokens[t], t), [(tokens[j], j) for j in seen])


def as_context(layer: Any, x: Tensor) -> Iterator[Tensor]:
    memory, size = layer.memory, layer.beside.segment
    fixed = list(enumerate(persistent(layer)))
    state: Tensors = begun(memory)
    for t in range(len(x)):
        first = t - t % size
        if t == first:
            standing, h = state, []
        q = memory.vectors(x[None, : t + 1], {}, None)[0]["q"][:, -1:]
        h.append(memory._read_out(x[None, t : t + 1], held(memory, standing, q))[0, 0])
        keys = [(p, i) for i, p in fixed]
        keys += [(h_j, len(fixed) + j) for j, h_j in enumerate(h)]
        keys += [(x[j], len(fixed) + size + j - first) for j in range(first, t + 1)]
        y = attended(layer, (x[t], len(fixed) + size + t - first), keys)
        m, state = memory.step(y[None], state)
        yield gated(layer, y, m[0])


def begun(memory: Any) -> Tensors:
    """The state of a memory that has seen nothing."""
    nothing: Tensors = memory(torch.zeros(1, 0, DIM, dtype=torch.float64), output_state=True)[1]
    return nothing


def held(memory: Any, state: Tensors, q: Tensor) -> Tensor:
    """M(q) [1, 1, H, d_v] by hand: a matrix, slots, or the network of Titans."""

    def times(name: str, x: Tensor) -> Tensor:
        matrix = state[name].mT if name == "values" else state[name]
        matrix = matrix.repeat_interleave(q.shape[2] // matrix.shape[1], 1)
        return (matrix[:, None] @ x[..., None])[..., 0]

    if "keys" in state:  # as many as there are tokens
        shares = torch.softmax(times("keys", q) / q.shape[-1] ** 0.5, -1)
        return times("values", shares) if state["keys"].shape[2] else torch.zeros_like(q)
    if "W2" in state:
        z = times("W1", torch.nn.functional.gelu(times("W2", q)))
        return q + torch.nn.functional.layer_norm(z, z.shape[-1:])
    return times("W", torch.softmax(times("K", q), -1) if "K" in state else q)


REFERENCES: dict[str, Callable[[Any, Tensor], Iterator[Tensor]]] = {
    "context": as_context,
    "gate": as_gate,
    "layer": as_layer,
}


def expected(kind: str, layer: Any, x: Tensor) -> Tensor:
    """The reference on every row."""
    return torch.stack([torch.stack(list(REFERENCES[kind](layer, row))) for row in x])


# -- against the reference -------------------------------------------------------------------


@pytest.mark.some(3)
@pytest.mark.few
@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("kind", KINDS)
def test_hybrids_are_what_their_equations_say(kind: str, memory: str) -> None:
    layer = made(kind, memory)
    found, x = {}, sequence()
    for name, run in (("fast", layer), ("slow", lambda x: expected(kind, layer, x))):
        leaf = x.clone().requires_grad_()
        y = run(leaf)
        named = {n: p for n, p in layer.named_parameters() if p.requires_grad}
        grads = torch.autograd.grad((y * y.detach().cos()).sum(), [leaf, *named.values()])
        found[name] = {"y": y, **dict(zip(["x", *named], grads, strict=True))}
    close(found["fast"], found["slow"], 1e-8)
    assert all(g.abs().max() > 0 for g in found["fast"].values())  # each parameter has a part


OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("context", {"segment": 1}),
    ("context", {"segment": 64}),
    ("context", {"segment": 11, "persistent": 0}),
    ("context", {"rotary": False, "groups": 4}),
    ("context", {"rotary": True, "groups": 1, "convolution": 0}),
    ("context", {"query": "1"}),
    ("gate", {"attention_window": 1}),
    ("gate", {"attention_window": 64, "persistent": 0}),
    ("gate", {"rotary": False, "groups": 4, "scale": 0.5}),
    ("layer", {"attention_window": 11, "rotary": True, "groups": 1}),
    ("layer", {"attention_window": 1, "persistent": 0}),
    ("layer", {"attention_window": 64, "output_norm": "none", "gate": "none"}),
]


@pytest.mark.some(3)
@pytest.mark.parametrize(("kind", "beside"), OPTIONS, ids=str)
def test_options_of_hybrids(kind: str, beside: dict[str, Any]) -> None:
    layer, x = made(kind, **beside), sequence()
    with torch.no_grad():
        whole = layer(x, output_state=True)
        close({"y": whole[0]}, {"y": expected(kind, layer, x)})
        for sizes in ((1,) * TOKENS, (4, 0, 7), (5, 6), (TOKENS, 0)):
            agree(in_pieces(layer, x, sizes), whole)


@pytest.mark.few
@pytest.mark.parametrize("tokens", [64, 65, 200, 331])
@pytest.mark.parametrize("window", [1, 7, 64, 100])
def test_windows_over_many_blocks(window: int, tokens: int) -> None:
    """Blocks of queries against one matrix of scores with a mask by hand."""
    attention = made("layer", attention_window=window, rotary=False).attention
    x, prefix = sequence(2, tokens), sequence(2, 3) + 1
    zero = torch.zeros(2, dtype=torch.long)
    with torch.no_grad():
        found, state = attention(x, {}, None, zero, prefix)
        whole = torch.cat([prefix, x], 1)
        q = attention._heads(attention.project_q(x), HEADS).transpose(1, 2)
        kv = attention.project_kv(whole).view(2, tokens + 3, 2, HEADS // 2, attention.width)
        k, v = (y.transpose(1, 2).repeat_interleave(2, 1) for y in kv.unbind(2))
        i, j = torch.arange(tokens)[:, None], torch.arange(-3, tokens)
        seen = (j < 0) | ((j <= i) & (j > i - window))
        scores = (q @ k.mT / attention.width**0.5).masked_fill(~seen, -torch.inf)
        close({"y": found}, {"y": attention.mixed(scores.softmax(-1) @ v)})
        first, kept = attention(x[:, :40], {}, None, zero, prefix)
        second, last = attention(x[:, 40:], kept, None, zero + 40, None)
        close({"y": torch.cat([first, second], 1), **last}, {"y": found, **state})


# -- the contract ----------------------------------------------------------------------------


def agree(found: tuple[Tensor, Tensors], other: tuple[Tensor, Tensors]) -> None:
    """Assert that outputs and states agree."""
    close({"y": found[0], **found[1]}, {"y": other[0], **other[1]})


def in_pieces(layer: Any, x: Tensor, sizes: tuple[int, ...]) -> tuple[Tensor, Tensors]:
    """The layer on pieces that pass their state on; a single token goes by ``step``."""
    found, state = [], None
    for piece in torch.split(x, list(sizes), 1):
        if piece.shape[1] == 1:
            y, state = layer.step(piece[:, 0], state)
            y = y[:, None]
        else:
            y, state = layer(piece, state=state, output_state=True)
        found.append(y)
    assert state is not None
    return torch.cat(found, 1), state


@pytest.mark.few
@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("kind", KINDS)
def test_streams_pads_and_packs(kind: str, memory: str) -> None:
    layer, x = made(kind, memory), sequence()
    with torch.no_grad():
        whole = layer(x, output_state=True)
        agree(in_pieces(layer, x, (1,) * TOKENS), whole)
        agree(in_pieces(layer, x, (1, 0, 5, 5)), whole)
        _padded(layer, x, whole)
        _by_row(layer, x)
        _packed(layer, x[:1])


def _padded(layer: Any, x: Tensor, whole: tuple[Tensor, Tensors]) -> None:
    for left, right in ((3, 0), (0, 3), (2, 5)):
        sizes = (2, left, DIM), (2, right, DIM)
        rubbish = [torch.full(size, 7.0, dtype=torch.float64) for size in sizes]
        padded = torch.cat([rubbish[0], x, rubbish[1]], 1)
        place = torch.arange(padded.shape[1])
        mask = ((place >= left) & (place < left + TOKENS)).expand(2, -1)
        y, state = layer(padded, mask=mask, output_state=True)
        assert not y[~mask].any()
        agree((y[:, left : left + TOKENS], state), whole)


def _by_row(layer: Any, x: Tensor) -> None:
    """Rows of other lengths, one after another: each as if it were alone."""
    mask = torch.zeros(2, TOKENS, dtype=torch.bool)
    mask[0, [0, 2, 3, 6, 7, 10]] = True
    mask[1, 7:] = True
    first, state = layer(x, mask=mask, output_state=True)
    second, last = layer(x, state=state, mask=mask.flip(0), output_state=True)
    for row in range(2):
        live = torch.cat([x[row, mask[row]], x[row, mask[1 - row]]])[None]
        y = torch.cat([first[row, mask[row]], second[row, mask[1 - row]]])[None]
        agree((y, {n: s[row : row + 1] for n, s in last.items()}), layer(live, output_state=True))


@pytest.mark.parametrize("form", ["recurrent", "chunk"])
def test_a_row_of_padding_starts_where_its_coefficients_say(form: str) -> None:
    """A link with a learned coefficient: its memory at the start is not zero, and none was read."""
    spec = {
        "mnemic": 1, "name": "started", "bias": "l2",
        "retention": {"view": "ftrl", "decay": "token", "global": {"entropy": "learned"}},
        "optimizer": {"rate": "token", "anchor": {"chunk": 4}},
        "block": {**BESIDE, **KINDS["context"]},
    }  # fmt: skip
    layer = load(compile_spec(spec).folder).Layer(DIM).double()
    x, mask = sequence(), torch.ones(2, TOKENS, dtype=torch.bool)
    mask[1] = False
    with torch.no_grad():
        whole = layer(x, output_state=True, form=form)
        first, state = layer(x, mask=mask, output_state=True, form=form)
        second, last = layer(x, state=state, mask=~mask, output_state=True, form=form)
    assert not first[1].any()
    assert not second[0].any()
    joined = torch.stack([first[0], second[1]])
    agree((joined, last), whole)
    assert state["memory.anchor"][1].abs().min() > 0


def _packed(layer: Any, x: Tensor) -> None:
    ends = torch.tensor([0, 5, 5, TOKENS])
    y, state = layer(x, cu_seqlens=ends, output_state=True)
    pieces = ((0, 5), (5, 5), (5, TOKENS))
    apart = [layer(x[:, low:high], output_state=True) for low, high in pieces]
    joined = {n: torch.cat([grown(s[n], state[n]) for _, s in apart]) for n in state}
    agree((y, state), (torch.cat([y for y, _ in apart], 1), joined))
    again, after = layer(x, state=state, cu_seqlens=ends, output_state=True)
    own = {n: s[2:] for n, s in state.items()}
    follows, last = layer(x[:, 5:], state=own, output_state=True)
    last = {n: grown(s, after[n]) for n, s in last.items()}
    agree((again[:, 5:], {n: s[2:] for n, s in after.items()}), (follows, last))


def grown(x: Tensor, like: Tensor) -> Tensor:
    """Kept pairs with zeros behind them, as many as another document has."""
    missing = [(0, b - a) for a, b in zip(x.shape[1:], like.shape[1:], strict=True)]
    return torch.nn.functional.pad(x, [n for pair in reversed(missing) for n in pair])


@pytest.mark.parametrize("kind", KINDS)
def test_no_token_sees_what_comes_later(kind: str) -> None:
    layer, x = made(kind), sequence()
    other = x.clone()
    other[:, 6:] = 0.0  # the middle of a segment
    with torch.no_grad():
        close({"y": layer(other)[:, :6]}, {"y": layer(x)[:, :6]})


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_through_a_state(kind: str) -> None:
    layer, found = made(kind), []
    for sizes in ((TOKENS,), (3, 2, 6)):
        x = sequence().requires_grad_()
        y, state = in_pieces(layer, x, sizes)
        total = y.square().sum() + sum(s.square().sum() for s in state.values() if s.requires_grad)
        names = [n for n, _ in layer.named_parameters()]
        grads = torch.autograd.grad(total, [x, *layer.parameters()])
        found.append(dict(zip(["x", *names], grads, strict=True)))
    close(found[1], found[0])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("autocast", [False, True])
def test_half_precision(kind: str, dtype: torch.dtype, autocast: bool) -> None:
    layer, x = made(kind).float(), sequence().float()
    wanted = layer(x)
    layer, x = (layer, x) if autocast else (layer.to(dtype), x.to(dtype))
    with torch.autocast("cpu", dtype=dtype, enabled=autocast):
        y, state = layer(x, output_state=True)
        y_t, _ = layer.step(x[:, 0], state)
    assert y.dtype == y_t.dtype
    y.float().square().sum().backward()
    assert all(p.grad.isfinite().all() for p in layer.parameters())
    assert (y.float() - wanted).norm() < 0.2 * wanted.norm()


def test_the_state_does_not_grow() -> None:
    for kind in KINDS:
        layer, state, sizes = made(kind), None, []
        for piece in sequence(2, 60).split([1, 19, 40], 1):
            _, state = layer(piece, state=state, output_state=True)
            sizes.append({n: s.shape for n, s in state.items()})
        assert sizes[0] == sizes[1] == sizes[2]


def test_what_hybrids_refuse() -> None:
    layer = made("gate")
    with pytest.raises(ValueError, match="state: not of this layer, has no tokens; read W"):
        layer(sequence(), state={"W": torch.zeros(2, 2, 4, 4)})
    with pytest.raises(ValueError, match=r"x: read shape \[2, 11, 8\], expected \[B, T, 16\]"):
        layer(sequence()[..., :8])
    kind = type(layer)
    with pytest.raises(ValueError, match="rotary positions need an even size of a head; read 3"):
        kind(12, key_dim=4, value_dim=3)
    with pytest.raises(ValueError, match="heads must be a multiple of groups; read 3 and 2"):
        kind(DIM, heads=3)


@pytest.mark.parametrize("kind", ["context", *(pytest.param(kind, marks=pytest.mark.full)
                                                for kind in ("gate", "layer"))])  # fmt: skip
def test_a_compiled_hybrid_tests_itself(kind: str, tmp_path: Path) -> None:
    spec = {"mnemic": 1, "name": "hybrid", "extends": "gla", "block": {**BESIDE, **KINDS[kind]}}
    made_layer = load(compile_spec(spec, out=tmp_path / kind).folder)
    selftest = support(made_layer, "selftest")
    assert all(check.passed for check in selftest.checks(made_layer.Layer))
