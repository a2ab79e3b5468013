"""Patterns of memories over a model's blocks: ``gated-deltanet*3, softmax-attention``."""

import re
from itertools import cycle, islice

from mnemic.errors import Issue, UsageError, format_issue

_ENTRY = re.compile(r"\s*(?P<spec>[^*\s](?:[^*]*[^*\s])?)\s*(?:\*\s*(?P<times>0*[1-9][0-9]*)\s*)?")


def sources(pattern: str) -> list[str]:
    """Return the specs of a pattern in order, each as often as it says.

    >>> sources("gated-deltanet*3, softmax-attention")
    ['gated-deltanet', 'gated-deltanet', 'gated-deltanet', 'softmax-attention']

    Raises:
        UsageError: an entry that is neither SPEC nor SPEC*TIMES.
    """
    found: list[str] = []
    for entry in pattern.split(","):
        match = _ENTRY.fullmatch(entry)
        if match is None:
            issue = Issue("needs SPEC or SPEC*TIMES, TIMES at least 1", "--layers", entry.strip())
            raise UsageError(format_issue(issue))
        found += [match["spec"]] * int(match["times"] or 1)
    return found


def over(entries: list[str], blocks: int) -> list[str]:
    """Return the pattern repeated over so many blocks; the last time it may be cut."""
    return list(islice(cycle(entries), blocks))
