"""Decode tokens to text incrementally, without decoding all of them again at each token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

HALF: Final = "\N{REPLACEMENT CHARACTER}"
"""What a tokenizer writes for bytes that are no character, or not yet a whole one."""
WAIT: Final = 16
"""Tokens for which a character may be awaited: more of them make no text."""
BEFORE: Final = 8
"""Tokens of a prompt that are decoded before the text."""


class Decoder:
    """Decodes tokens as they arrive, in windows that begin where the text was complete.

    A window includes the window before its new tokens, so that a tokenizer that drops the space
    before a text drops it only once, before the prompt. The returned texts and `rest` together are
    what follows the prompt if the tokenizer decodes all tokens at once, without cleaning up
    spaces. Only bytes that are not text may give a different number of replacement characters.

    Args:
        tokenizer: a tokenizer of transformers.
        prompt: the tokens before the text.
    """

    def __init__(self, tokenizer: Any, prompt: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._tokens = list(prompt[-BEFORE:])
        self._known = len(self._tokens)

    def add(self, token: int) -> str:
        """Add a token; return the new text, empty where its last character may be incomplete."""
        self._tokens.append(token)
        text, new = self._new()
        if text.endswith(HALF) and len(self._tokens) - self._known < WAIT:
            return ""
        self._tokens, self._known = self._tokens[self._known :], len(self._tokens) - self._known
        return new

    def rest(self) -> str:
        """Return the text that was held back."""
        return self._new()[1]

    def _new(self) -> tuple[str, str]:
        """Decode the window; return its text, and the part added by the new tokens."""
        before, text = self._text(self._tokens[: self._known]), self._text(self._tokens)
        apart = (i for i, (a, b) in enumerate(zip(before, text, strict=False)) if a != b)
        return text, text[next(apart, len(before)) :]

    def _text(self, tokens: list[int]) -> str:
        found: str = self._tokenizer.decode(tokens, clean_up_tokenization_spaces=False)
        return found
