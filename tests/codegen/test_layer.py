"""Layers of every spec: they learn, step, split and pad, in every dtype, as one sequence does."""

import copy
import json
import pickle
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
from conformance import available, close
from torch import Tensor

import mnemic
from mnemic.codegen.activations import expression, logarithm, reached
from mnemic.codegen.torch_printer import print_torch
from mnemic.errors import InvalidSpec
from mnemic.pipeline import compile as compile_spec

DIM, TOKENS = 32, 12
HALF = (torch.float16, torch.bfloat16)

Tensors = dict[str, Tensor]


def layer(spec: Any, dim: int = DIM, **options: Any) -> Any:
    """A layer of a spec, in float64, always the same one."""
    return begun(_type(json.dumps(spec)), dim, **options)


def begun(kind: Any, dim: int = DIM, **options: Any) -> Any:
    """A layer of a class, in float64, always the same one."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return kind(dim, **options).double()


@cache
def _type(text: str) -> Any:
    return compile_spec(json.loads(text)).module.Layer


def sequence(batch: int = 2, tokens: int = TOKENS, dim: int = DIM) -> Tensor:
    """x [B, T, dim]."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(batch, tokens, dim, dtype=torch.float64, generator=generator)


def agree(found: tuple[Tensor, Tensors], expected: tuple[Tensor, Tensors]) -> None:
    """Assert that outputs and states agree."""
    close({"y": found[0], **found[1]}, {"y": expected[0], **expected[1]})


@pytest.mark.few
@pytest.mark.parametrize("name", available())
def test_every_spec_makes_a_layer(name: str) -> None:
    _holds(layer(name))


@pytest.mark.full
@pytest.mark.parametrize("name", available())
def test_every_published_folder_makes_a_layer(name: str, tmp_path: Path) -> None:
    """To find what a spec needs of the support package takes seconds, for each spec again."""
    _holds(begun(compile_spec(name, out=tmp_path / "own").module.Layer))


def _holds(made: Any) -> None:
    """It learns, steps, splits, pickles and pads."""
    x = sequence(tokens=max(TOKENS, made.rule.signature.anchor + 4)).requires_grad_()
    y, state = made(x, output_state=True)
    assert y.shape == x.shape
    leaves = {"x": x, **dict(made.named_parameters())}
    found = torch.autograd.grad(y.square().sum(), list(leaves.values()))  # each has a part in it
    gradients = dict(zip(leaves, found, strict=True))
    assert all(gradient.isfinite().all() for gradient in found)
    with torch.no_grad():
        _steps(made, x, (y, state))
        _split(made, x, (y, state))
        _pickled(made, x, (y, state))
    _padded(made, leaves, (y, state), gradients)


def _steps(made: Any, x: Tensor, whole: tuple[Tensor, Tensors]) -> None:
    found, state = [], None
    for x_t in x.unbind(1):
        y_t, state = made.step(x_t, state)
        found.append(y_t)
    assert state is not None
    agree((torch.stack(found, 1), state), whole)


def _split(made: Any, x: Tensor, whole: tuple[Tensor, Tensors]) -> None:
    found, state = [], None
    for piece in torch.split(x, [1, 0, 5, x.shape[1] - 6], 1):
        y, state = made(piece, state=state, output_state=True)
        found.append(y)
    assert state is not None
    agree((torch.cat(found, 1), state), whole)


def _padded(made: Any, leaves: Tensors, whole: tuple[Tensor, Tensors], gradients: Tensors) -> None:
    """Padding before, between and after tokens holds no numbers: nothing of it is seen."""
    x = leaves["x"]
    nothing = x.new_tensor([[torch.nan], [torch.inf]]).expand(2, x.shape[2])
    padding = nothing[:, None].expand(-1, 3, -1)
    padded = torch.cat([padding, x[:, :5], padding[:, :1].flip(0), x[:, 5:], padding], 1)
    mask = padded.detach().isfinite().all(-1)
    y, state = made(padded, mask=mask, output_state=True)
    assert not y[~mask].any()
    agree((y[mask].view_as(x), state), whole)
    found = torch.autograd.grad(y.square().sum(), list(leaves.values()))
    close(dict(zip(leaves, found, strict=True)), gradients)


def _pickled(made: Any, x: Tensor, whole: tuple[Tensor, Tensors]) -> None:
    """A pickle names nothing of the package, whose name is another one in every process."""
    package = type(made).__module__.partition(".")[0]
    content = pickle.dumps(made)
    assert package.encode() not in content
    assert type(made).__qualname__.encode() in content
    for again in (pickle.loads(content), copy.deepcopy(made)):
        assert type(again) is type(made)
        agree(again(x, output_state=True), whole)
        assert not {id(p) for p in again.parameters()} & {id(p) for p in made.parameters()}


