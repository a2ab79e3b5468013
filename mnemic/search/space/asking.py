"""Ways to make the choices of a space: at random, from given answers, or all combinations."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping

from mnemic.search.space.choices import Answer, Ask, Choice, Choose, Node, resolve


def by_chance(source: random.Random) -> Ask:
    """Return a function that chooses at random: options equally likely, numbers uniform or, for a
    logarithmic range, log-uniform."""

    def ask(_: str, choice: Choice) -> Answer:
        if isinstance(choice, Choose):
            return source.choice(choice.labels)
        if choice.values is not None:
            return source.choice(choice.values) if not choice.log else _rounded(choice, source)
        if choice.log:
            return math.exp(source.uniform(math.log(choice.low), math.log(choice.high)))
        return source.uniform(choice.low, choice.high)

    return ask


def by_answers(answers: Mapping[str, Answer]) -> Ask:
    """Return a function that looks up the answer to each choice.

    Raises:
        Unanswered: (when called) there is no answer to the choice.
    """

    def ask(name: str, choice: Choice) -> Answer:
        if name not in answers:
            raise Unanswered(name, choice)
        return answers[name]

    return ask


class Unanswered(Exception):
    """Raised at a choice to which there is no answer."""

    def __init__(self, name: str, choice: Choice) -> None:
        super().__init__(name)
        self.name, self.choice = name, choice


def every(root: Node) -> Iterator[dict[str, Answer]]:
    """Yield all ways to choose, the last choice varying fastest.

    Raises:
        ValueError: a range without a step, with its name.
    """
    waiting: list[dict[str, Answer]] = [{}]
    while waiting:
        given = waiting.pop()
        try:
            resolve(root, by_answers(given))
        except Unanswered as missing:
            answers = _answers(missing.name, missing.choice)
            waiting += [{**given, missing.name: answer} for answer in reversed(answers)]
        else:
            yield given


def _answers(name: str, choice: Choice) -> tuple[Answer, ...]:
    if isinstance(choice, Choose):
        return choice.labels
    if choice.values is None:
        raise ValueError(name)
    return choice.values


def _rounded(choice: Choice, source: random.Random) -> Answer:
    """Draw an integer, log-uniform."""
    assert not isinstance(choice, Choose)
    low, high = math.log(choice.low - 0.5), math.log(choice.high + 0.5)
    return round(math.exp(source.uniform(low, high)))
