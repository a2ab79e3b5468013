"""The model in training: losses, documents, checkpointing, initial values, Trainer."""

from __future__ import annotations

import math

import pytest
import torch
from small_models import VOCABULARY, small, tokens
from torch import Tensor
from torch.nn import functional as F
from transformers import DataCollatorWithFlattening

from mnemic.hf.build import make_config, make_model
from mnemic.hf.modeling_mnemic import MnemicForCausalLM
from mnemic.hf.shape import Shape


@pytest.fixture(scope="module")
def model() -> MnemicForCausalLM:
    return small("gated-deltanet", "swa")


def gradients(model: MnemicForCausalLM, loss: Tensor) -> dict[str, Tensor]:
    found = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    names = (name for name, _ in model.named_parameters())
    return {name: g for name, g in zip(names, found, strict=True) if g is not None}


def scored(logits: Tensor, labels: Tensor) -> Tensor:
    """The loss in float64, where transformers takes it in float32."""
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


def test_labels_are_shifted_and_some_are_not_scored(model: MnemicForCausalLM) -> None:
    labels = tokens().clone()
    labels[0, 3:6] = -100
    found = model(tokens(), labels=labels)
    assert found.loss.item() == pytest.approx(scored(found.logits, labels).item(), rel=1e-5)


def test_padding_changes_neither_loss_nor_gradients(each: str) -> None:
    made, rows = small(each), tokens(1)
    alone = scored(made(rows).logits, rows)
    padded = torch.cat([tokens(1, 4, seed=9), rows], 1)
    mask = torch.cat([torch.zeros(1, 4), torch.ones(1, 9)], 1).long()
    labels = padded.masked_fill(mask == 0, -100)
    labels[0, 4] = -100  # alone, the first token is not scored
    found = scored(made(padded, attention_mask=mask).logits, labels)
    torch.testing.assert_close(found, alone)
    expected = gradients(made, alone)
    torch.testing.assert_close(gradients(made, found), expected)


def test_documents_are_told_by_positions_or_by_their_ends(model: MnemicForCausalLM) -> None:
    rows = tokens()
    position = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4], [0, 1, 0, 1, 2, 3, 4, 0, 1]])
    ends = torch.tensor([0, 4, 9, 11, 16, 18])
    told = model(rows, position_ids=position).logits
    torch.testing.assert_close(model(rows, cu_seqlens=ends).logits, told)
    torch.testing.assert_close(told[1:, 2:7], model(rows[1:, 2:7]).logits)
    assert not told.allclose(model(rows).logits)
    torch.testing.assert_close(  # positions that only go on are no documents
        model(rows, position_ids=torch.arange(5, 14)[None]).logits, model(rows).logits
    )


def test_documents_go_neither_with_padding_nor_with_a_cache(model: MnemicForCausalLM) -> None:
    ends, mask = torch.tensor([0, 4, 9]), torch.tensor([[0, 1, 1, 1, 1, 1, 1, 1, 1]])
    with pytest.raises(
        ValueError, match=r"^packed documents cannot be combined with padding \(attention_mask\)$"
    ):
        model(tokens(1), cu_seqlens=ends, attention_mask=mask)
    cache = model(tokens(1), use_cache=True).cache
    with pytest.raises(
        ValueError, match=r"^packed documents begin afresh and take no cache: leave it out$"
    ):
        model(tokens(1), cu_seqlens=ends, cache=cache)


def test_logits_of_some_positions(model: MnemicForCausalLM) -> None:
    whole = model(tokens()).logits
    torch.testing.assert_close(model(tokens(), logits_to_keep=2).logits, whole[:, -2:])
    torch.testing.assert_close(model(tokens(), num_logits_to_keep=1).logits, whole[:, -1:])
    chosen = torch.tensor([0, 5])
    torch.testing.assert_close(model(tokens(), logits_to_keep=chosen).logits, whole[:, chosen])


def test_streams_embeddings_and_tuples(model: MnemicForCausalLM) -> None:
    found = model(tokens(), output_hidden_states=True)
    assert len(found.hidden_states) == 3
    torch.testing.assert_close(model.lm_head(found.hidden_states[-1]), found.logits)
    embedded = model.get_input_embeddings()(tokens())
    torch.testing.assert_close(model(inputs_embeds=embedded).logits, found.logits)
    torch.testing.assert_close(model(tokens(), return_dict=False)[0], found.logits)
    with pytest.raises(ValueError, match=r"^give exactly one of input_ids and inputs_embeds$"):
        model()
    with pytest.raises(ValueError, match=r"^attention_mask: read shape \[2, 4\], expected \[B, 9"):
        model(tokens(), attention_mask=torch.ones(2, 4))


def test_checkpointing_gives_the_same_gradients(each: str) -> None:
    made = small(each).train()
    expected = gradients(made, scored(made(tokens()).logits, tokens()))
    made.activation_checkpointing_enable()
    calls = []
    memory = made.model.layers[0].memory
    memory.register_forward_hook(lambda *_: calls.append(1))
    found = gradients(made, scored(made(tokens()).logits, tokens()))
    assert len(calls) == 2  # once more on the way back
    torch.testing.assert_close(found, expected)


