"""Arguments that an operator or a layer cannot take: one message that says what was read."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from conformance import compiled, inputs

import mnemic
from mnemic.codegen.support.block import Block
from mnemic.errors import UsageError

NEED = r"a whole number of at least 1"


@pytest.mark.parametrize("form", ["recurrent", "chunk", "auto"])
def test_coefficients_wider_than_the_vectors(form: str) -> None:
    case = compiled("gated-deltanet")
    x = inputs(case, 20, dtype=torch.float32)
    x["log_alpha"] = x["log_alpha"].double()
    message = r"log_alpha: read dtype torch.float64, beside q's torch.float32 at most torch.float32"
    with pytest.raises(ValueError, match=message):
        case.operator(**x, form=form)


@pytest.mark.parametrize("form", ["recurrent", "chunk"])
@pytest.mark.parametrize("narrow", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["gated-deltanet", "gla", "mesa"])
def test_coefficients_narrower_than_the_vectors(name: str, narrow: torch.dtype, form: str) -> None:
    """Gates in float32 or less beside vectors in float64 are taken as the numbers that they are."""
    case = compiled(name)
    x = inputs(case, 20)
    narrowed = {n: t.to(narrow) if n in case.operator.coefficients else t for n, t in x.items()}
    found = case.operator(**narrowed, form=form, output_final_state=True)
    wide = {n: t.double() for n, t in narrowed.items()}
    expected = case.operator(**wide, form=form, output_final_state=True)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["gated-deltanet", "gsa"])
@pytest.mark.parametrize("read", [0, -4, True, 2.5, "8"])
def test_rows_a_chunk(name: str, read: Any) -> None:
    case = compiled(name)
    with pytest.raises(ValueError, match=rf"chunk_size: read {read!r}, {NEED}, or None"):
        case.operator(**inputs(case, 3), form="chunk", chunk_size=read)


@pytest.mark.parametrize("name", ["gated-deltanet", "gsa"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"initial_state": torch.zeros(2, 2)}, "initial_state: read Tensor, a mapping of names"),
        ({"initial_state": [torch.zeros(2)]}, "initial_state: read list, a mapping of names"),
        ({"initial_state": {"W": [0.0]}}, r"initial_state\['W'\]: read list, a torch.Tensor"),
        ({"cu_seqlens": [0, 3, 8]}, "cu_seqlens: read list, a torch.Tensor is needed"),
        ({"mask": [True] * 8}, "mask: read list, a torch.Tensor is needed"),
    ],
)
def test_what_is_no_tensor(name: str, options: dict[str, Any], message: str) -> None:
    case = compiled(name)
    with pytest.raises(ValueError, match=message):
        case.operator(**inputs(case, 8), **options)


def test_parameters_that_are_no_mapping() -> None:
    case = compiled("titans")
    with pytest.raises(ValueError, match="params: read Tensor, a mapping of names to tensors"):
        case.operator(**inputs(case, 8), params=torch.zeros(2, 3, 4))


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"dim": 0}, "dim: read 0"),
        ({"dim": -4}, "dim: read -4"),
        ({"dim": 16.0}, "dim: read 16.0"),
        ({"dim": 16, "heads": 0}, "heads: read 0"),
        ({"dim": 16, "key_dim": -1}, "key_dim: read -1"),
        ({"dim": 16, "value_dim": True}, "value_dim: read True"),
    ],
)
def test_sizes_of_a_layer(sizes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"{message}, {NEED} is needed"):
        mnemic.compile("gated-deltanet").layer(**sizes)


def test_sizes_that_are_not_given_stay() -> None:
    assert Block(heads=2, key_dim=8).resized(None, None, 4) == Block(2, 8, 4)


def test_a_layer_takes_no_rows_and_no_bare_state() -> None:
    layer = mnemic.compile("gated-deltanet").layer(16, heads=2)
    y, state = layer(torch.randn(0, 5, 16), output_state=True)
    assert y.shape == (0, 5, 16)
    assert layer(torch.randn(0, 3, 16), state=state).shape == (0, 3, 16)
    with pytest.raises(ValueError, match="state: read Tensor, what an earlier call gave is needed"):
        layer(torch.randn(2, 5, 16), state=torch.zeros(2, 2, 8, 8))


def test_misspelt_arguments_are_told_with_the_nearest() -> None:
    """Of the operator, of layers of each kind, and of mnemic's own functions."""
    rule = mnemic.compile("gated-deltanet")
    q = torch.zeros(1, 1, 1, 4)
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: rule(q, q, q, chunk_sise=4),
         "gated-deltanet: unknown argument: read 'chunk_sise', allowed: q, k, v, eta, "
         "log_alpha, form, initial_state, output_final_state, params, cu_seqlens, mask, "
         "chunk_size, states_at, state_dtype; did you mean 'chunk_size'?"),
        (lambda: rule.layer(16, 2), "gated-deltanet: layer: read 2 positional arguments, "
         "allowed: dim; by name: heads=, key_dim=, value_dim="),
        (lambda: rule.layer(16)(torch.zeros(1, 2, 16), initial_state={}), "gated-deltanet: "
         "layer.forward: read 'initial_state', allowed: x, state, output_state, mask, "
         "cu_seqlens, form, states_at, state_dtype; did you mean 'state'?"),
        (lambda: rule.layer(16, head=2), "gated-deltanet: layer: read 'head', allowed: dim, heads, "
         "key_dim, value_dim; did you mean 'heads'?"),
        (lambda: mnemic.compile("titans-mac").layer(16, keydim=2), "titans-mac: layer: read "
         "'keydim', allowed: dim, heads, key_dim, value_dim; did you mean 'key_dim'?"),
        (lambda: mnemic.compile("deltanet", ouput="x"),
         "no such argument: compile(): read 'ouput', allowed: source, out, tools; "
         "did you mean 'out'?"),
        (lambda: mnemic.load(sorce="x"), "no such argument: load(): read 'sorce', allowed: source, "
         "beside; did you mean 'source'?"),
    ]  # fmt: skip
    for call, told in calls:
        with pytest.raises((ValueError, UsageError)) as caught:
            call()
        assert str(caught.value) == told


