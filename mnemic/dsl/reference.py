"""The page ``docs/language.md``: every axis, kind and option, read off the models.

The docstrings, options, types, defaults, ranges and descriptions are taken from the models;
``examples`` adds an example of each, ``PROSE`` the remaining text.
"""

from collections.abc import Iterator
from functools import cache
from itertools import groupby
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, cast, get_args, get_origin

from pydantic.fields import FieldInfo

from mnemic.dsl.axis import Entry, Family
from mnemic.dsl.block import Block
from mnemic.dsl.coefficients import WORDS, Coefficient
from mnemic.dsl.examples import EXAMPLES
from mnemic.dsl.features import ReadKernel
from mnemic.dsl.functions import CONSTANTS, FUNCTIONS, OPERATORS, Operator
from mnemic.dsl.keys import Key, Keys
from mnemic.dsl.optimizer import Anchor, Momentum, OptimizerEntry, Rate, Solver
from mnemic.dsl.prose import CLASSES, COEFFICIENTS, EXPRESSIONS, INTRODUCTION
from mnemic.dsl.ranges import RANGES
from mnemic.dsl.readout import Readout
from mnemic.dsl.retention import Constraint, ElasticTerms, Global, Local, RetentionEntry, StatedLink
from mnemic.dsl.spec import Published, Source, Spec
from mnemic.dsl.starts import DEFAULTS
from mnemic.dsl.writing import _short

Section = tuple[str, str, type[Entry]]

AXES: Final = ("features", "memory", "bias", "weights")
"""Fields of a spec that hold one of several kinds."""

ENTRIES: Final[tuple[Section, ...]] = (
    ("features.readout", "A kernel that reads", ReadKernel),
    ("retention", "Retention", RetentionEntry),
    ("retention.local", "The local term", Local),
    ("retention.global", "The global term", Global),
    ("retention.global.elastic", "Elastic weights", ElasticTerms),
    ("retention.constraint", "Constraints", Constraint),
    ("retention.link", "A link that is stated", StatedLink),
    ("optimizer", "Optimizer", OptimizerEntry),
    ("optimizer.rate", "The rate", Rate),
    ("optimizer.momentum", "Momentum", Momentum),
    ("optimizer.anchor", "The anchor", Anchor),
    ("optimizer.solver", "Solvers", Solver),
    ("keys", "Keys", Keys),
    ("keys.…", "A key", Key),
    ("readout", "Read-out", Readout),
    ("block", "Block", Block),
    ("source", "Source", Source),
    ("published[…]", "Published", Published),
)
"""Place, title and model of every other part of a spec."""


def page() -> str:
    """Return the whole page as Markdown."""
    parts = [INTRODUCTION, _entry("", "A spec", Spec)]
    for name in AXES:
        parts.append(_family(name, name.capitalize(), _model(name)))
    for place, title, entry in ENTRIES:
        kinds = issubclass(entry, Family) and entry.is_root()
        parts.append(_family(place, title, entry) if kinds else _entry(place, title, entry))
    parts += [_coefficients(), EXPRESSIONS, _functions(), CLASSES]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def sections() -> Iterator[tuple[str, type[Entry]]]:
    """Yield the key of the examples of each kind and entry, and its model."""
    axes = ((name, _model(name)) for name in AXES)
    others = ((place, entry) for place, _, entry in ENTRIES)
    every: list[tuple[str, type[Entry]]] = [("", Spec), *axes, *others]
    every.append(("coefficients", Coefficient))
    for place, entry in every:
        if issubclass(entry, Family) and entry.is_root():
            yield from ((f"{place}: {word}", kind) for word, kind in entry.registry.items())
        else:
            yield place, entry


def _model(axis: str) -> type[Entry]:
    found: Any = Spec.model_fields[axis].annotation
    return cast(type[Entry], found)


@cache
def _titles() -> dict[type[Entry], str]:
    """Return the title of each model's section on the page."""
    axes = {_model(name): name.capitalize() for name in AXES}
    return axes | {entry: title for _, title, entry in ENTRIES}


# -- sections --------------------------------------------------------------------------------


def _family(place: str, title: str, family: Any) -> str:
    told = [f"## {title}", _placed(place, _doc(family).partition(". ")[0].rstrip(".") + ".")]
    for word, kind in family.registry.items():
        told += [
            f"### `{place}: {word}`",
            _doc(kind),
            _options(place, kind),
            _example(f"{place}: {word}", kind),
        ]
    return "\n\n".join(part for part in told if part)


def _entry(place: str, title: str, entry: type[Entry]) -> str:
    parts = [f"## {title}", _placed(place, _doc(entry)), _options(place, entry)]
    parts.append(_example(place, entry))
    return "\n\n".join(part for part in parts if part)


def _placed(place: str, text: str) -> str:
    return f"Place: `{place}`. {text}" if place else text


