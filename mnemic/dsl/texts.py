"""Every expression of a spec: where it stands, its text, the symbols that it may use."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from mnemic.dsl.axis import Entry
from mnemic.dsl.coefficients import WORDS, Coefficient
from mnemic.dsl.expressions import Expression, ExpressionError, parse
from mnemic.dsl.features import Kernel
from mnemic.dsl.functions import FUNCTIONS
from mnemic.dsl.memory import Chain, Glu, Interpolation, Memory, Mlp, Nonparametric
from mnemic.dsl.retention import DIVERGENCES
from mnemic.dsl.spec import Spec
from mnemic.errors import Issue, nearest

LOSS_SYMBOLS: Final = frozenset("eyvn")
LOSS_MEANING: Final = (
    "in a loss y is the prediction ŷ, not the read-out; e = ŷ − v of a coordinate, n = ‖ŷ − v‖"
)
PAIR_SYMBOLS: Final = frozenset({"s", "d2"})
TIME_SYMBOLS: Final = frozenset({"h", "H", "t"})
UNARY: Final = tuple(name for name, f in FUNCTIONS.items() if f.least == 1)
NO_ACTIVATION: Final = ("none", "identity")


@dataclass(frozen=True)
class Text:
    """An expression as written; ``words`` are what may stand there instead of one.

    ``needs``: symbols of which at least one must occur, where the expression would say
    nothing without.
    """

    where: str
    text: str
    symbols: frozenset[str]
    needs: frozenset[str] = frozenset()
    words: tuple[str, ...] = ()
    meaning: str | None = None
    """What the symbols stand for, where one may be taken for another."""
    coefficients: bool = False
    """Whether coefficients may stand there, the user's own too."""

    @cached_property
    def read(self) -> Expression | Issue:
        """The parsed expression, or why it is none."""
        try:
            return parse(self.text, self.symbols)
        except ExpressionError as error:
            return self._issue(error)

    @property
    def names(self) -> frozenset[str]:
        """The symbols that it uses; none where it cannot be read."""
        return frozenset() if isinstance(self.read, Issue) else self.read.names

    def _issue(self, error: ExpressionError) -> Issue:
        issue = replace(error.issue, where=self.where)
        if unknown_symbol(issue):
            issue = replace(issue, hint=self.meaning)
        if issue.read == self.text and issue.allowed and self.words:
            allowed = (*self.words, *issue.allowed)
            return replace(issue, allowed=allowed, nearest=nearest(self.text, allowed))
        return replace(issue, message=f"{issue.message} (column {error.column})")


def unknown_symbol(issue: Issue) -> bool:
    """Return whether an expression names a symbol that is not there."""
    return issue.message.startswith("unknown symbol")


def activation(text: str) -> str:
    """Return an activation as an expression in ``x``: a function's name, or the expression itself.

    >>> activation("gelu"), activation("none"), activation("x*sigmoid(2*x)")
    ('gelu(x)', 'x', 'x*sigmoid(2*x)')
    """
    return "x" if text in NO_ACTIVATION else f"{text}(x)" if text in UNARY else text


def texts(spec: Spec) -> Iterator[Text]:
    """Yield every expression of the spec."""
    coefficients = frozenset(spec.named_coefficients())
    yield _loss(spec, coefficients)
    yield from _features(spec)
    for where, memory in memories(spec.memory):
        yield from _memory(where, memory, coefficients)
    yield from _retention(spec, coefficients)
    yield from _keys(spec, coefficients)
    yield from _coefficients(spec, coefficients)
    yield from _block(spec)


def memories(memory: Memory, where: str = "memory") -> Iterator[tuple[str, Memory]]:
    """Yield a memory and those that it is a chain of, each with its place."""
    yield where, memory
    if isinstance(memory, Chain):
        for i, link in enumerate(memory.chain):
            yield from memories(link, f"{where}.chain[{i}]")


