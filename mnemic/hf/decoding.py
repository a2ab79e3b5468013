"""Text from tokens as they come, without decoding all of them anew at each."""

from __future__ import annotations

from typing import Any

HALF = "�"
"""What a tokenizer writes for bytes that are no character, or not yet a whole one."""


class Decoder:
    """Decodes tokens as they come, in windows that begin where a text was whole.

    A window begins one window before its news: tokenizers that drop a leading space, or join words,
    do so in both texts whose difference is told. The texts told, with `rest` at the end, are what
    the tokenizer makes of all tokens at once.

    Args:
        tokenizer: of transformers.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._tokens: list[int] = []
        self._known = 0

    def add(self, token: int) -> str:
        """Take one more token; return the text that is new, none where its last character might
        not be whole."""
        self._tokens.append(token)
        before, now = self._texts()
        if now.endswith(HALF):
            return ""
        self._tokens, self._known = self._tokens[self._known :], len(self._tokens) - self._known
        return now[len(before) :]

    def rest(self) -> str:
        """Return the text that was held back."""
        before, now = self._texts()
        return now[len(before) :]

    def _texts(self) -> tuple[str, str]:
        """Decode the window without its news, and with them."""
        decode = self._tokenizer.decode
        return decode(self._tokens[: self._known]), decode(self._tokens)
