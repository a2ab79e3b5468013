"""The interpreter against the vectors, hand-written recurrences and its own laws."""

from pathlib import Path

import numpy as np
import pytest
import torch
from packaged import available, rule_of
from torch import Tensor

from mnemic.compiler.derive import derive_spec
from mnemic.compiler.oracle.interpret import interpret
from mnemic.compiler.oracle.samples import Sizes, draw
from mnemic.compiler.oracle.stated import stated
from mnemic.compiler.rule import Rule
from mnemic.compiler.symbolic import FUNCTIONS
from mnemic.dsl.load import load
from mnemic.dsl.spec import Spec

ROUND = FUNCTIONS["round"]
ROOT = Path(__file__).parents[2]
COPIED = ROOT / "tests" / "data" / "vectors"
SHARED = ROOT.parent / "shared" / "vectors"


def made(**spec: object) -> Rule:
    return derive_spec(Spec.model_validate({"name": "made", **spec}))


def close(a: Tensor, b: Tensor, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)


def vector(path: Path) -> dict[str, Tensor]:
    with np.load(path) as file:
        return {name: torch.tensor(file[name]) for name in file.files}


DEEP = {
    "titans": {"extends": "titans", "optimizer": {"anchor": {"chunk": 8}}},
    "titans-token": {"extends": "titans", "optimizer": {"anchor": "token"}},
    "yaad": {"extends": "yaad", "optimizer": {"anchor": {"chunk": 8}}},
    "moneta-token": {"extends": "moneta", "optimizer": {"anchor": "token"}},
}
"""The vectors that are made with another anchor than the spec's."""


@pytest.mark.parametrize("name", sorted(path.stem for path in COPIED.glob("*.npz")))
def test_vectors(name: str) -> None:
    data = vector(COPIED / f"{name}.npz")
    params = {n.removeprefix("params."): data.pop(n) for n in list(data) if n.startswith("params.")}
    expected, *qkv = (data.pop(x) for x in "yqkv")
    rule = derive_spec(load({"name": name, **DEEP[name]})) if name in DEEP else rule_of(name)
    y, _ = interpret(rule, *qkv, data, params=params)
    close(y, expected, 1e-9)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the vectors' source lies outside the repository")
def test_copies_are_the_shared_vectors() -> None:
    for path in COPIED.glob("*.npz"):
        assert path.read_bytes() == (SHARED / path.name).read_bytes()


