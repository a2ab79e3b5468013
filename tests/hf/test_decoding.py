"""Text that is told as its tokens come is the text of all tokens, whole characters at a time."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from mnemic.hf.decoding import HALF, WAIT, Decoder
from mnemic.hf.tokenizer import get_tokenizer

TEXTS = ["für 3 € — 漢字, 🎉 and 🏳️‍🌈.\n", "plain words, then more", "a\tb\n\nc"]


def told(tokenizer: Any, tokens: list[int], prompt: Sequence[int] = ()) -> list[str]:
    decoder = Decoder(tokenizer, prompt)
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
    assert "".join(told(tokenizer, [1, 2], prompt=[0])) == " cats"


def test_a_character_that_the_prompt_began_is_told_whole() -> None:
    tokenizer = get_tokenizer("bytes", ())
    first, second = "é".encode()
    assert "".join(told(tokenizer, [second, *b"t"], prompt=[*b"an ", first])) == "ét"
    assert "".join(told(tokenizer, [*b"ok"], prompt=[first, first])) == "ok"


def test_no_letter_is_lost_where_a_tokenizer_cleans_spaces() -> None:
    words = {"x": 0, "=": 1, "'": 2, "s": 3}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(vocab=words, unk_token="x")),
        clean_up_tokenization_spaces=True,
    )
    assert "".join(told(tokenizer, [0, 1, 2, 3, 2])) == "x = ' s '"


def test_bytes_that_never_make_text_are_not_held_for_ever() -> None:
    tokenizer = get_tokenizer("bytes", ())
    pieces = told(tokenizer, [0x80] * 100)
    assert "".join(pieces) == HALF * 100
    assert max(map(len, pieces)) == WAIT


def test_a_token_is_decoded_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the text before it is."""
    tokenizer = get_tokenizer("bytes", ())
    decode, counted = tokenizer.decode, 0

    def counting(tokens: list[int], **told: Any) -> str:
        nonlocal counted
        counted += len(tokens)
        return decode(tokens, **told)

    monkeypatch.setattr(tokenizer, "decode", counting)
    tokens = tokenizer.encode(TEXTS[0] * 20)
    told(tokenizer, tokens)
    assert counted < 12 * len(tokens)
    counted = 0
    told(tokenizer, [0x80] * 1000)  # no text at all
    assert counted < 2 * (WAIT + WAIT) * 1000
