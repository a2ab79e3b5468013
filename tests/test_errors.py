"""The family of errors: full texts, exit codes, pickling, JSON."""

import json
import pickle

import pytest

from mnemic.errors import (
    CheckFailed,
    EnvironmentFailed,
    InvalidSpec,
    Issue,
    MnemicError,
    UsageError,
    format_issue,
    nearest,
)

HUBBER = Issue(
    "", "specs/x.yaml:3:10 bias.kind", "hubber", ("dot", "l2", "huber"), "huber", "see the docs"
)
ERRORS = [
    (UsageError("no such command"), 2),
    (InvalidSpec([HUBBER, Issue("unknown key", "x.yaml:1:1", "bais")]), 3),
    (CheckFailed("recurrent and chunk differ"), 4),
    (EnvironmentFailed("no GPU"), 5),
]


@pytest.mark.parametrize(
    ("issue", "text"),
    [
        (
            HUBBER,
            "specs/x.yaml:3:10: bias.kind: read 'hubber', allowed: dot, l2, huber; "
            "did you mean 'huber'? (see the docs)",
        ),
        (Issue("is empty"), "is empty"),
        (Issue("unknown key", "my x.yaml:3:1", "a"), "my x.yaml:3:1: unknown key: read 'a'"),
        (Issue("", "window", allowed=("all",)), "window: allowed: all"),
        (Issue("too long", read="x" * 100), f"too long: read '{'x' * 57}...'"),
        (Issue("a control character", read="\n"), "a control character: read '\\n'"),
    ],
)
def test_an_issue_is_one_clear_line(issue: Issue, text: str) -> None:
    assert format_issue(issue) == text


@pytest.mark.parametrize(
    ("word", "found"),
    [("hubber", "huber"), ("Huber", "huber"), ("l3", None), ("", None), ("x" * 100_000, None)],
)
def test_nearest(word: str, found: str | None) -> None:
    assert nearest(word, ["dot", "l2", "huber"]) == found


def test_nearest_of_nothing() -> None:
    assert nearest("huber", []) is None


@pytest.mark.parametrize(("error", "code"), ERRORS)
def test_every_error_pickles_and_becomes_json(error: MnemicError, code: int) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert again.to_json() == error.to_json()
    read = json.loads(json.dumps(error.to_json()))
    assert read == error.to_json()
    assert (read["error"], read["exit_code"]) == (type(error).__name__, code)
    assert read["message"] == str(error)


def test_an_invalid_spec_tells_everything_at_once() -> None:
    error = InvalidSpec([HUBBER, Issue("unknown key", "x.yaml:1:1", "bais")])
    assert str(error).splitlines() == [format_issue(issue) for issue in error.issues]
    assert error.to_json()["issues"][1] == {
        "message": "unknown key",
        "where": "x.yaml:1:1",
        "read": "bais",
        "allowed": [],
        "nearest": None,
        "hint": None,
    }
