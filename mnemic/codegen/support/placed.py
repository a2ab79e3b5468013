"""Checks of positional arguments, with a message in place of Python's TypeError."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, TypeVar, cast

from .arguments import fail
from .signature import Signature

Method = TypeVar("Method", bound=Callable[..., Any])


def check_placed(
    signature: Signature, what: str, function: Callable[..., Any], given: Sequence[Any],
    taken: Sequence[str] = (),
) -> None:  # fmt: skip
    """Refuse surplus positional arguments; the message lists the keyword arguments, ``taken`` among
    them, and says of a mapping that it must be passed as the state."""
    placed, named = _parameters(function)
    extra = given[len(placed) :]
    if not extra or not named:
        return
    told = f"read {len(given)} positional arguments, allowed: {', '.join(placed)}"
    states = [name for name in named if name in ("state", "initial_state")]
    meant = isinstance(extra[0], Mapping) and states
    hint = f"; did you mean {states[0]}=?" if meant else ""
    raise fail(signature, f"{what}: {told}; {_by_name((*taken, *named))}{hint}")


def refusing_places(what: str, taken: Callable[[Any], Sequence[str]]) -> Callable[[Method], Method]:
    """Make a rule's method refuse surplus positional arguments, and calls that lack required ones.

    ``taken`` names the coefficients that the method of a rule takes. The method raises
    ``ArgumentError``.
    """

    def told(method: Method) -> Method:
        placed = _parameters(method)[0]

        @wraps(method)
        def call(self: Any, *given: Any, **named: Any) -> Any:
            if len(given) > len(placed):
                check_placed(self.signature, what, method, given, taken(self))
            missing = [name for name in placed[len(given) :] if name not in named]
            if missing:
                allowed = f"allowed: {', '.join((*placed, *taken(self)))}"
                raise fail(self.signature, f"{what}: missing: {', '.join(missing)}; {allowed}")
            for name in placed[: len(given)]:
                if name in named:
                    raise fail(self.signature, f"{what}: {name}: given by position and by name")
            return method(self, *given, **named)

        return cast(Method, call)

    return told


def _parameters(function: Callable[..., Any]) -> tuple[list[str], list[str]]:
    """Return the arguments that go by their places, and those that go by name alone."""
    known = [p for name, p in inspect.signature(function).parameters.items() if name != "self"]
    placed = [p.name for p in known if p.kind is p.POSITIONAL_OR_KEYWORD]
    return placed, [p.name for p in known if p.kind is p.KEYWORD_ONLY]


def _by_name(names: Sequence[str]) -> str:
    return "by name: " + ", ".join(f"{name}=" for name in names)
