"""Plain Unicode text as LaTeX that pdflatex takes: ASCII alone, with amsmath and amssymb."""

import re
import unicodedata
from collections.abc import Iterator
from itertools import groupby, pairwise
from typing import Final

from mnemic.compiler.explain.letters import LATEX
from mnemic.compiler.explain.printing import SUPERSCRIPT

SIGNS: Final = {
    "ℓ": r"\ell", "∇": r"\nabla", "Σ": r"\Sigma", "∂": r"\partial", "∞": r"\infty", "∘": r"\circ",
    "≤": r"\le", "≥": r"\ge", "→": r"\to", "←": r"\leftarrow", "↔": r"\leftrightarrow",
    "⇒": r"\Rightarrow", "·": r"\cdot", "×": r"\times", "‖": r"\|", "⟨": r"\langle",
    "⟩": r"\rangle", "−": "-", "∈": r"\in", "≠": r"\ne", "≈": r"\approx", "≡": r"\equiv",
    "√": r"\surd", "∏": r"\prod", "∑": r"\sum", "∫": r"\int", "⊗": r"\otimes", "⊕": r"\oplus",
    "±": r"\pm", "⌊": r"\lfloor", "⌋": r"\rfloor", "⌈": r"\lceil", "⌉": r"\rceil", "⊤": r"\top",
    "½": r"\tfrac12", "°": r"{}^{\circ}", "…": r"\dots", "∼": r"\sim", "∝": r"\propto",
    "≪": r"\ll", "≫": r"\gg", "⊂": r"\subset", "∪": r"\cup", "∩": r"\cap", "∅": r"\emptyset",
    "∀": r"\forall", "∃": r"\exists", "¬": r"\neg", "∧": r"\wedge", "∨": r"\vee", "⊙": r"\odot",
    "<": "<", ">": ">", "|": "|",
}  # fmt: skip
PRIMES: Final = {"′": 1, "″": 2, "‴": 3}
TEXT: Final = {
    "_": r"\_", "&": r"\&", "%": r"\%", "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}",
    "^": r"\^{}", "~": r"\~{}", "\\": r"$\backslash$", "–": "--", "—": "---", "“": "``",
    "”": "''", "‘": "`", "’": "'", "„": ",,", "\u00a0": "~", "ß": r"\ss{}", "ø": r"\o{}",
    "Ø": r"\O{}", "æ": r"\ae{}", "Æ": r"\AE{}", "ł": r"\l{}", "Ł": r"\L{}", "ı": r"\i{}",
    "«": "<<", "»": ">>", "§": r"\S{}", "\n": "\n",
}  # fmt: skip
HATS: Final = {"\u0302": r"\hat", "\u0303": r"\tilde", "\u0304": r"\bar", "\u0307": r"\dot"}
"""Combining marks of mathematics."""
ACCENTS: Final = {
    "\u0300": "`", "\u0301": "'", "\u0308": '"', "\u030c": "v", "\u0327": "c", "\u030b": "H",
    "\u0306": "u", "\u030a": "r", "\u0331": "b",
}  # fmt: skip
"""Combining marks of names."""


_POWER: Final = re.compile(r"\^([0-9]+)")
"""A power as the grammar of expressions writes it."""

_TOTAL: Final = re.compile(r"([ΣΠ])_\(([^()]*)\)")
"""A sum or a product with its limits, as the printed problems have it."""


def prose(text: str) -> str:
    r"""Write text in LaTeX, every character that is not ASCII as a formula or an accent.

    >>> print(prose("ŷ − v ≤ χ², k̃ᵢ ← φ(x)ᵀ, 10⁻⁶, Schölkopf's a_1"))
    $\hat{y}$ $-$ v $\le$ $\chi^{2}$, $\tilde{k}_{i}$ $\leftarrow$ $\phi$(x)${}^{\top}$, 10${}^{-6}$, Sch\"{o}lkopf's a\_1
    >>> print(prose("Σ_(i=t−3..t) γᵢ ℓ(W; kᵢ)"))
    $\sum_{i=t-3}^{t}$ $\gamma_{i}$ $\ell$(W; $k_{i}$)
    """  # noqa: E501
    found = []
    text = _POWER.sub(lambda power: power[1].translate(SUPERSCRIPT), text)
    for mathematics, group in groupby(_parts(text), key=lambda part: part[0]):
        pieces = [part for _, part in group]
        found.append(f"${_joined(pieces)}$" if mathematics else "".join(pieces))
    return "".join(found)


