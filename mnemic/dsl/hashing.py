"""The identity of a spec."""

import hashlib
import math
from typing import Any, Final

import rfc8785

from mnemic.dsl.spec import Spec

LABELS: Final = frozenset({"name", "title", "source", "notes", "published"})
"""What a spec is called and where it comes from, which its meaning does not depend on."""

_LARGEST_EXACT: Final = 2**53 - 1


def spec_hash(spec: Spec, *, labels: bool = False) -> str:
    """Return the SHA-256 of the whole model as canonical JSON (RFC 8785), in hexadecimal.

    Short forms, defaults and what came from a base are written out before, labels are left out
    unless asked for; the version of the language is part of it. Two specs of one hash mean the
    same; the same rule may be spelled in several ways that differ here.
    """
    data = spec.model_dump(by_alias=True, exclude=None if labels else set(LABELS))
    return hashlib.sha256(rfc8785.dumps(canonical(data))).hexdigest()


def canonical(value: Any) -> Any:
    """Turn infinities and large integers into text, tuples into lists: RFC 8785 has none."""
    match value:
        case dict():
            return {key: canonical(item) for key, item in value.items()}
        case list() | tuple():
            return [canonical(item) for item in value]
        case bool():
            return value
        case int() | float() if not math.isfinite(value) or abs(value) > _LARGEST_EXACT:
            return str(value)
    return value
