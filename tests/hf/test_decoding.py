"""Text that is told as its tokens come is the text of all tokens, whole characters at a time."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from mnemic.hf.decoding import HALF, Decoder
from mnemic.hf.tokenizer import get_tokenizer

TEXTS = ["für 3 € — 漢字, 🎉 and 🏳️‍🌈.\n", "plain words, then more", "a\tb\n\nc"]


def told(tokenizer: Any, tokens: list[int]) -> list[str]:
    decoder = Decoder(tokenizer)
    return [*map(decoder.add, tokens), decoder.rest()]


def leading() -> Any:
    """A tokenizer in the manner of SentencePiece, which drops the space before a text."""
    words = {"▁the": 0, "▁cat": 1, "s": 2, ".": 3}
    found = Tokenizer(models.BPE(vocab=words, merges=[]))
    found.decoder = decoders.Metaspace()
    return PreTrainedTokenizerFast(tokenizer_object=found, clean_up_tokenization_spaces=False)


@pytest.mark.parametrize("kind", ["bytes", "bpe:280"])
def test_pieces_are_the_whole_text(kind: str) -> None:
    tokenizer = get_tokenizer(kind, TEXTS * 3)
    for text in TEXTS:
        pieces = told(tokenizer, tokenizer.encode(text))
        assert "".join(pieces) == text
        assert not any(HALF in piece for piece in pieces)
        assert len([piece for piece in pieces if piece]) > len(text) / 4


@pytest.mark.parametrize("seed", range(5))
def test_bytes_that_are_no_text_are_told_as_the_tokenizer_does(seed: int) -> None:
    tokenizer = get_tokenizer("bytes", ())
    chance = random.Random(seed)
    tokens = [chance.choice([*range(65, 91), *range(128, 256)]) for _ in range(200)]
    assert "".join(told(tokenizer, tokens)) == tokenizer.decode(tokens)
    assert HALF in tokenizer.decode(tokens)


def test_spaces_between_words_stay() -> None:
    tokenizer = leading()
    tokens = [0, 1, 2, 1, 3, 0]
    assert tokenizer.decode(tokens) == "the cats cat. the"
    assert "".join(told(tokenizer, tokens)) == "the cats cat. the"


def test_a_token_is_decoded_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the text before it is."""
    tokenizer = get_tokenizer("bytes", ())
    decode, counted = tokenizer.decode, 0

    def counting(tokens: list[int]) -> str:
        nonlocal counted
        counted += len(tokens)
        return decode(tokens)

    monkeypatch.setattr(tokenizer, "decode", counting)
    tokens = tokenizer.encode(TEXTS[0] * 20)
    told(tokenizer, tokens)
    assert counted < 12 * len(tokens)