def _coefficients() -> str:
    words = [f"| `{word}` | `{_text(meaning)}` |" for word, meaning in WORDS.items()]
    starts = [
        f"| `{name}` | `{activation}` | {_start(start)} |"
        for name, (activation, start) in DEFAULTS.items()
    ]
    told = _options("coefficients", Coefficient)
    return "\n\n".join([
        "## Coefficients", _doc(Coefficient), COEFFICIENTS, told,
        _example("coefficients", Coefficient),
        "\n".join(["| word | stands for |", "| --- | --- |", *words]),
        "Where a spec gives no activation and no initial value:",
        "\n".join(["| coefficient | activation | start |", "| --- | --- | --- |", *starts]),
    ])  # fmt: skip


def _functions() -> str:
    rows = [f"| `{f.name}` | {f.arity} | {f.meaning} |" for f in FUNCTIONS.values()]
    table = "\n".join(["| function | takes | meaning |", "| --- | --- | --- |", *rows])
    groups = groupby(reversed([*OPERATORS.values()]), lambda operator: operator.precedence)
    operators = "; ".join(", ".join(map(_operator, group)) for _, group in groups)
    constants = ", ".join(f"`{name}`" for name in CONSTANTS)
    return f"{table}\n\nOperators, tightest first: {operators}. Constants: {constants}."


def _operator(operator: Operator) -> str:
    sign = " (a sign)" if operator.name == "neg" else ""
    return f"`{operator.symbol.strip()}`{sign}"


def example_of(key: str, entry: type[Entry]) -> str:
    """Return the examples of a section: those of its kind's class, or those of the place."""
    return entry.example if issubclass(entry, Family) else EXAMPLES[key]


def _example(key: str, entry: type[Entry]) -> str:
    return f"```yaml\n{example_of(key, entry).strip()}\n```"


def _doc(model: Any) -> str:
    return (model.__doc__ or "").replace("\n    ", "\n").replace("``", "`").strip()


# -- options ---------------------------------------------------------------------------------


def _options(place: str, entry: type[Entry]) -> str:
    told = {n: f for n, f in entry.model_fields.items() if n != "kind" or _is_a_choice(f)}
    rows = [_row(place, name, field) for name, field in told.items()]
    if not rows:
        return ""
    return "\n".join(
        ["| option | takes | default | range | |", "| --- | --- | --- | --- | --- |", *rows]
    )


def _is_a_choice(kind: FieldInfo) -> bool:
    """Return whether the field ``kind`` takes several values, so that it is listed as an option."""
    return len(get_args(kind.annotation)) > 1


def _row(place: str, name: str, field: FieldInfo) -> str:
    option = field.alias or name
    default = "needed" if field.is_required() else _default(field)
    allowed = RANGES.get(f"{place}.{option}")
    told = _limits(field) if allowed is None else str(allowed)
    cells = (f"`{option}`", _type(field.annotation), default, told, field.description or "")
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    return "none" if value is None else f"`{_text(_short(value))}`"


def _text(value: Any) -> str:
    """Return a value as a spec writes it, in one line."""
    match value:
        case bool():
            return str(value).lower()
        case dict():
            return "{" + ", ".join(f"{k}: {_text(v)}" for k, v in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(_text, value)) + "]"
        case float():
            return f"{value:g}"
    return str(value)


def _type(annotation: Any) -> str:
    """Say in words what an option of this annotation takes."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(arguments[0])
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(_type(a) for a in arguments if a is not NoneType))
    if origin is Literal:
        return ", ".join(f"`{_text(a)}`" for a in arguments)
    if origin is tuple:
        several = arguments[-1] is Ellipsis
        return (
            f"a list of: {_type(arguments[0])}"
            if several
            else f"a list of {len(arguments)} numbers"
        )
    if origin is dict:
        return f"names, each with {_type(arguments[1])}"
    if issubclass(annotation, Coefficient):
        return "[a coefficient](#coefficients)"
    if issubclass(annotation, Entry):
        title = _titles()[annotation]
        return f"[{title.lower()}](#{title.lower().replace(' ', '-')})"
    return {bool: "`true`, `false`", int: "a whole number", float: "a number"}.get(
        annotation, "text"
    )


def _limits(field: FieldInfo) -> str:
    """Say in words the range that a model checks; empty where it checks none."""
    bounds = {
        n: getattr(m, n)
        for m in _metadata(field)
        for n in ("ge", "gt", "le", "lt")
        if getattr(m, n, None) is not None
    }
    low = (
        f"at least {bounds['ge']:g}"
        if "ge" in bounds
        else f"above {bounds['gt']:g}"
        if "gt" in bounds
        else ""
    )
    high = (
        f"at most {bounds['le']:g}"
        if "le" in bounds
        else f"below {bounds['lt']:g}"
        if "lt" in bounds
        else ""
    )
    return ", ".join(word for word in (low, high) if word)


def _metadata(field: FieldInfo) -> list[Any]:
    inner = [
        m for a in get_args(field.annotation) if get_origin(a) is Annotated for m in get_args(a)[1:]
    ]
    found = [*field.metadata]
    for m in inner:
        found += m.metadata if isinstance(m, FieldInfo) else [m]
    return found


def _start(start: Any) -> str:
    match start:
        case None:
            return ""
        case (low, high):
            return f"{low:g} to {high:g}, spread"
    return f"{start:g}"
