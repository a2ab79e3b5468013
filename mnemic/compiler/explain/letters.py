"""How names are shown: Greek letters for Greek names, numbers as indices; in text and in LaTeX."""

import re
import unicodedata
from typing import Final

NAMES: Final = (
    "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa",
    "lamda", "mu", "nu", "xi", "omicron", "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi",
    "psi", "omega",
)  # fmt: skip
LATIN: Final = frozenset(
    {"omicron", "Alpha", "Beta", "Epsilon", "Zeta", "Eta", "Iota", "Kappa", "Mu", "Nu", "Omicron",
     "Rho", "Tau", "Chi"}
)  # fmt: skip
"""Greek letters that look like Latin ones, for which LaTeX has no command."""
SPECIAL: Final = {
    "lam": "lamda", "lambda": "lamda", "phase": "omega", "radius": "rho", "l1": "lamda1",
    "l2": "lamda2", "levels": "lamda",
}  # fmt: skip
"""Names of coefficients that have a letter by convention."""
OTHERS: Final = {"bonus": "u", "scale": "c"}
NUMBERED: Final = re.compile(r"([^\W\d_]+)(\d+)")
BELOW: Final = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def _letters(case: str) -> dict[str, str]:
    names = {name: name if case == "SMALL" else name.capitalize() for name in NAMES}
    return {
        shown: unicodedata.lookup(f"GREEK {case} LETTER {name.upper()}")
        for name, shown in names.items()
    }


GREEK: Final = _letters("SMALL") | _letters("CAPITAL")
"""``alpha`` → ``α``, ``Delta`` → ``Δ``."""
LATEX: Final = {
    letter: letter[0] if name in LATIN and name != "omicron" else rf"\{name}"
    for name, letter in GREEK.items()
} | {"ο": "o", "λ": r"\lambda", "Λ": r"\Lambda"} | {
    GREEK[name]: rf"\mathrm{{{name[0]}}}" for name in LATIN - {"omicron"}
}  # fmt: skip
"""``α`` → ``\\alpha``; a letter as LaTeX has it."""


def letter(name: str) -> str:
    """Return a name as text.

    >>> letter("eta"), letter("mu2"), letter("l1"), letter("scale3"), letter("gain")
    ('η', 'μ₂', 'λ₁', 'c3', 'gain')
    """
    base, number = _split_number(name)
    if base in GREEK:
        return GREEK[base] + number.translate(BELOW)
    return OTHERS.get(base, base) + number


def tex(name: str) -> str:
    r"""Return a name as LaTeX.

    >>> letters = [tex(name) for name in ("eta", "mu2", "l1", "scale3", "gain_2", "z1")]
    >>> print(*letters)
    \eta \mu_{2} \lambda_{1} c_{3} \mathrm{gain\_2} z_{1}
    """
    base, number = _split_number(name)
    if GREEK.get(base, base) in LATEX:
        shown = LATEX[GREEK.get(base, base)]
    else:
        base = OTHERS.get(base, base)
        shown = base if len(base) == 1 else rf"\mathrm{{{base.replace('_', chr(92) + '_')}}}"
    return shown + (f"_{{{number}}}" if number else "")


def _split_number(name: str) -> tuple[str, str]:
    """Split a name into the Greek or Latin name and the number behind it."""
    name = SPECIAL.get(name, name)
    found = NUMBERED.fullmatch(name)
    base, number = found.groups() if found else (name, "")
    return SPECIAL.get(base, base), number