@pytest.mark.parametrize("name", ["gated-deltanet", "retnet", "gsa", "swla"])
def test_padding_anywhere_and_by_row(name: str) -> None:
    made, x = layer(name), sequence(tokens=9)
    mask = torch.tensor(
        [[1, 0, 1, 1, 0, 0, 1, 1, 0], [0, 0, 0, 0, 1, 1, 1, 1, 1]], dtype=torch.bool
    )
    first, state = made(x, mask=mask, output_state=True)
    second, last = made(x, state=state, mask=mask.flip(0), output_state=True)
    for row in range(2):
        live = torch.cat([x[row, mask[row]], x[row, mask[1 - row]]])[None]
        y = torch.cat([first[row, mask[row]], second[row, mask[1 - row]]])[None]
        state = {n: s[row : row + 1] for n, s in last.items()}
        agree((y, state), made(live, output_state=True))


@pytest.mark.parametrize("name", ["gated-deltanet", "retnet", "gsa", "swla"])
def test_packed_documents_keep_apart(name: str) -> None:
    made, x = layer(name), sequence(1)
    ends = torch.tensor([0, 5, 5, 12])
    y, state = made(x, cu_seqlens=ends, output_state=True)
    apart = [made(x[:, low:high], output_state=True) for low, high in ((0, 5), (5, 5), (5, 12))]
    states = {n: torch.cat([s[n] for _, s in apart]) for n in state}
    agree((y, state), (torch.cat([y for y, _ in apart], 1), states))
    again, after = made(x, state=state, cu_seqlens=ends, output_state=True)
    own = {n: s[2:] for n, s in state.items()}
    expected = made(x[:, 5:], state=own, output_state=True)
    agree((again[:, 5:], {n: s[2:] for n, s in after.items()}), expected)


@pytest.mark.parametrize("name", ["gated-deltanet", "retnet", "hgrn", "mlstm", "deltaproduct"])
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("autocast", [False, True])
def test_half_precision(name: str, dtype: torch.dtype, autocast: bool) -> None:
    made, x = layer(name).float(), sequence().float()
    expected = made(x)
    made, x = (made, x) if autocast else (made.to(dtype), x.to(dtype))
    with torch.autocast("cpu", dtype=dtype, enabled=autocast):
        y, state = made(x, output_state=True)
        y_t, _ = made.step(x[:, 0], state)
    assert y.dtype == y_t.dtype == dtype
    y.float().square().sum().backward()
    assert all(p.grad.isfinite().all() for p in made.parameters())
    assert (y.float() - expected).norm() < 0.2 * expected.norm()


@pytest.mark.parametrize("dtype", HALF)
def test_states_between_of_short_numbers_under_autocast(dtype: torch.dtype) -> None:
    made, x = layer("gated-deltanet").float(), sequence().to(dtype)
    with torch.autocast("cpu", dtype=dtype):
        y, state = made(x, output_state=True)
        parts, after, between = made(x, output_state=True, states_at=[5, 12])
    torch.testing.assert_close(parts, y, rtol=0.02, atol=0.02)
    torch.testing.assert_close(after, state, rtol=1e-4, atol=1e-4)
    assert between["W"].dtype == torch.float32


@pytest.mark.parametrize("name", ["gated-deltanet", "ttt-linear"])
@pytest.mark.parametrize("form", ["recurrent", "chunk"])
def test_a_rule_works_in_full_precision_under_autocast(name: str, form: str) -> None:
    """Called by itself as in a layer, state and all."""
    made, x = layer(name).float(), sequence().float()
    given, params = made.arguments(x), made.params()
    call = partial(made.rule, **given, params=params, form=form, output_final_state=True)
    expected = call()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = call()
        begun = made.rule.begin(**{n: x[:, :1] for n, x in given.items()}, params=params)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert all(x.dtype == torch.float32 for x in begun.values() if x.is_floating_point())


def test_forms_and_sizes() -> None:
    made, x = layer("gated-deltanet", heads=4, key_dim=6, value_dim=10), sequence()
    assert (made.sizes.heads, made.sizes.key_dim, made.sizes.value_dim) == (4, 6, 10)
    close({"y": made(x, form="chunk")}, {"y": made(x, form="recurrent")})
    with pytest.raises(ValueError, match="form: read 'chunks', allowed: auto, recurrent, chunk"):
        made(x, form="chunks")
    with pytest.raises(ValueError, match=r"x: read shape \[2, 12, 16\], expected \[B, T, 32\]"):
        made(x[..., :16])
    with pytest.raises(ValueError, match="mask: read"):
        made(x, mask=torch.ones(2, 5, dtype=torch.bool))


