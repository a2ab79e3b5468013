"""Slots against their definition, token by token, and against another library."""

import warnings
from typing import Any

import pytest
import torch
from conformance import Result, agree, close, compiled, gradients, run, weighed
from torch import Tensor

from mnemic.errors import InvalidSpec

Tensors = dict[str, Tensor]
B, T, H, KEY, VALUE, SLOTS = 2, 19, 2, 5, 3, 7


def spec(**more: Any) -> dict[str, Any]:
    """Gated slot attention with few slots."""
    return {
        "mnemic": 1, "name": "slots", "memory": {"kind": "linear", "slots": SLOTS},
        "retention": {"decay": "channel"}, "keys": {"write": "1 - alpha"}, **more,
    }  # fmt: skip


def arguments(groups: int = 1) -> Tensors:
    """Random arguments in float64."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(B, T, *shape, dtype=torch.float64, generator=generator)

    decay = -normal(H, SLOTS).abs() / 4
    return {"q": normal(H * groups, KEY), "k": normal(H, KEY), "v": normal(H, VALUE),
            "log_alpha": decay}  # fmt: skip


def naive(q: Tensor, k: Tensor, v: Tensor, log_alpha: Tensor, w: Tensor) -> tuple[Tensor, Tensors]:
    """K_t = Diag(α) K + w kᵀ, W_t = W Diag(α) + v wᵀ, y = W softmax(K q): heads equal in number."""
    keys = q.new_zeros(B, H, w.shape[-1], KEY)
    values = q.new_zeros(B, H, VALUE, w.shape[-1])
    found = []
    for t in range(T):
        alpha = log_alpha[:, t].exp()
        keys = alpha[..., :, None] * keys + w[:, t, :, :, None] * k[:, t, :, None, :]
        values = values * alpha[..., None, :] + v[:, t, :, :, None] * w[:, t, :, None, :]
        read = torch.softmax((keys @ q[:, t, :, :, None])[..., 0], -1)
        found.append((values @ read[..., None])[..., 0])
    return torch.stack(found, 1), {"K": keys, "W": values}


@pytest.mark.parametrize("form", ["recurrent", "chunk"])
def test_the_definition(form: str) -> None:
    given = arguments()
    out, state = compiled(spec()).operator(**given, form=form, output_final_state=True)
    expected, held = naive(**given, w=1 - given["log_alpha"].exp())
    close({"y": out, **state}, {"y": expected, **held})
    assert compiled(spec()).operator.params == {}  # nothing that it starts from is learned


def test_write_keys_of_their_own() -> None:
    given = {**arguments(), "write": torch.rand(B, T, H, SLOTS, dtype=torch.float64)}
    out, state = compiled(spec(keys={"write": "own"})).operator(**given, output_final_state=True)
    w = given.pop("write")
    expected, held = naive(**given, w=w)
    close({"y": out, **state}, {"y": expected, **held})


def test_a_decay_of_the_head() -> None:
    given = {**arguments(), "write": torch.rand(B, T, H, SLOTS, dtype=torch.float64)}
    given["log_alpha"] = given["log_alpha"][..., 0]
    case = compiled(spec(keys={"write": "own"}, retention={"decay": "token"}))
    out, _ = case.operator(**given)
    w, decay = given.pop("write"), given.pop("log_alpha")
    expected, _ = naive(**given, log_alpha=decay[..., None].expand_as(w), w=w)
    close({"y": out}, {"y": expected})


@pytest.mark.parametrize("slots", [SLOTS, H])
@pytest.mark.parametrize("form", ["recurrent", "chunk"])
def test_a_gate_of_the_head_beside_a_decay_of_the_slot(form: str, slots: int) -> None:
    """With as many slots as heads the two axes could be taken for one another."""
    case = compiled(spec(
        memory={"kind": "linear", "slots": slots}, keys={"write": "g*(1 - alpha)"},
        coefficients={"g": {"from": "input", "activation": "sigmoid"}},
    ))  # fmt: skip
    given = arguments()
    given["log_alpha"] = given["log_alpha"][..., :slots]
    given["g"] = torch.sigmoid(given["v"].sum(-1))
    found = run(case, given, form)
    leaves = {n: x.clone().requires_grad_() for n, x in given.items()}
    w = leaves["g"][..., None] * (1 - leaves["log_alpha"].exp())
    out, held = naive(**{n: x for n, x in leaves.items() if n != "g"}, w=w)
    loss = weighed(out) + sum(weighed(x) for x in held.values())
    agree(found, Result(out, held, gradients(loss, leaves)))


@pytest.mark.parametrize(
    ("write", "decay"), [("g", "channel"), ("2*g", "token"), ("1/2", "channel"), ("1/2", "learned")]
)
def test_write_keys_that_are_the_same_for_all_slots(write: str, decay: str) -> None:
    gate = {"from": "input", "activation": "sigmoid"}
    named = {"coefficients": {"g": gate}} if "g" in write else {}
    case = compiled(spec(keys={"write": write}, retention={"decay": decay}, **named))
    given = arguments()
    slot = given["log_alpha"] if decay == "channel" else given["log_alpha"][..., :1]
    given["log_alpha"] = slot if decay == "channel" else slot[..., 0]
    g = torch.sigmoid(given["v"].sum(-1))
    w = {"g": g, "2*g": 2 * g, "1/2": torch.full_like(g, 0.5)}[write]
    out, state = case.operator(**given, **({"g": g} if named else {}), output_final_state=True)
    vectors = {n: given[n] for n in "qkv"}
    full = (B, T, H, SLOTS)
    expected, held = naive(**vectors, log_alpha=slot.expand(full), w=w[..., None].expand(full))
    close({"y": out, **state}, {"y": expected, **held})


@pytest.mark.parametrize("groups", [1, 2])
def test_forms_agree_with_gradients(groups: int) -> None:
    case, given = compiled(spec()), arguments(groups)
    state = case.operator(**arguments(), output_final_state=True)[1]
    expected = run(case, given, "recurrent", state=state)
    for size in (1, 5, 64):
        agree(run(case, given, "chunk", state=state, chunk_size=size), expected)


def test_pieces_masks_and_documents() -> None:
    rule, given = compiled(spec()).operator, arguments()
    whole, end = rule(**given, output_final_state=True)
    first, state = rule(**{n: x[:, :7] for n, x in given.items()}, output_final_state=True)
    rest = {n: x[:, 7:] for n, x in given.items()}
    second, last = rule(**rest, initial_state=state, output_final_state=True)
    close({"y": torch.cat([first, second], 1), **last}, {"y": whole, **end})
    mask = torch.arange(T).expand(B, T) >= 7
    masked, last = rule(**given, mask=mask, output_final_state=True)
    alone, end = rule(**rest, output_final_state=True)
    close({"y": masked[:, 7:], **last}, {"y": alone, **end})
    one = {n: x[:1] for n, x in given.items()}
    packed, _ = rule(**one, cu_seqlens=torch.tensor([0, 7, T]))
    close({"y": packed[:, 7:]}, {"y": alone[:1]})


def test_another_library() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = pytest.importorskip("fla.ops.gsa.naive").naive_recurrent_gsa
    given = {name: x.float() for name, x in arguments(groups=2).items()}
    state = {"K": torch.rand(B, H, SLOTS, KEY), "W": torch.rand(B, H, VALUE, SLOTS)}
    out, last = compiled(spec()).operator(**given, initial_state=state, output_final_state=True)
    g = given.pop("log_alpha")
    held = (state["K"].mT, state["W"].mT)
    y, (keys, values) = theirs(
        **given, s=1 - g.exp(), g=g, scale=1.0, initial_state=held, output_final_state=True
    )
    close({"y": out, **last}, {"y": y, "K": keys.mT, "W": values.mT}, 1e-5)


def test_half_precision_is_computed_in_float32() -> None:
    given = {name: x.bfloat16() for name, x in arguments().items()}
    rule = compiled(spec()).operator
    out, _ = rule(**given)
    assert out.dtype == torch.bfloat16
    close({"y": out}, {"y": rule(**{n: x.float() for n, x in given.items()})[0]}, 1e-2)


def test_errors_name_what_is_wrong() -> None:
    rule, given = compiled(spec()).operator, arguments()
    with pytest.raises(ValueError, match=r"log_alpha: read shape .*, expected \[2, 19, 2, 7\]"):
        rule(**{**given, "log_alpha": given["log_alpha"][..., :5]})
    with pytest.raises(ValueError, match="initial_state: read 'S', allowed: K, W"):
        rule(**given, initial_state={"S": torch.zeros(())})


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"bias": "l2", "optimizer": {"rate": "token"}}, "one additive step a token"),
        ({"keys": {}}, "the write keys live in the slots"),
        ({"keys": {"write": "k*(1 - alpha)"}}, "the write keys live in the slots"),
        ({"readout": {"memory": "before"}}, "a read-out of their own"),
        (
            {"keys": {"write": "g*(1 - alpha)"}, "coefficients": {"g": "1/(t + h + 1)"}},
            "that count with 'h' and 't'",
        ),
    ],
)
def test_what_is_not_compiled_is_refused(more: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidSpec, match=reason):
        compiled(spec(**more))
