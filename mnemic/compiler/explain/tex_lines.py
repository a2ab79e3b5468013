"""Long formulas of LaTeX on several lines: broken where their parts meet, never inside one."""

import re
from collections.abc import Iterator
from typing import Final

WIDTH: Final = 62
"""What fits between the margins of an article's page, in letters as `length` counts them."""

SHORT: Final = 10
"""Letters that are not worth a line of their own."""

BREAKS: Final = (r",\quad", r";\quad", r",\ ", r":\ ")
"""What parts of a formula stand apart by; a line may end after any of them."""

_SILENT: Final = frozenset(["left", "right", "operatorname", "mathrm"])
"""Control words that take no room of their own."""

_WITHIN: Final = r"\{((?:[^{}]|\{[^{}]*\})*)\}"
_WORDS: Final = re.compile(r"\s*\\text\{ ([^{}]*) \}\s*")
_TEXT: Final = re.compile(r"\\text\{([^{}]*)\}")
_FRACTION: Final = re.compile(r"\\[dt]?frac" + 2 * _WITHIN)
_SCRIPT: Final = re.compile(rf"[_^](?:{_WITHIN}|(\\[A-Za-z]+|.))")
_SIGN: Final = re.compile(r"\\(?P<word>[A-Za-z]+)|(?P<relation>[=<>+-])|\\?[^\s{}&\\]")


def aligned(formula: str, width: int = WIDTH) -> str:
    """Return a formula for one cell of ``align``, on as many lines as it takes.

    >>> print(aligned(r"a = 1,\\quad b = 2,\\quad c = 3", 12))
    \\begin{aligned}[t] & a = 1, \\\\ & \\quad b = 2,\\quad c = 3 \\end{aligned}
    """
    found = lines(formula, width)
    if len(found) == 1:
        return formula
    first, *others = found
    rest = "".join(rf" \\ & \quad {line}" for line in others)
    return rf"\begin{{aligned}}[t] & {first}{rest} \end{{aligned}}"


def lines(formula: str, width: int = WIDTH) -> list[str]:
    """Break a formula into lines of at most so many letters, where its parts allow it."""
    found: list[str] = []
    for part in _parts(formula):
        if found and _belongs(part, found[-1], width):
            found[-1] += part
        else:
            found.append(part)
    return [_without_space(line) for line in found]


def inline(formula: str) -> str:
    """Return a formula between dollars, its words outside of them, where a line may end.

    >>> print(inline(r"a = b \\text{ with } b = 1"))
    $a = b$ with $b = 1$
    """
    parts = _WORDS.split(formula)
    whole = all(part.count("{") == part.count("}") and part.count(r"\left") == part.count(r"\right")
                for part in parts[::2])  # fmt: skip
    if not whole:
        return f"${formula}$"
    return " ".join(part if i % 2 else f"${part}$" for i, part in enumerate(parts))


def length(formula: str) -> float:
    """Estimate how many letters wide a formula is on a page."""
    words = sum(len(text[1]) for text in _TEXT.finditer(formula))
    flat = _TEXT.sub("", formula)
    while fraction := _FRACTION.search(flat):
        wider = max(fraction.groups(), key=length)
        flat = f"{flat[: fraction.start()]} {wider} {flat[fraction.end() :]}"
    raised = " ".join(script[1] or script[2] for script in _SCRIPT.finditer(flat))
    return words + _letters(_SCRIPT.sub(" ", flat)) + 0.7 * _letters(raised)


def _letters(text: str) -> float:
    return sum(
        0.0
        if sign["word"] in _SILENT
        else 2.0
        if sign["relation"] or sign["word"] == "quad"
        else 1.0
        for sign in _SIGN.finditer(text)
    )


def _parts(formula: str) -> Iterator[str]:
    """Yield the parts of a formula, each with the mark that ends it, outside braces alone."""
    depth, start = 0, 0
    at = 0
    while at < len(formula):
        mark = next((one for one in BREAKS if formula.startswith(one, at)), "") if not depth else ""
        if mark:
            at += len(mark)
            yield formula[start:at]
            start = at
            continue
        depth += {"{": 1, "}": -1}.get(formula[at], 0) if formula[at - 1 : at] != "\\" else 0
        at += 1
    if start < len(formula):
        yield formula[start:]


def _belongs(part: str, line: str, width: int) -> bool:
    """Return whether a part goes on a line: it fits, or is short where the line is too long."""
    return length(line + part) <= width or (length(line) > width and length(part) < SHORT)


def _without_space(line: str) -> str:
    """Drop the space that a line would end or begin with."""
    return re.sub(r"(\\quad|\\ )$", "", line.strip()).strip()