def test_sixteen_bits_are_near(each: str) -> None:
    made = small(each).float()
    whole = made(tokens(), labels=tokens()).loss
    with torch.autocast("cpu", torch.bfloat16):
        found = made(tokens(), labels=tokens())
    assert found.loss.item() == pytest.approx(whole.item(), rel=0.1)
    found.loss.backward()
    lost = [name for name, p in made.named_parameters() if p.grad is not None
            and not p.grad.isfinite().all()]  # fmt: skip
    assert lost == []
    half = made.bfloat16()(tokens(), labels=tokens())
    assert half.logits.dtype == torch.bfloat16
    assert half.loss.item() == pytest.approx(whole.item(), rel=0.1)


def test_initial_values_are_as_told() -> None:
    def spread(model: MnemicForCausalLM, name: str) -> float:
        return float(model.get_parameter(name).detach().std())

    shape = Shape(2, 64, vocabulary=512)
    made = make_model(make_config(["deltanet"], shape))
    first, last = (
        "model.layers.1.feed_forward.w_in.weight",
        "model.layers.1.feed_forward.w_out.weight",
    )
    hidden = made.get_parameter(first).shape[0]
    assert spread(made, "model.embed_tokens.weight") == pytest.approx(64**-0.5, rel=0.05)
    assert spread(made, first) == pytest.approx(64**-0.5, rel=0.05)
    assert spread(made, last) == pytest.approx((4 * hidden) ** -0.5, rel=0.05)
    assert spread(made, "model.layers.1.memory.out.weight") == pytest.approx(64**-0.5, rel=0.05)
    told = Shape(2, 64, vocabulary=512, init=0.02)
    made = make_model(make_config(["deltanet"], told))
    for name in (
        "model.embed_tokens.weight",
        first,
        "model.layers.0.memory.vectors.project.weight",
    ):
        assert spread(made, name) == pytest.approx(0.02, rel=0.05)
    assert spread(made, last) == pytest.approx(0.01, rel=0.05)


def test_a_new_model_knows_nothing() -> None:
    made = make_model(make_config(["gated-deltanet"], Shape(2, 32, vocabulary=VOCABULARY)))
    rows = tokens(8, 32)
    assert made(rows, labels=rows).loss.item() == pytest.approx(math.log(VOCABULARY), rel=0.25)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # the tracer's
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # its too
def test_compiled_is_as_written(each: str) -> None:
    """By the tracer alone: what inductor makes of the graphs is tested layer by layer."""
    made = small(each).train()
    torch._dynamo.reset()
    compiled = torch.compile(made, backend="eager")
    expected = gradients(made, scored(made(tokens()).logits, tokens()))
    logits = compiled(tokens(), attention_mask=torch.ones_like(tokens())).logits
    torch.testing.assert_close(gradients(made, scored(logits, tokens())), expected)


def test_what_would_be_misread_is_refused(model: MnemicForCausalLM) -> None:
    rows, added = tokens(), torch.zeros(2, 9).double()
    added[0, :4] = torch.finfo(torch.float64).min
    with pytest.raises(
        ValueError, match=r"^attention_mask: 1 at tokens and 0 at padding .* -1.797"
    ):
        model(rows, attention_mask=added)
    with pytest.raises(ValueError, match=r"^attention_mask: .* read 2$"):  # numbers of documents
        model(rows, attention_mask=torch.tensor([[1, 1, 1, 2, 2, 2, 3, 3, 3]] * 2))
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'attention_masks'$"):
        model(rows, attention_masks=torch.ones(2, 9))
    with pytest.raises(ValueError, match=r"^output_attentions: memory layers have no weights"):
        model(rows, output_attentions=True)
    with pytest.raises(ValueError, match=r"^labels: read \[2, 9\], and logits of \[2, 3\] posit"):
        model(rows, labels=rows, logits_to_keep=3)


def test_transformers_own_collator_packs_documents(model: MnemicForCausalLM) -> None:
    """By positions, and by the ends of its documents alone."""
    rows = [row[None, :size] for row, size in zip(tokens(3), (4, 9, 2), strict=True)]
    collated = DataCollatorWithFlattening(return_flash_attn_kwargs=True, return_tensors="pt")
    batch = collated([{"input_ids": row[0].tolist()} for row in rows])
    alone = [model(row).logits for row in rows]
    found = model(**batch)
    torch.testing.assert_close(found.logits, torch.cat(alone, 1))
    batch.pop("position_ids")
    torch.testing.assert_close(model(**batch).logits, found.logits)
    nats = [scored(y, row).item() * (row.shape[1] - 1) for y, row in zip(alone, rows, strict=True)]
    assert found.loss.item() == pytest.approx(sum(nats) / 12, rel=1e-5)