def test_heads_follow_from_the_channels() -> None:
    heads = {dim: layer("deltanet", dim).sizes.heads for dim in (16, 64, 192)}
    assert heads == {16: 1, 64: 1, 192: 3}
    assert layer("mamba").sizes.heads == DIM  # value_dim is 1
    assert layer("based").sizes.key_dim == 16


def test_grouped_heads() -> None:
    spec = {"mnemic": 1, "name": "grouped", "bias": "l2", "optimizer": {"rate": "token"},
            "block": {"heads": 4, "groups": 2}}  # fmt: skip
    made, x = layer(spec), sequence()
    whole = made(x, output_state=True)
    assert whole[1]["W"].shape == (2, 2, 8, 8)
    with torch.no_grad():
        _steps(made, x, whole)
    with pytest.raises(ValueError, match="heads must be a multiple of groups; read 3 and 2"):
        layer(spec, heads=3)


def test_rotary_positions_are_relative() -> None:
    """Tokens that come later see the same, if all that went before lies in the state."""
    made, x = layer("retnet"), sequence(1, 6)
    _, state = made(x[:, :0], output_state=True)
    before = {**state, "tokens": torch.tensor([100])}
    close({"y": made(x, state=before)}, {"y": made(x)}, 1e-8)
    with pytest.raises(ValueError, match="rotary positions need an even key_dim; read 5"):
        layer("retnet", key_dim=5)


def test_coefficients_start_where_they_are_told() -> None:
    coefficient = {"from": "input", "per": "key", "activation": "sigmoid(x)**(1/16)", "init": 0.98}
    spec = {"mnemic": 1, "name": "slow", "retention": {"decay": coefficient}}
    made, x = layer(spec), torch.zeros(1, 1, DIM, dtype=torch.float64)
    log_alpha = made.coefficients(x)["log_alpha"]
    assert log_alpha.exp().allclose(torch.full_like(log_alpha, 0.98), atol=1e-7)
    alpha = layer("gla", 64).coefficients(torch.zeros(1, 1, 64).double())["log_alpha"].exp()
    ends = torch.stack([alpha.min(), alpha.max()])
    assert ends.allclose(torch.tensor([0.97, 0.99], dtype=torch.float64), atol=1e-6)
    spec["retention"] = {"decay": {**coefficient, "activation": "sigmoid(x)/2", "init": 0.9}}
    told = r"decay.init: is not a value that the activation sigmoid\(x\)/2 can take: read '0.9'"
    with pytest.raises(InvalidSpec, match=told):
        compile_spec(spec)
    own = {**spec, "retention": {}, "bias": {"expr": "a*e**2"}}
    told = r"coefficients.a.init: is not a value that the activation sigmoid can take: read '2'"
    with pytest.raises(InvalidSpec, match=told):
        compile_spec({**own, "coefficients": {"a": {"from": "input", "init": 2}}})


LOGARITHMS = {
    "sigmoid(x)**(1/16)": "F.logsigmoid(x) / 16",
    "exp(-3*softplus(x))": "-3 * F.softplus(x)",
    "exp(-exp(x))": "-torch.exp(x)",
    "1 - sigmoid(x)": "F.logsigmoid(-x)",
    "exp": "x",
}


@pytest.mark.parametrize(("text", "expected"), LOGARITHMS.items())
def test_logarithms_are_taken_inside(text: str, expected: str) -> None:
    assert print_torch(logarithm(expression(text)), {}) == expected


def test_values_of_an_activation_are_found() -> None:
    assert reached(expression("sigmoid"), 0.5) == 0.0
    assert reached(expression("softplus"), 0.05) == pytest.approx(-2.97062810906)
    assert reached(expression("exp"), 4.0) == pytest.approx(1.38629436112)
    assert reached(expression("x**2"), -1.0) is None


def test_a_constant_query_and_no_gate() -> None:
    spec = {"mnemic": 1, "name": "plain", "block": {"query": "1", "gate": "none",
            "output_norm": "none", "convolution": 0, "scale": 2.0}}  # fmt: skip
    made = layer(spec)
    vectors, _ = made.vectors(sequence(), {}, None)
    assert vectors["q"].eq(2.0).all()
    assert {n for n, _ in made.named_parameters()} == {"vectors.project.weight", "out.weight"}


def test_the_language_has_a_layer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MNEMIC_CACHE", str(tmp_path))
    assert mnemic.compile("deltanet").layer(16)(torch.zeros(1, 2, 16)).shape == (1, 2, 16)


def test_a_title_stays_text() -> None:
    title = 'Bad""" \\" + "\n\nraise SystemExit\n"""'
    made = layer({"mnemic": 1, "name": "titled", "title": title})
    assert made(sequence()).isfinite().all()
