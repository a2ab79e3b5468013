"""Read the options of a completion in OpenAI's interface, and refuse unsupported ones."""

import json
from typing import Any

from mnemic.errors import Issue, UsageError, format_issue, nearest

TAKEN = {
    "prompt": "", "max_tokens": 16, "temperature": 1.0, "top_p": 1.0, "seed": None, "stop": None,
    "stream": False, "model": None,
}  # fmt: skip
"""What a completion takes, and what stands for it where it is left out."""

NEUTRAL: dict[str, Any] = {
    "n": 1, "best_of": 1, "echo": False, "logprobs": None, "stream_options": {}, "suffix": "",
    "frequency_penalty": 0, "presence_penalty": 0, "logit_bias": {},
}  # fmt: skip
"""Of OpenAI's options those that may be told at the value that changes nothing. Beside them may
stand null, and ``user`` with any value."""


class UnknownModel(UsageError):
    """A completion asks for a model that is not here."""


def read_completion(body: bytes) -> dict[str, Any]:
    """Return the options of a completion.

    Raises:
        UsageError: no JSON object, or an option that is not served.
    """
    try:
        told = json.loads(body)
    except ValueError as error:
        raise UsageError(f"the body is no JSON: {error}") from None
    except RecursionError:
        raise UsageError("the body: nested too deeply to be read") from None
    if not isinstance(told, dict):
        raise UsageError("the body: a JSON object is needed")
    for name in sorted(set(told) - {*TAKEN, "user"}):
        if name not in NEUTRAL:
            issue = Issue("the body", name, name, tuple(TAKEN), nearest(name, TAKEN))
            raise UsageError(format_issue(issue))
        if told[name] is not None and told[name] != NEUTRAL[name]:
            raise UsageError(f"{name}: read {told[name]!r}: this value is not supported")
    if not isinstance(told.get("stream"), bool | None):
        raise UsageError(f"stream: read {told['stream']!r}, true or false is needed")
    stop = told.get("stop")
    stops = [stop] if isinstance(stop, str) else stop or []
    if not isinstance(stops, list) or not all(isinstance(x, str) and x for x in stops):
        raise UsageError(f"stop: read {stop!r}, a text or a list of texts is needed")
    given = {name: x for name, x in told.items() if name in TAKEN and x is not None}
    return {**TAKEN, **given, "stop": stops}


def get_number(
    told: dict[str, Any], name: str, low: float, high: float, *, whole: bool = False
) -> Any:
    """Return an option that is a number within bounds; else raise UsageError."""
    read = told[name]
    kinds = (int,) if whole else (int, float)
    if type(read) not in kinds or not low <= read <= high:
        kind, digits = ("whole number", "d") if whole else ("number", "g")
        needed = f"a {kind} from {low:{digits}} to {high:{digits}} is needed"
        raise UsageError(f"{name}: read {read!r}, {needed}")
    return read