def _joined(pieces: list[str]) -> str:
    """Join formulas, with a space between a control word and a letter. A superscript or subscript
    attaches to the piece before it, unless that is one too."""
    shown, scripted = "", True
    for part in pieces:
        script = part.startswith("{}")
        apart = part[:1].isalpha() and shown.rpartition("\\")[2].isalpha() and "\\" in shown
        bare = part.removeprefix("{}") if script and not scripted else part
        shown, scripted = shown + (f" {bare}" if apart else bare), script
    return shown


def _parts(text: str) -> Iterator[tuple[bool, str]]:
    """Yield the pieces of a text, each with whether it is mathematics."""
    end = 0
    for total in _TOTAL.finditer(text):
        yield from _plain(text[end : total.start()])
        yield True, _total(*total.groups())
        end = total.end()
    yield from _plain(text[end:])


def _total(sign: str, over: str) -> str:
    """Write ``Σ_(i=t−3..t)`` as a sum with its limits; the limits may be a condition instead."""
    first, *last = (
        _joined([_one(cluster)[1] for cluster in _clusters(part)]) for part in over.split("..")
    )
    return rf"\{'sum' if sign == 'Σ' else 'prod'}_{{{first}}}" + "".join(f"^{{{x}}}" for x in last)


def _plain(text: str) -> Iterator[tuple[bool, str]]:
    """Yield the pieces of a text without sums; a letter alone with an index is mathematics."""
    before = ""
    runs = [(kind, list(run)) for kind, run in groupby(_clusters(text), key=_script)]
    for (kind, run), (after, _) in pairwise([*runs, ("", [])]):
        if kind:
            raised = "".join(_base(cluster) for cluster in run)
            yield True, f"{{}}{'^' if kind == '<super>' else '_'}{{{raised}}}"
            before = ""
            continue
        for i, cluster in enumerate(run):
            lone = after and i == len(run) - 1 and _is_letter(cluster) and not _is_letter(before)
            yield (True, cluster) if lone else _one(cluster)
            before = cluster


def _is_letter(cluster: str) -> bool:
    return cluster.isascii() and cluster.isalpha()


def _clusters(text: str) -> Iterator[str]:
    """Yield characters with the marks that combine with them."""
    cluster = ""
    for character in unicodedata.normalize("NFC", text):
        if cluster and not unicodedata.combining(character):
            yield cluster
            cluster = ""
        cluster += character
    if cluster:
        yield cluster


def _script(cluster: str) -> str:
    """Return ``<super>`` or ``<sub>`` for a raised or lowered sign, nothing for any other."""
    kind = unicodedata.decomposition(cluster[0]).partition(" ")[0]
    return kind if kind in ("<super>", "<sub>") and cluster.isprintable() else ""


def _base(cluster: str) -> str:
    """Return the character that a superscript or subscript raises or lowers, in LaTeX.

    ᵀ is the transpose.
    """
    if cluster == "ᵀ":
        return r"\top"
    base = unicodedata.normalize("NFKC", cluster)
    return _sign(base) or (base if base.isascii() else _unknown(base))


def _sign(character: str) -> str:
    return SIGNS.get(character) or LATEX.get(character, "")


def _one(cluster: str) -> tuple[bool, str]:
    first = cluster[0]
    if cluster in TEXT:
        return False, TEXT[cluster]
    if shown := _sign(cluster):
        return True, shown
    if first in PRIMES:
        return True, "{}^{" + r"\prime" * PRIMES[first] + "}"
    if cluster.isascii():
        return False, cluster
    base, *marks = tuple(unicodedata.normalize("NFD", cluster))
    inner = _sign(base) or base
    if marks and inner.isascii() and set(marks) <= HATS.keys():
        return True, _marked(inner, [f"{HATS[mark]}" for mark in marks])
    if marks and base.isascii() and set(marks) <= ACCENTS.keys():
        return False, _marked(base, [f"\\{ACCENTS[mark]}" for mark in marks])
    plain = unicodedata.normalize("NFKC", cluster)
    return (False, plain) if plain.isascii() else (False, _unknown(cluster))


def _marked(inner: str, commands: list[str]) -> str:
    for command in commands:
        inner = f"{command}{{{inner}}}"
    return inner


def _unknown(cluster: str) -> str:
    """Write a character that LaTeX lacks by its code point."""
    return "".join(f"(U+{ord(character):04X})" for character in cluster)
