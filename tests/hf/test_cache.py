"""States carried by ``generate()``: the same numbers as without a cache, whatever is done to it."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from packaged import available
from small_models import small, tokens
from torch import Tensor
from transformers.cache_utils import DynamicCache

from mnemic.hf.cache_mnemic import MnemicCache
from mnemic.hf.checks import run_checks
from mnemic.hf.modeling_mnemic import MnemicForCausalLM

MIXED = ("gated-deltanet", "swa", "softmax-attention")
"""A matrix, a window and kept pairs."""


@pytest.fixture(scope="module")
def model() -> MnemicForCausalLM:
    return small(*MIXED, blocks=3)


def grown(model: MnemicForCausalLM, rows: Tensor, **options: object) -> Tensor:
    found: Tensor = model.generate(rows, max_new_tokens=6, do_sample=False, **options)
    return found


def test_what_must_be_equal_is_for_every_class(each: str) -> None:
    found = run_checks(small(each).config)
    assert len(found) >= 3
    assert [check for check in found if not check.passed] == []


@pytest.mark.full
@pytest.mark.parametrize("name", available())
def test_what_must_be_equal_is_for_every_spec(name: str, tmp_path: Path) -> None:
    made = small(name)
    assert [check for check in run_checks(made.config) if not check.passed] == []
    made.save_pretrained(tmp_path)
    found = MnemicForCausalLM.from_pretrained(tmp_path).state_dict()
    assert [n for n, x in made.state_dict().items() if not x.equal(found[n])] == []


def test_greedy_as_without_a_cache(model: MnemicForCausalLM) -> None:
    told = grown(model, tokens())
    assert told.equal(grown(model, tokens(), use_cache=False))
    assert len(set(told[:, 9:].flatten().tolist())) > 4


def test_every_class_generates_as_without_a_cache(each: str) -> None:
    made = small(each)
    assert grown(made, tokens(1)).equal(grown(made, tokens(1), use_cache=False))


def test_rows_padded_on_the_left_generate_what_they_would_alone(model: MnemicForCausalLM) -> None:
    mask = torch.ones(2, 9, dtype=torch.long)
    mask[0, :5] = 0
    both = grown(model, tokens(), attention_mask=mask)
    assert both[:1, 9:].equal(grown(model, tokens()[:1, 5:])[:, 4:])
    assert both[1:].equal(grown(model, tokens()[1:]))


@pytest.mark.parametrize("size", [1, 4])
def test_a_prompt_in_pieces(model: MnemicForCausalLM, size: int) -> None:
    mask = torch.ones(2, 9, dtype=torch.long)
    mask[0, :5] = 0
    whole = grown(model, tokens(), attention_mask=mask)
    assert grown(model, tokens(), attention_mask=mask, prefill_chunk_size=size).equal(whole)


def test_beams_keep_their_own_states(model: MnemicForCausalLM) -> None:
    told = grown(model, tokens(), num_beams=4)
    assert told.equal(grown(model, tokens(), num_beams=4, use_cache=False))
    assert not told.equal(grown(model, tokens()))


def test_samples_follow_the_seed(model: MnemicForCausalLM) -> None:
    def sample(**options: object) -> Tensor:
        torch.manual_seed(3)
        found: Tensor = model.generate(
            tokens(), max_new_tokens=6, do_sample=True, temperature=4.0, **options
        )
        return found

    assert sample().equal(sample(use_cache=False))


@pytest.mark.parametrize("lookup", [False, True], ids=["assistant", "prompt lookup"])
def test_assisted_generation_gives_the_same_tokens(model: MnemicForCausalLM, lookup: bool) -> None:
    helper = small("gated-deltanet", blocks=1)  # another model: most of what it offers is refused
    told = {"prompt_lookup_num_tokens": 3} if lookup else {"assistant_model": helper}
    prompt = tokens(1)[:, [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]]
    assert grown(model, prompt, **told).equal(grown(model, prompt))


def test_a_crop_takes_back_tokens(each: str) -> None:
    made, rows = small(each), tokens()
    cache = MnemicCache(2)
    cache.activate_past_recording()
    with torch.no_grad():
        made(rows[:, :5], cache=cache)
        made(tokens(seed=7)[:, :3], cache=cache)
        cache.crop(-4)
        assert cache.get_seq_length() == 4
        found = made(rows[:, 4:], cache=cache).logits
        torch.testing.assert_close(found, made(rows).logits[:, 4:])


def test_what_was_not_recorded_cannot_be_taken_back(model: MnemicForCausalLM) -> None:
    cache = MnemicCache(3)
    model(tokens(), cache=cache)
    with pytest.raises(RuntimeError, match=r"^crop: 2 tokens to remove, 0 recorded; a memory's"):
        cache.crop(-2)
    with pytest.raises(ValueError, match=r"^crop: read 2, minus the tokens to remove is needed$"):
        cache.crop(2)


def test_a_copy_goes_its_own_way(model: MnemicForCausalLM) -> None:
    rows = tokens()
    cache = model(rows[:, :4], use_cache=True).cache
    kept = copy.deepcopy(cache)
    model(tokens(seed=5), cache=cache)
    found = model(rows[:, 4:], cache=kept).logits
    torch.testing.assert_close(found, model(rows).logits[:, 4:])


def test_rows_are_repeated_and_chosen(model: MnemicForCausalLM) -> None:
    rows = tokens()
    cache = model(rows[:, :4], use_cache=True).cache
    cache.batch_repeat_interleave(2)
    cache.batch_select_indices(torch.tensor([3, 0]))
    found = model(rows[[1, 0], 4:], cache=cache).logits
    torch.testing.assert_close(found, model(rows[[1, 0]]).logits[:, 4:])


def test_a_cache_that_is_reset_begins_afresh(model: MnemicForCausalLM) -> None:
    cache = model(tokens(seed=5), use_cache=True).cache
    assert cache.nbytes > 0
    cache.reset()
    assert (cache.nbytes, cache.get_seq_length()) == (0, 0)
    torch.testing.assert_close(model(tokens(), cache=cache).logits, model(tokens()).logits)


def test_caches_of_another_kind_are_refused(model: MnemicForCausalLM) -> None:
    with pytest.raises(ValueError, match=r"^cache: read DynamicCache, a MnemicCache is"):
        model(tokens(), cache=DynamicCache())
    with pytest.raises(ValueError, match=r"^cache_implementation: read 'static'; the states"):
        grown(model, tokens(), cache_implementation="static")


def test_a_cache_has_an_older_name(model: MnemicForCausalLM) -> None:
    """Before 5.24 transformers calls it ``past_key_values``."""
    rows = tokens()
    cache = model(rows[:, :4], use_cache=True).cache
    kept = copy.deepcopy(cache)
    told = model(rows[:, 4:], past_key_values=cache).logits
    torch.testing.assert_close(told, model(rows[:, 4:], cache=kept).logits)
    with pytest.raises(ValueError, match=r"^cache and past_key_values are two names of one thing"):
        model(rows, cache=cache, past_key_values=kept)


def test_a_model_in_training_that_computes_its_layers_again_takes_no_cache() -> None:
    """The second pass would move the states on once more."""
    made = small("gated-deltanet")
    cache = made(tokens(), use_cache=True).cache
    made.train().activation_checkpointing_enable()
    with pytest.raises(ValueError, match=r"^gradient checkpointing in training takes no cache"):
        made(tokens(), cache=cache)
    with torch.no_grad():  # nothing is computed again without a way back
        assert made(tokens(), cache=cache).logits.isfinite().all()


def test_a_conversation_goes_on_from_its_cache(model: MnemicForCausalLM) -> None:
    mask = torch.ones(2, 9, dtype=torch.long)
    mask[0, :4] = 0
    first = grown(model, tokens(), attention_mask=mask, return_dict_in_generate=True)
    rows = torch.cat([first.sequences, tokens(seed=3)[:, :3]], 1)
    mask = torch.cat([mask, torch.ones(2, 9, dtype=torch.long)], 1)
    told = grown(model, rows, attention_mask=mask)
    kept = copy.deepcopy(first.cache)
    assert grown(model, rows, attention_mask=mask, cache=first.cache).equal(told)
    with pytest.raises(
        ValueError, match=r"^generate: the cache has seen 14 tokens, and the prompt"
    ):
        grown(model, rows[:, :14], attention_mask=mask[:, :14], cache=kept)


def test_embeddings_are_generated_from_as_their_tokens(model: MnemicForCausalLM) -> None:
    mask = torch.ones(2, 9, dtype=torch.long)
    mask[0, :4] = 0
    embedded = model.get_input_embeddings()(tokens()).detach()
    found = model.generate(
        inputs_embeds=embedded, attention_mask=mask, max_new_tokens=6, do_sample=False
    )
    assert found.equal(grown(model, tokens(), attention_mask=mask)[:, 9:])
