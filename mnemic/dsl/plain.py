"""A spec as plain data that JSON holds, and back."""

import math
from collections.abc import Mapping
from typing import Any

from mnemic.dsl.load import load
from mnemic.dsl.spec import Spec
from mnemic.dsl.writing import short


def plain_spec(spec: Spec) -> Any:
    """Return a spec as plain data that JSON holds: infinities stand as YAML spells them."""
    return _spelled(short(spec), {math.inf: ".inf", -math.inf: "-.inf"})


def read_spec(data: Any) -> Spec:
    """Load the spec that `plain_spec` wrote, or that of a name.

    Raises:
        InvalidSpec, UsageError: there is none.
    """
    return load(_spelled(data, {".inf": math.inf, "-.inf": -math.inf}))


def _spelled(value: Any, spelling: Mapping[Any, Any]) -> Any:
    match value:
        case Mapping():
            return {key: _spelled(item, spelling) for key, item in value.items()}
        case list() | tuple():
            return [_spelled(item, spelling) for item in value]
        case str() | float():
            return spelling.get(value, value)
    return value