@pytest.mark.few
@pytest.mark.parametrize("name", available())
def test_split_equals_whole(name: str) -> None:
    rule = rule_of(name)
    chunk = min(rule.anchor, 20)
    s = draw(rule, Sizes(length=chunk + 6))
    whole, last = interpret(rule, s.q, s.k, s.v, s.coefficients, params=s.params)
    at = chunk + 2

    def part(piece: slice, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        given = {n: x[:, piece] for n, x in s.coefficients.items()}
        q, k, v = (x[:, piece] for x in (s.q, s.k, s.v))
        return interpret(rule, q, k, v, given, initial_state=state, params=s.params)

    first, state = part(slice(0, at), None)
    second, end = part(slice(at, None), state)
    close(torch.cat([first, second], 1), whole, 1e-9)
    assert set(end) == set(last)
    for key, value in last.items():
        close(end[key], value, 1e-9)


@pytest.mark.few
@pytest.mark.parametrize("name", available())
def test_masked_tokens_are_inert(name: str) -> None:
    rule = rule_of(name)
    s = draw(rule, Sizes(length=7))
    mask = torch.tensor([[1, 1, 0, 1, 0, 1, 1], [0, 1, 1, 1, 1, 1, 0]], dtype=torch.bool)
    y, state = interpret(rule, s.q, s.k, s.v, s.coefficients, mask=mask, params=s.params)
    for b in range(2):
        kept = [t for t in range(7) if mask[b, t]]
        given = {n: x[b : b + 1, kept] for n, x in s.coefficients.items()}
        q, k, v = (x[b : b + 1, kept] for x in (s.q, s.k, s.v))
        alone, end = interpret(rule, q, k, v, given, params=s.params)
        close(y[b : b + 1, kept], alone, 1e-9)
        for key, value in end.items():
            found = state[key][b : b + 1]
            close(_columns(key, found, kept) if rule.kernels is not None else found, value, 1e-9)


def _columns(name: str, x: Tensor, tokens: list[int]) -> Tensor:
    """Of a state behind a kernel, which has a column for each token, those of some tokens."""
    if name == "K":
        return x[:, :, tokens]
    whole = name == "position" or x.shape[-1] != 7  # a hidden layer's, or a column
    return x if whole else x[..., tokens]


@pytest.mark.few
@pytest.mark.parametrize("name", available())
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    rule = rule_of(name)
    if rule.kernels is not None and any(k.expr.has(ROUND) for k in rule.kernels.both):
        pytest.skip("a rounded kernel's gradient is not its slope, by convention")
    s = draw(rule, Sizes(1, 5, 1, 3, 3), seed=2)
    names = ["q", "k", "v", *s.coefficients, *s.params]
    point = [s.q, s.k, s.v, *s.coefficients.values(), *s.params.values()]
    rng = torch.Generator().manual_seed(1)
    along = [torch.randn(x.shape, generator=rng, dtype=torch.float64) for x in point]

    def total(shift: Tensor) -> Tensor:
        q, k, v, *rest = (x + shift * d for x, d in zip(point, along, strict=True))
        given = dict(zip(names[3:], rest, strict=True))
        params = {n: given.pop(n) for n in s.params}
        y, state = interpret(rule, q, k, v, given, params=params)
        weights = torch.linspace(1, 2, y.numel(), dtype=torch.float64).reshape(y.shape)
        memory = state.get("W", state.get("W1", y))
        return (weights * y).sum() + (memory**2).sum()

    zero = torch.zeros((), dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(total(zero), zero)
    h = torch.tensor(1e-6, dtype=torch.float64)
    with torch.no_grad():
        numeric = (total(h) - total(-h)) / (2 * h)
    close(slope, numeric, 2e-5)


def test_phase_is_a_complex_decay() -> None:
    s = draw(rule_of("gateloop"))
    y, _ = interpret(rule_of("gateloop"), s.q, s.k, s.v, s.coefficients)
    step = torch.exp(torch.complex(s.coefficients["log_alpha"], s.coefficients["phase"]))
    memory = torch.zeros(2, 2, 3, 3, dtype=torch.complex128)
    for t in range(7):
        write = s.v[:, t, :, :, None] * s.k[:, t, :, None, :]
        memory = memory * step[:, t, :, None, :] + write
        close(y[:, t], (memory @ s.q[:, t, :, :, None].to(memory.dtype))[..., 0].real)


def test_lru_is_a_complex_vector() -> None:
    s = draw(rule_of("lru"))
    y, _ = interpret(rule_of("lru"), s.q, s.k, s.v, s.coefficients)
    alpha = s.coefficients["log_alpha"].exp()
    step = torch.polar(alpha, s.coefficients["phase"])
    memory = torch.zeros(2, 2, 3, dtype=torch.complex128)
    for t in range(7):
        v = torch.complex(s.v[:, t, :, :3], s.v[:, t, :, 3:])
        memory = memory * step[:, t] + torch.sqrt(1 - alpha[:, t] ** 2) * s.k[:, t] * v
        read = memory * s.q[:, t]
        close(y[:, t], torch.cat([read.real, read.imag], -1))


def test_slots_are_two_memories() -> None:
    s = draw(rule_of("gsa"))
    y, _ = interpret(rule_of("gsa"), s.q, s.k, s.v, s.coefficients)
    alpha = s.coefficients["log_alpha"].exp()[..., None]
    keys = torch.zeros(2, 2, alpha.shape[-2], 3, dtype=torch.float64)
    values = torch.zeros_like(keys)
    for t in range(7):
        keys = alpha[:, t] * keys + (1 - alpha[:, t]) * s.k[:, t, :, None, :]
        values = alpha[:, t] * values + (1 - alpha[:, t]) * s.v[:, t, :, None, :]
        weights = torch.softmax((keys @ s.q[:, t, :, :, None])[..., 0], -1)
        close(y[:, t], (weights[..., None, :] @ values)[..., 0, :])


def test_mlstm_divides_by_its_normaliser() -> None:
    s = draw(rule_of("mlstm"))
    y, _ = interpret(rule_of("mlstm"), s.q, s.k, s.v, s.coefficients)
    forget, write = (s.coefficients[n].exp() for n in ("log_alpha", "log_eta"))
    memory, n = torch.zeros(2, 2, 3, 3).double(), torch.zeros(2, 2, 3).double()
    for t in range(7):
        key = write[:, t, :, None] * s.k[:, t]
        memory = forget[:, t, :, None, None] * memory + s.v[:, t, :, :, None] * key[:, :, None]
        n = forget[:, t, :, None] * n + key
        below = (n * s.q[:, t]).sum(-1, keepdim=True).abs().clamp_min(1)
        close(y[:, t], (memory @ s.q[:, t, :, :, None])[..., 0] / below)


def test_bonus_reads_the_current_token() -> None:
    s = draw(rule_of("rwkv6"))
    bonus = torch.randn(2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y, _ = interpret(rule_of("rwkv6"), s.q, s.k, s.v, {**s.coefficients, "bonus": bonus})
    memory = torch.zeros(2, 2, 3, 3, dtype=torch.float64)
    for t in range(7):
        write = s.v[:, t, :, :, None] * s.k[:, t, :, None, :]
        seen = memory + write * bonus[:, None, :]
        close(y[:, t], (seen @ s.q[:, t, :, :, None])[..., 0])
        memory = memory * s.coefficients["log_alpha"][:, t].exp()[:, :, None, :] + write


@pytest.mark.parametrize(
    "name", ["linear-attention-elu", "cosformer", "dpfp", "performer", "based"]
)
def test_sum_normaliser_gives_weighted_means(name: str) -> None:
    rule = rule_of(name)
    s = draw(rule)
    ones = torch.ones_like(s.v)
    y, _ = interpret(rule, s.q.abs(), s.k.abs(), ones, s.coefficients)
    close(y, ones)


def test_queries_may_have_more_heads() -> None:
    rule = rule_of("gated-deltanet")
    s, more = draw(rule), draw(rule, Sizes(heads=4), seed=1)
    y, _ = interpret(rule, more.q, s.k, s.v, s.coefficients)
    twice = {n: x.repeat_interleave(2, 2) for n, x in s.coefficients.items()}
    k, v = (x.repeat_interleave(2, 2) for x in (s.k, s.v))
    close(y, interpret(rule, more.q, k, v, twice)[0])


def test_chunk_of_one_is_a_token_anchor() -> None:
    axes = {"bias": {"kind": "lp", "p": 3}, "retention": {"decay": "token"}}
    for chunk in (1, 3):
        rate = {"rate": "token", "anchor": {"chunk": chunk}}
        rule, plain = made(**axes, optimizer=rate), made(**axes, optimizer={"rate": "token"})
        s = draw(rule)
        y = interpret(rule, s.q, s.k, s.v, s.coefficients)[0]
        z = interpret(plain, s.q, s.k, s.v, s.coefficients)[0]
        assert bool((y - z).abs().max() < 1e-12) == (chunk == 1)


def test_a_missing_argument_is_named() -> None:
    rule = rule_of("deltanet")
    s = draw(rule)
    with pytest.raises(ValueError, match="the rule 'deltanet' needs the argument 'eta'"):
        interpret(rule, s.q, s.k, s.v, {})


def test_momentum_on_the_write_passes_what_erases_through_o() -> None:
    optimizer = {"rate": "token", "momentum": {"from": "input", "on": "write"}}
    muon = {"bias": "l2", "optimizer": {"method": "muon", **optimizer}}
    rule = made(**muon)
    s = draw(rule, Sizes(1, 5, 1, 3, 3))
    y, _ = interpret(rule, s.q, s.k, s.v, s.coefficients)
    close(y, stated(rule.problem, s.q, s.k, s.v, s.coefficients), 1e-10)


def test_momentum_on_the_write_of_a_held_memory_is_refused() -> None:
    momentum = {"from": "input", "on": "write"}
    rule = made(
        bias="l2",
        optimizer={"method": "momentum", "rate": "token", "momentum": momentum, "every": 2},
    )
    s = draw(rule)
    with pytest.raises(ValueError, match="momentum on the write of a memory that is held"):
        interpret(rule, s.q, s.k, s.v, s.coefficients)