def walk(value: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """Yield everything that is known of a model, with its place, from the outside in."""
    yield where, value
    inner: Mapping[str, Any] = {}
    if isinstance(value, Entry):
        known = {name: f for name, f in type(value).model_fields.items() if value.knows(name)}
        inner = {f".{f.alias or name}": getattr(value, name) for name, f in known.items()}
    elif isinstance(value, dict):
        inner = {f".{name}": item for name, item in value.items()}
    elif isinstance(value, tuple):
        inner = {f"[{i}]": item for i, item in enumerate(value)}
    for step, item in inner.items():
        yield from walk(item, (where + step).lstrip("."))


def _loss(spec: Spec, coefficients: frozenset[str]) -> Text:
    where = "bias.expr" if hasattr(spec.bias, "expr") else "bias"
    symbols, needs = LOSS_SYMBOLS | coefficients, frozenset("eyn")
    return Text(where, spec.bias.text, symbols, needs, (), LOSS_MEANING, coefficients=True)


def _features(spec: Spec) -> Iterator[Text]:
    if hasattr(spec.features, "expr"):
        yield _of("x", "features.expr", spec.features.expr)
    if isinstance(spec.features, Kernel):
        yield _of("s", "features.kernel", spec.features.kernel)
        if spec.features.readout is not None:
            yield _of("s", "features.readout.kernel", spec.features.readout.kernel)


def _memory(where: str, memory: Memory, coefficients: frozenset[str]) -> Iterator[Text]:
    match memory:
        case Mlp() | Glu():
            yield _activation(f"{where}.activation", memory.activation)
        case Nonparametric():
            symbols = PAIR_SYMBOLS | coefficients
            place = f"{where}.similarity"
            yield Text(place, memory.similarity, symbols, PAIR_SYMBOLS, coefficients=True)
        case Interpolation():
            yield Text(f"{where}.kernel", memory.kernel, PAIR_SYMBOLS, PAIR_SYMBOLS)


def _retention(spec: Spec, coefficients: frozenset[str]) -> Iterator[Text]:
    local, link = spec.retention.local, spec.retention.link
    if link is not None:
        yield _with("a", "retention.link", link.expr, coefficients | {"nu"})
    if local.generator is not None:
        yield _with("w", "retention.local.bregman", local.generator, coefficients)
    if local.divergence is not None:
        words = tuple(DIVERGENCES)
        yield _with("x", "retention.local.f-divergence", local.divergence, coefficients, words)


def _keys(spec: Spec, coefficients: frozenset[str]) -> Iterator[Text]:
    """Yield the expressions of keys, in k, earlier roles and coefficients; of the value, in v."""
    known: Collection[str] = ("k",)
    for role in ("predict", "erase", "write", "carry", "value"):
        key = getattr(spec.keys, role)
        if key is not None and key.expr is not None:
            symbols = coefficients | ({"v"} if role == "value" else {*known})
            yield Text(f"keys.{role}", key.expr, symbols, words=("own",), coefficients=True)
        known = (*known, role)


def _coefficients(spec: Spec, names: frozenset[str]) -> Iterator[Text]:
    for where, value in walk(spec):
        if not isinstance(value, Coefficient):
            continue
        if value.expr is not None:
            symbols, words = names | TIME_SYMBOLS, tuple(WORDS)
            yield Text(where, value.expr, symbols, words=words, coefficients=True)
        if value.activation is not None:
            yield _activation(f"{where}.activation", value.activation)


def _block(spec: Spec) -> Iterator[Text]:
    for field in ("activation", "query", "key", "value", "gate"):
        text = getattr(spec.block, field)
        if text is not None:
            words = (*NO_ACTIVATION, *UNARY)
            yield Text(f"block.{field}", activation(text), frozenset("x"), words=words)


def _of(symbol: str, where: str, text: str, words: tuple[str, ...] = ()) -> Text:
    return Text(where, text, frozenset(symbol), frozenset(symbol), words)


def _with(
    symbol: str, where: str, text: str, others: frozenset[str], words: tuple[str, ...] = ()
) -> Text:
    """Return an expression in a symbol, which it needs, and in coefficients."""
    return Text(where, text, others | {symbol}, frozenset(symbol), words, coefficients=True)


def _activation(where: str, text: str) -> Text:
    symbol = frozenset("x")
    return Text(where, activation(text), symbol, symbol, (*NO_ACTIVATION, *UNARY))
