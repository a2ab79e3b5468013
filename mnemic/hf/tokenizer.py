"""Tokenizers: bytes, one that is trained on the text, or one that is loaded."""

import json
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode

from mnemic.errors import Issue, UsageError, format_issue
from mnemic.hf.from_fla import tokenizer_files

END = "<|end|>"
"""The token that ends a document."""

BYTES = 256


def get_tokenizer(told: str, texts: Iterable[str]) -> Any:
    """Return the tokenizer that ``told`` names, with a token that ends documents.

    Args:
        told: ``bytes``; ``bpe:SIZE``, byte pairs merged on the texts until there are SIZE tokens;
            or the folder (or tokenizer.json) of one that is there.
        texts: to train on.

    Raises:
        UsageError: none of these, or a size that has no room for every byte and the end.
    """
    if told == "bytes":
        return _fast(_byte_pairs())
    if told.startswith("bpe:"):
        size = told.removeprefix("bpe:")
        if not size.isdecimal() or int(size) <= BYTES:
            needed = f"needs a whole number above {BYTES}: every byte and the end are tokens"
            raise UsageError(format_issue(Issue(needed, "--tokenizer", told)))
        return _fast(_trained(texts, int(size)))
    return _loaded(Path(told))


def load_tokenizer(folder: Path) -> Any:
    """Load the tokenizer that lies in a model's folder.

    Raises:
        UsageError: there is none, as in the folder of a model that has seen no text, or it cannot
            be read.
    """
    if not tokenizer_files(folder):
        raise UsageError(
            f"{folder}: has no tokenizer; mnemic train {folder} --data TEXT leaves the model that "
            "it trains with one"
        )
    return _loaded(folder)


def digest_of(tokenizer: Any) -> str:
    """Return a digest that identifies a tokenizer: how it cuts texts, and its end of documents."""
    inner = getattr(tokenizer, "backend_tokenizer", None)
    told = json.dumps(sorted(tokenizer.get_vocab().items())) if inner is None else inner.to_str()
    return sha256(f"{tokenizer.eos_token_id} {told}".encode()).hexdigest()[:16]


def _byte_pairs() -> Tokenizer:
    """Make a tokenizer with every byte as the token of its number, without merges."""
    vocabulary = {letter: byte for byte, letter in bytes_to_unicode().items()}
    return _dressed(Tokenizer(models.BPE(vocab=vocabulary, merges=[])))


def _trained(texts: Iterable[str], size: int) -> Tokenizer:
    found = _dressed(Tokenizer(models.BPE()))
    letters = list(bytes_to_unicode().values())
    trainer = trainers.BpeTrainer(
        vocab_size=size - 1, initial_alphabet=letters, show_progress=False
    )
    found.train_from_iterator(texts, trainer)
    return found


def _dressed(found: Tokenizer) -> Tokenizer:
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = decoders.ByteLevel()
    return found


def _fast(found: Tokenizer) -> Any:
    """Return the tokenizer for transformers; it pads as ``generate()`` needs it, on the left."""
    return PreTrainedTokenizerFast(
        tokenizer_object=found, eos_token=END, pad_token=END, clean_up_tokenization_spaces=False,
        padding_side="left",
    )  # fmt: skip


def _loaded(place: Path) -> Any:
    """Load a tokenizer that was saved; one without an end of documents gets one."""
    if place.is_file():
        try:
            return _fast(Tokenizer.from_file(str(place)))
        except Exception as error:  # tokenizers raises Exception itself
            raise _unreadable(place, error) from None
    if not place.is_dir():
        allowed = "bytes, bpe:SIZE, or a folder or file that is there"
        raise UsageError(f"--tokenizer: read '{place}', allowed: {allowed}")
    try:
        found = AutoTokenizer.from_pretrained(place, local_files_only=True)
    except Exception as error:  # as above, and KeyError where a part of a file is missing
        raise _unreadable(place, error) from None
    if found.eos_token is None:
        found.add_special_tokens({"eos_token": END})
    if found.pad_token is None:
        found.pad_token = found.eos_token
    return found


def _unreadable(place: Path, error: Exception) -> UsageError:
    reason = f"no {error}" if isinstance(error, KeyError) else error
    return UsageError(f"--tokenizer: {place}: cannot be read: {reason}")
