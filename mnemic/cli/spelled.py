"""Equations on a terminal that lacks their signs: ``yhat_t = alpha_t W_(t-1) k_t``.

Nothing heavy is imported here, since every command begins with it.
"""

import codecs
import unicodedata
from itertools import groupby
from typing import Final

HANDLER: Final = "mnemic.spelled"
"""The name under which streams know `_handle`."""

SIGNS: Final = {
    "−": "-", "–": "-", "—": "-", "·": "*", "⋅": "*", "×": "x", "÷": "/", "∘": "o", "→": "->",
    "←": "<-", "↔": "<->", "⇒": "=>", "∂": "d", "∇": "grad ", "√": "sqrt", "‖": "||", "∞": "inf",
    "≤": "<=", "≥": ">=", "≠": "!=", "≈": "~", "∈": " in ", "Σ": "sum", "∑": "sum", "Π": "prod",
    "∏": "prod", "±": "+-", "′": "'", "⟨": "<", "⟩": ">", "⊗": "(x)", "⊕": "(+)", "⊤": "T",
    "“": '"', "”": '"', "‘": "'", "’": "'", "─": "-", "━": "-", "│": "|", "½": "1/2", "λ": "lambda",
    "Λ": "Lambda",
}  # fmt: skip
SCRIPTS: Final = {"<sub>": "_", "<super>": "^"}
HATS: Final = {"\u0302": "hat", "\u0303": "tilde", "\u0304": "bar"}


def spelled(text: str) -> str:
    """Write a text in ASCII: signs by others, Greek letters by their names, scripts by _ and ^.

    >>> print(spelled("ŷₜ = αₜ Wₜ₋₁ kₜᵀ − 10⁻⁶ ∂ℓ/∂ŷ"))
    yhat_t = alpha_t W_(t-1) k_t^T - 10^(-6) dl/dyhat
    """
    found = ""
    for script, run in groupby(unicodedata.normalize("NFC", text), key=_script):
        signs = [*run]
        if script:
            inner = "".join(map(_one, signs))
            found += SCRIPTS[script] + (inner if len(signs) == 1 else f"({inner})")
            continue
        for before, sign in zip(["", *signs], signs, strict=False):
            word = _one(sign)
            apart = sign in SIGNS or unicodedata.name(sign, "").startswith("GREEK")
            close = before == "∂" or not (word.isalpha() and found[-1:].isalpha())
            found += f" {word}" if apart and not close else word
    return found


def register() -> None:
    """Let streams take `HANDLER` for what to do with a sign that their encoding lacks."""
    codecs.register_error(HANDLER, _handle)


def _handle(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return spelled(error.object[error.start : error.end]), error.end


def _script(character: str) -> str:
    kind = unicodedata.decomposition(character).partition(" ")[0]
    return kind if kind in SCRIPTS else ""


def _one(character: str) -> str:
    if character.isascii():
        return character
    if character in SIGNS:
        return SIGNS[character]
    if unicodedata.combining(character):
        return HATS.get(character, "")
    if character == "ß":
        return "ss"
    name = unicodedata.name(character, "").split()
    if name[:1] == ["GREEK"] and len(name) == 4:
        return name[3].lower() if name[1] == "SMALL" else name[3].capitalize()
    parts = unicodedata.normalize("NFKD", character)
    if parts == character:
        return "?"
    return "".join(map(_one, parts))