def test_a_coefficient_of_each_step_tells_its_shape() -> None:
    rule = mnemic.compile({"mnemic": 1, "name": "steps", "bias": "l2", "retention": {
        "decay": "token"}, "optimizer": {"rate": "token", "micro_steps": 2}})  # fmt: skip
    assert str(rule.coefficients["eta"]).startswith("eta [B, T, n, H]: ")
    assert str(rule.coefficients["log_alpha"]).startswith("log_alpha [B, T, H]: ")
    q, k = torch.zeros(1, 3, 1, 4), torch.zeros(1, 3, 2, 1, 4)
    rule(q, k, k, eta=k[..., 0], log_alpha=q[..., 0])
    with pytest.raises(ValueError, match=r"eta: read shape \[1, 3, 1\], expected \[1, 3, 2, 1\]"):
        rule(q, k, k, eta=q[..., 0], log_alpha=q[..., 0])


def test_arguments_by_place_that_go_by_name_are_told() -> None:
    """A state behind x was once a bare TypeError of Python's."""
    rule, x = mnemic.compile("gated-deltanet"), torch.zeros(1, 2, 16)
    q, layer = torch.zeros(1, 2, 1, 4), rule.layer(16)
    _, state = layer(x, output_state=True)
    _, final = rule(q, q, q, eta=q[..., 0], log_alpha=q[..., 0], output_final_state=True)
    mixed = mnemic.compile("titans-mac").layer(16, heads=1)
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: layer(x, state), "gated-deltanet: layer.forward: read 2 positional "
         "arguments, allowed: x; by name: state=, output_state=, mask=, cu_seqlens=, form=, "
         "states_at=, state_dtype=; did you mean state=?"),
        (lambda: mixed(x, {}), "titans-mac: layer.forward: read 2 positional arguments, "
         "allowed: x; by name: state=, output_state=, mask=, cu_seqlens=, form=, states_at=, "
         "state_dtype=; did you mean state=?"),
        (lambda: layer.step(x[:, 0], state, "auto"), "gated-deltanet: layer.step: read 3 "
         "positional arguments, allowed: x_t, state; by name: form=, state_dtype="),
        (lambda: rule(q, q, q, final), "gated-deltanet: rule: read 4 positional arguments, "
         "allowed: q, k, v; by name: eta=, log_alpha=, form=, initial_state=, "
         "output_final_state=, params=, cu_seqlens=, mask=, chunk_size=, states_at=, "
         "state_dtype=; did you mean initial_state=?"),
    ]  # fmt: skip
    for call, told in calls:
        with pytest.raises(ValueError, match="positional") as caught:
            call()
        assert str(caught.value) == told


