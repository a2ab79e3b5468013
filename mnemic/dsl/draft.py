"""A first spec with comments: one line for each axis, under a comment with the alternatives.

The questions, the allowed answers and their meanings are read off the models.
"""

import inspect
import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from mnemic.dsl.axis import Family
from mnemic.dsl.coefficients import WORDS, Coefficient
from mnemic.dsl.load import load
from mnemic.dsl.reading import read_yaml
from mnemic.dsl.rules.coefficients import PER
from mnemic.dsl.shape import Shape
from mnemic.dsl.spec import LANGUAGE, Spec
from mnemic.errors import InvalidSpec, UsageError

STARTS: Final[Mapping[str, str]] = {
    "features": "identity", "memory": "linear", "bias": "l2",
    "retention.local": "l2", "retention.decay": "token", "retention.order": "before",
    "optimizer.method": "gd", "optimizer.rate": "token", "optimizer.momentum": "none",
    "window": "1", "weights": "uniform",
}  # fmt: skip
"""The places that are asked for, and what is proposed: together gated DeltaNet, a good start.

What an answer allows or rules out comes after it: a memory before its method, a method before its
window.
"""

NONE: Final = "none"
"""The answer that leaves an optional line out."""

SCALARS: Final[Mapping[str, str]] = {
    "learned": "a number that training learns, one a head",
    "token": "computed from each token, one number a head",
    "channel": "computed from each token, one number for each channel of the keys",
    "outer": "as channel, but that a row_decay of the values' channels may stand beside it",
}
"""What the words of a coefficient stand for."""

_WORD: Final = re.compile(r"[\w-]+")
_WIDTH: Final = 96


@dataclass(frozen=True)
class Question:
    """A question about one place of a spec.

    Args:
        place: the path, such as ``retention.decay``.
        about: what the place means.
        answers: each word that is allowed, and its meaning.
        beside: a description of what else is allowed; empty if only the words are.
        expression: whether a text that is not one of the words is an expression of the user's own.
    """

    place: str
    about: str
    answers: Mapping[str, str]
    beside: str = ""
    expression: bool = False

    @property
    def proposed(self) -> str:
        """The default answer."""
        return STARTS[self.place]

    def written(self, answer: str) -> str:
        """Return an answer as YAML: a text that is not a word as an expression, the rest as it is.

        Raises UsageError for several lines, and InvalidSpec where it cannot be read.
        """
        answer = answer.strip()
        if "\n" in answer:
            raise UsageError(f"{self.place}: read {answer!r}, one line is needed")
        if self.expression and not (_WORD.fullmatch(answer) or answer.startswith("{")):
            answer = f"{{expr: {json.dumps(answer, ensure_ascii=False)}}}"
        read_yaml(f"answer: {answer}", self.place)
        return answer


def questions() -> tuple[Question, ...]:
    """Return all questions, in the order of a spec."""
    return tuple(map(_question, STARTS))


def draft(name: str, answers: Mapping[str, str]) -> str:
    """Return a spec with comments.

    Args:
        name: of the spec.
        answers: by place, as they would be written in YAML; the default for those left out.

    Raises:
        InvalidSpec: an answer is not allowed at its place, or two do not go together.
        UsageError: an answer of several lines.
    """
    text = "\n".join(_lines(name, answers)) + "\n"
    load(read_yaml(text, name).data)
    return text


def refused(question: Question, answer: str, before: Mapping[str, str]) -> str | None:
    """Say why an answer is not allowed at its place after the answers ``before``; else None."""
    try:
        draft("mine", {**before, question.place: answer})
    except InvalidSpec as error:
        own = [issue for issue in error.issues if f"{issue.where}.".startswith(question.place)]
        return str(InvalidSpec(own)) if own else None
    return None


def _question(place: str) -> Question:
    info, shape = _field(place)
    about, family, entry = str(info.description), shape.family, shape.entry
    if family is not None:
        words = {word: _meaning(family.registry[word]) for word in family.bare()}
        others = [word for word in family.words() if word not in words]
        own = any(family.registry[word].shorthand == "expr" for word in others)
        return Question(place, about, words, _beside(others, own), own)
    if entry is not None and issubclass(entry, Coefficient):
        return Question(place, about, _scalars(place), "a number, or an expression")
    numbers = "a whole number" if _holds(info.annotation, int) else ""
    return Question(place, about, dict.fromkeys(_literals(info.annotation), ""), numbers)


def _field(place: str) -> tuple[FieldInfo, Shape]:
    """Follow a path through the models; return the last field and the shape of what it holds."""
    shape = Shape(Spec)
    *outer, last = place.split(".")
    for step in outer:
        shape = shape.at(step)
    return shape.fields()[last], shape.at(last)


def _literals(annotation: Any) -> Iterator[str]:
    """Yield the words of a Literal, also inside unions and ``Annotated``, as text."""
    if get_origin(annotation) is Literal:
        yield from map(str, get_args(annotation))
        return
    for inner in get_args(annotation):
        yield from _literals(inner)


def _scalars(place: str) -> dict[str, str]:
    """Return the words for a coefficient that may stand at a place, each with its meaning."""
    ways = ("head", *PER.get(place, ()))
    words = {word: told for word, told in SCALARS.items() if WORDS[word].get("per", "head") in ways}
    return {NONE: "left out", **words} if STARTS[place] == NONE else words


def _holds(annotation: Any, kind: type) -> bool:
    """Return whether an annotation is this type, or a union or ``Annotated`` with it inside."""
    return annotation is kind or any(_holds(inner, kind) for inner in get_args(annotation))


def _meaning(kind: type[Family]) -> str:
    """Return the first sentence of a kind's docstring, without its full stop."""
    text = " ".join((inspect.getdoc(kind) or "").replace("``", "").split())
    return text.partition(". ")[0].removesuffix(".")


def _beside(others: list[str], own: bool) -> str:
    kinds = [word for word in others if word != "expr"]
    told = ["an expression of your own"] if own else []
    told += [f"{{kind: {' | '.join(kinds)}, ...}}"] if kinds else []
    return ", or ".join(told)


def _lines(name: str, answers: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of a draft spec of this name; each answer under a comment on its question."""
    yield "# A memory: what it optimises, and how it forgets and learns. `mnemic check` tells what"
    yield "# is wrong with a spec, `mnemic derive --words` what it does."
    yield f"mnemic: {LANGUAGE}"
    yield f"name: {name}"
    section = ""
    for question in questions():
        answer = question.written(answers.get(question.place, question.proposed))
        first, _, key = question.place.rpartition(".")
        if first != section or not first:
            yield ""
        if first and first != section:
            yield f"{first}:"
        section, indent = first, "  " if first else ""
        yield from textwrap.indent("\n".join(_comment(question)), indent).splitlines()
        left_out = answer == NONE and question.proposed == NONE
        yield f"{indent}# {key}: token" if left_out else f"{indent}{key}: {answer}"


def _comment(question: Question) -> Iterator[str]:
    """Yield the comment on a question: what it asks, and each answer that is allowed."""
    yield from _wrapped(question.about)
    for word, meaning in question.answers.items():
        if meaning:
            yield from _wrapped(f"  {word}: {meaning}")
    if not any(question.answers.values()) and question.answers:
        yield from _wrapped(f"  {' | '.join(question.answers)}")
    if question.beside:
        yield from _wrapped(f"  or {question.beside}")


def _wrapped(text: str) -> list[str]:
    indent = " " * (len(text) - len(text.lstrip()))
    return textwrap.wrap(
        text, _WIDTH, initial_indent="# ", subsequent_indent=f"# {indent}{indent}",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