@pytest.mark.parametrize("name", ["gla"])
def test_a_rule_tells_what_its_methods_take_by_place(name: str) -> None:
    """Too many arguments and too few were once bare TypeErrors of Python's."""
    rule = mnemic.compile(name).operator
    q = torch.zeros(1, 2, 1, 4)
    many = "read 4 positional arguments, allowed: q, k, v; by name: log_alpha=, "
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: rule(q, q, q, {}), f"{name}: rule: {many}form=, initial_state=, "
         "output_final_state=, params=, cu_seqlens=, mask=, chunk_size=, states_at=, "
         "state_dtype=; did you mean initial_state=?"),
        (lambda: rule.begin(q, q, q, q), f"{name}: rule.begin: {many}params="),
        (lambda: rule(q, log_alpha=q), f"{name}: rule: missing: k, v; allowed: q, k, v, log_alpha"),
        (lambda: rule.begin(k=q), f"{name}: rule.begin: missing: q, v; allowed: q, k, v, "
         "log_alpha"),
        (lambda: rule(q, q, q, k=q, log_alpha=q), f"{name}: rule: k: given by position and by "
         "name"),
        (lambda: rule.read(q), f"{name}: rule.read: missing: state; allowed: q, state"),
        (lambda: rule.read(q, {}, (1, 4)), f"{name}: rule.read: read 3 positional arguments, "
         "allowed: q, state; by name: params=, sizes="),
    ]  # fmt: skip
    for call, told in calls:
        with pytest.raises(ValueError, match=f"^{name}: rule") as caught:
            call()
        assert str(caught.value) == told
    assert "log_alpha" not in inspect.signature(rule.read).parameters
    assert tuple(inspect.signature(rule).parameters)[:3] == ("q", "k", "v")


def test_states_of_layers_and_of_rules_have_names_of_their_own() -> None:
    rule = mnemic.compile("gated-deltanet")
    q, layer = torch.zeros(1, 1, 1, 4), rule.layer(16)
    for call, ours in (
        (lambda: rule(q, q, q, state={}), "initial_state"),
        (lambda: rule(q, q, q, output_state=True), "output_final_state"),
        (lambda: layer.step(torch.zeros(1, 16), initial_state={}), "state"),
        (lambda: layer(torch.zeros(1, 2, 16), output_final_state=True), "output_state"),
    ):
        with pytest.raises(ValueError, match=f"did you mean '{ours}'"):
            call()


def test_names_of_other_libraries_are_told_ours() -> None:
    rule = mnemic.compile("gated-deltanet")
    q = torch.zeros(1, 1, 1, 4)
    named = {"g": "log_alpha", "beta": "eta", "state": "initial_state", "attention_mask": "mask"}
    for theirs, ours in named.items():
        with pytest.raises(ValueError, match=f"read '{theirs}'.*did you mean '{ours}'"):
            rule(q, q, q, **{theirs: q})
    for theirs, ours in {"num_heads": "heads", "head_dim": "key_dim"}.items():
        with pytest.raises(ValueError, match=f"read '{theirs}'.*did you mean '{ours}'"):
            rule.layer(16, **{theirs: 2})


@pytest.mark.parametrize("name", ["gated-deltanet", "titans-mac"])
def test_a_layer_says_which_dtype_it_has(name: str) -> None:
    layer, x = mnemic.compile(name).layer(16, heads=2), torch.randn(1, 3, 16)
    told = "x: read torch.bfloat16, the layer has torch.float32; cast one to the other"
    with pytest.raises(ValueError, match=told):
        layer(x.bfloat16())
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(x.bfloat16()).shape == x.shape
    assert layer.bfloat16()(x.bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize("name", ["gated-deltanet", "titans-mac"])
def test_a_layer_says_that_token_numbers_are_no_vectors(name: str) -> None:
    layer, x = mnemic.compile(name).layer(16, heads=2), torch.randint(9, (1, 3, 16))
    with pytest.raises(ValueError, match=r"x: read torch.int64, floating-point .* embedding's"):
        layer(x)


def test_a_layer_refuses_a_state_that_is_not_whole() -> None:
    """What lacks in it would start anew without a word: here what the convolution saw."""
    layer, x = mnemic.compile("gated-deltanet").layer(16, heads=2), torch.randn(1, 3, 16)
    _, state = layer(x, output_state=True)
    whole = "; give all that an earlier call returned"
    with pytest.raises(ValueError, match=f"state: read W; missing: convolution{whole}"):
        layer(x, state={"W": state["W"]})
    with pytest.raises(ValueError, match=f"state: read convolution; missing: W{whole}"):
        layer.step(x[:, 0], {"convolution": state["convolution"]})
    turned = mnemic.compile({"mnemic": 1, "name": "turned", "block": {"rotary": True}}).layer(16)
    _, state = turned(x, output_state=True)
    del state["tokens"]
    with pytest.raises(ValueError, match=f"missing: tokens{whole}"):
        turned(x, state=state)
    assert layer(x, state={}).shape == x.shape  # an empty one is a document's start


def test_layers_and_rules_print_their_names_and_sizes() -> None:
    rule = mnemic.compile("gated-deltanet")
    layer = rule.layer(16, heads=2, value_dim=4)
    assert "gated-deltanet, dim=16, heads=2, key_dim=8, value_dim=4" in repr(layer)
    assert "ShortConvolution(channels=40, taps=4)" in repr(layer)
    shown = "<rule gated-deltanet: q, k, v, eta [B, T, H], log_alpha [B, T, H]; forms recurrent"
    assert repr(layer.rule).startswith(shown)


def test_a_first_token_needs_no_state() -> None:
    layer, x = mnemic.compile("gated-deltanet").layer(16, heads=2), torch.randn(1, 16)
    torch.testing.assert_close(layer.step(x)[0], layer.step(x, None)[0])


def test_what_a_layer_is_given_is_told_by_the_names_that_it_has() -> None:
    layer = mnemic.compile("gated-deltanet").layer(8, heads=2)
    x = torch.randn(2, 5, 8)
    _, state = layer(x, output_state=True)
    calls = {
        r"x: read ndarray, a torch.Tensor is needed": lambda: layer(x.numpy()),
        r"x_t: read shape \[2, 1, 8\], expected \[B, 8\]": lambda: layer.step(x[:, :1], state),
        r"x_t: read shape \[2, 5, 8\], expected \[B, 8\]": lambda: layer.advance(x, state),
        r"state\['W'\]: read shape \[2, 2, 4, 4\], expected \[1, …\]": lambda: layer(
            x[:1], state=state
        ),
        r"state\['W'\]: read shape \[2, 2, 4, 4\], expected \[3, …\]": lambda: layer(
            x[:1], state=state, cu_seqlens=torch.tensor([0, 1, 2, 5])
        ),
        r"state\['W'\]: read list, a torch.Tensor is needed": lambda: layer(
            x, state={**state, "W": [1.0]}
        ),
        r"state_dtype: read 'bfloat16', allowed: torch.bfloat16, torch.float16, ": lambda: layer(
            x, state_dtype="bfloat16"
        ),
    }
    for told, call in calls.items():
        with pytest.raises(ValueError, match=told):
            call()
