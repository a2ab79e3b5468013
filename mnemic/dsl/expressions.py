"""The user's mathematics: parse text to a small tree of numbers, names and applications.

The text is cut into tokens of a closed list, parsed by Python's ``ast`` and walked
with an allow-list; it is never executed. Bounds keep later stages from hanging: 9**9**9
is a short text, but a huge number.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from fractions import Fraction
from keyword import kwlist
from typing import Final, NoReturn, TypeAlias, TypeVar

from mnemic.dsl.functions import ATOM, CONSTANTS, FUNCTIONS, OPERATORS, UNARY
from mnemic.errors import Issue, format_issue, nearest

LONGEST_TEXT: Final = 1_000
DEEPEST: Final = 40
MOST_NODES: Final = 500
MOST_DIGITS: Final = 17  # what the shortest text of a float64 may need
LARGEST_LITERAL: Final = 1e12
LARGEST_EXPONENT: Final = 64
LARGEST_BITS: Final = 8_192
LARGEST_DENOMINATOR: Final = 1_000  # of a decimal that may be taken as a fraction

KEYWORDS: Final = frozenset(kwlist) - {"and", "or", "True", "False", "None"}
"""Words that Python's parser would stumble over later, without saying why."""

INSTEAD: Final = {"lambda": "lam", "if": "where", "else": "where", "is": "=="}
"""What is written in place of a keyword."""

SIGNS: Final = {
    "^": "**", "&": "and", "|": "or", "!": "not", "=": "==", "½": "1/2", "²": "**2", "³": "**3",
    "·": "*", "×": "*", "−": "-", "÷": "/", "≤": "<=", "≥": ">=", "√": "sqrt(...)", "π": "pi",
}  # fmt: skip
"""What is written in place of other languages' signs."""

LATEX: Final = {
    "frac": "(...)/(...)", "tfrac": "(...)/(...)", "dfrac": "(...)/(...)", "cdot": "*",
    "times": "*", "left": "(", "right": ")", "leq": "<=", "le": "<=", "geq": ">=", "ge": ">=",
    "infty": "inf", "pi": "pi",
}  # fmt: skip
"""What is written in place of LaTeX's commands that are no functions."""

OTHERS: Final = {
    "ln": "log", "arctan": "atan", "arcsinh": "asinh", "arctanh": "atanh", "sgn": "sign",
    "swish": "silu", "logistic": "sigmoid", "fabs": "abs", "maximum": "max", "minimum": "min",
}  # fmt: skip
"""What functions of other libraries are called here."""

T = TypeVar("T")


@dataclass(frozen=True)
class Number:
    """A literal, with its sign: ``-2`` is a number, not the negation of one; ``-0`` is one."""

    value: int | float


@dataclass(frozen=True)
class Name:
    """A symbol of the axis, or one of the constants ``pi`` and ``inf``."""

    name: str


@dataclass(frozen=True)
class Apply:
    """A function or an operator (by its name: ``add``, ``lt``, ...) and its arguments."""

    function: str
    arguments: tuple[Node, ...]


Node: TypeAlias = Number | Name | Apply


@dataclass(frozen=True)
class Expression:
    """A parsed expression: the text as written, its tree, the symbols that it uses."""

    text: str
    tree: Node
    names: frozenset[str]

    def __str__(self) -> str:
        return unparse(self.tree)


class ExpressionError(ValueError):
    """Raised for a text that is not an expression of the grammar.

    ``issue`` says why; ``column`` is 1-based and counts within the expression's text.
    """

    def __init__(self, issue: Issue, column: int) -> None:
        super().__init__(issue, column)
        self.issue = issue
        self.column = column

    def __str__(self) -> str:
        return format_issue(self.issue)


def parse(text: str, symbols: Collection[str], *, what: str = "expression") -> Expression:
    """Read ``text`` as an expression in ``symbols``; ``what`` names it in error messages.

    Raises ExpressionError, and nothing else, for any text that is not one.

    >>> parse("log(cosh(e))", {"e"}).tree
    Apply(function='log', arguments=(Apply(function='cosh', arguments=(Name(name='e'),)),))
    """
    walk = _Walk(what, text, frozenset(symbols))
    _check_tokens(text, walk)
    tree = walk.node(_syntax(walk), 1)
    if fold(tree, _number_growth, lambda name: _Growth(1, 1), _growth).bits > LARGEST_BITS:
        walk.fail(f"its powers may grow past 2**{LARGEST_BITS}")
    return Expression(text.strip(_SPACE), tree, frozenset(walk.names))


def fold(
    tree: Node,
    number: Callable[[int | float], T],
    name: Callable[[str], T],
    apply: Callable[[str, tuple[T, ...]], T],
) -> T:
    """Compute a value of the tree from its leaves up, by one callable for each kind of node."""
    match tree:
        case Number(value):
            return number(value)
        case Name(word):
            return name(word)
        case Apply(function, arguments):
            return apply(function, tuple(fold(a, number, name, apply) for a in arguments))


def unparse(tree: Node) -> str:
    """Return the canonical text, with the fewest parentheses; parsing it gives an equal tree.

    >>> unparse(parse("((x) ** 2) - (-(y + 1))", {"x", "y"}).tree)
    'x**2 - -(y + 1)'
    """
    return fold(tree, _number_text, lambda name: (name, ATOM), _apply_text)[0]


def _number_text(value: int | float) -> tuple[str, int]:
    negative = math.copysign(1, value) < 0
    return repr(value), UNARY if negative else ATOM


def _apply_text(function: str, arguments: tuple[tuple[str, int], ...]) -> tuple[str, int]:
    """Return the text of an application, and how tightly its operator binds."""
    operator = OPERATORS.get(function)
    if operator is None:
        return f"{function}({', '.join(text for text, _ in arguments)})", ATOM
    needed = (operator.left, operator.right)
    texts = [
        text if binds >= least else f"({text})"
        for (text, binds), least in zip(arguments, needed, strict=False)
    ]
    if len(texts) == 1:
        return operator.symbol + texts[0], operator.precedence
    return operator.symbol.join(texts), operator.precedence


# ---- tokens ----

_SPACE: Final = " \t\r\n"
_LITERAL: Final = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_TOKEN: Final = re.compile(
    rf"[{_SPACE}]+|(?P<literal>{_LITERAL})(?![\w.])|[A-Za-z_]\w*|\*\*|[<>=]=|[-+*/(),<>]",
    re.ASCII,
)


def _check_tokens(text: str, walk: _Walk) -> None:
    """Refuse text that does not consist of tokens of the grammar, before Python parses it."""
    if len(text) > LONGEST_TEXT:
        walk.fail(f"longer than {LONGEST_TEXT} characters", read=text)
    if not text.strip(_SPACE):
        walk.fail("is empty")
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            piece = _piece(text, at)
            near = _meant(text, at, piece, walk.symbols)
            walk.fail("is not part of the grammar", piece, at + 1, near=near)
        digits = re.split("[eE]", token["literal"] or "")[0].replace(".", "").lstrip("0")
        if len(digits) > MOST_DIGITS:
            walk.fail(f"a number of over {MOST_DIGITS} digits", token["literal"], at + 1)
        if token[0] in KEYWORDS:
            near = INSTEAD.get(token[0])
            walk.fail("a keyword of Python is no name", token[0], at + 1, near=near)
        at = token.end()


def _piece(text: str, at: int) -> str:
    """Return the word or character at ``at``, where no token was found, for an error message."""
    word = re.compile(r"\\[A-Za-z]+|\|\||[\w.]+", re.ASCII).match(text, at)
    return word[0] if word else text[at]


def _meant(text: str, at: int, piece: str, symbols: Collection[str] = ()) -> str | None:
    """Return the grammar's own spelling of a piece of other notations, for an error message: bars,
    a norm where ``n`` is one of the symbols, a method or a function of a module, a product without
    its sign, a LaTeX command, a sign of another language; None if the piece is not recognised.

    >>> _meant("|e|", 0, "|"), _meant("np.log(e)", 2, ".log"), _meant("2e", 0, "2e")
    ('abs(e)', 'log(...)', '2*e')
    >>> _meant("||e||", 0, "||", {"n"}), _meant("\\\\ln(e)", 0, "\\\\ln"), _meant("e²", 1, "²")
    ('n', 'log(...)', '**2')
    """
    if piece in ("||", "‖"):
        return "n" if "n" in symbols else None
    bars = re.compile(r"\|([^|]+)\|").match(text, at)
    if bars is not None:
        return f"abs({bars[1].strip(_SPACE)})"
    function = OTHERS.get(piece[1:], piece[1:])
    if piece[0] in (".", "\\") and function in FUNCTIONS:
        return f"{function}(...)"
    if piece[0] == "\\":
        return LATEX.get(piece[1:])
    product = re.fullmatch(r"(\d+(?:\.\d*)?)(?!(?<=0)[box])([A-Za-z]\w*)", piece, re.ASCII)
    return "*".join(product.groups()) if product is not None else SIGNS.get(piece)


def _syntax(walk: _Walk) -> ast.expr:
    """Parse the text into Python's tree; refuse what Python's parser refuses or finds too deep."""
    line = re.sub(f"[{_SPACE}]", " ", walk.text.strip(_SPACE))
    try:
        return ast.parse(line, mode="eval").body
    except SyntaxError as error:
        column = walk.start + max(error.offset or 1, 1)
        walk.fail(_reason(error.msg), read=line, column=column)
    except (RecursionError, MemoryError):
        walk.fail("is nested too deeply")


def _reason(told: str) -> str:
    """Say what is wrong with the text, given the message of Python's parser."""
    if "never closed" in told:
        return "a bracket is opened and never closed"
    return "a bracket closes none that is open" if "unmatched" in told else "cannot be read"


# ---- the walk ----

_BINARY: Final[dict[type[ast.operator], str]] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Pow: "pow",
}  # fmt: skip
_COMPARE: Final[dict[type[ast.cmpop], str]] = {
    ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq",
}  # fmt: skip


@dataclass
class _Walk:
    """One walk over Python's tree, counting what it builds."""

    what: str
    text: str
    symbols: frozenset[str]
    names: set[str] = field(default_factory=set)
    count: int = 0

    @property
    def start(self) -> int:
        """How much space comes before the expression."""
        return len(self.text) - len(self.text.lstrip(_SPACE))

    def fail(
        self, message: str, read: str | None = None, column: int = 1,
        allowed: tuple[str, ...] = (), near: str | None = None,
    ) -> NoReturn:  # fmt: skip
        where = f"{self.what}, column {column}"
        raise ExpressionError(Issue(message, where, read, allowed, near), column)

    def refuse(self, node: ast.expr, message: str, read: str | None = None) -> NoReturn:
        self.fail(message, read, self.column(node))

    def column(self, node: ast.expr) -> int:
        return self.start + node.col_offset + 1

    def node(self, node: ast.expr, depth: int, condition: bool = False) -> Node:
        """Convert a node of Python's tree to ours, a truth value if and only if ``condition``."""
        self.spend(node, depth)
        if isinstance(node, ast.Compare | ast.BoolOp) != condition:
            wanted = "a comparison must" if condition else "a comparison may only"
            self.refuse(node, f"{wanted} be the first argument of where")
        match node:
            case ast.Constant(value):
                return self.number(node, value, 1)
            case ast.UnaryOp(ast.USub(), ast.Constant(value)) if repr(value) != "0":
                return self.number(node, value, -1)  # an integer's zero has no sign to carry
            case ast.UnaryOp(ast.USub(), operand):
                return Apply("neg", (self.node(operand, depth + 1),))
            case ast.Name(word):
                return self.name(node, word)
            case ast.BinOp(left, op, right) if type(op) in _BINARY:
                return self.binary(_BINARY[type(op)], left, right, depth)
            case ast.Compare(left, [op], [right]) if type(op) in _COMPARE:
                arguments = self.node(left, depth + 1), self.node(right, depth + 1)
                return Apply(_COMPARE[type(op)], arguments)
            case ast.Compare(_, [_, _, *_], _):
                self.refuse(node, "a chain of comparisons is written with and: a < b and b < c")
            case ast.BoolOp(op, values):
                return self.junction("and" if isinstance(op, ast.And) else "or", values, depth)
            case ast.Call(ast.Name(word), arguments, []):
                return self.call(node, word, arguments, depth)
        start, end = node.col_offset, node.end_col_offset or 0
        piece = self.text[self.start + start : self.start + end]
        self.refuse(node, "is not part of the grammar", piece)

    def spend(self, node: ast.expr, depth: int) -> None:
        """Count one more node; refuse the text where the tree gets too large or too deep."""
        self.count += 1
        if self.count > MOST_NODES:
            self.refuse(node, f"has more than {MOST_NODES} parts")
        if depth > DEEPEST:
            self.refuse(node, f"is nested more than {DEEPEST} deep")

    def number(self, node: ast.expr, value: object, sign: int) -> Number:
        if not isinstance(value, int | float) or isinstance(value, bool):
            self.refuse(node, "is not a number", str(value))
        if not abs(value) <= LARGEST_LITERAL:
            self.refuse(node, f"a number beyond {LARGEST_LITERAL:g}", str(value))
        return Number(sign * value)

    def name(self, node: ast.expr, word: str) -> Name:
        if word in self.symbols:
            self.names.add(word)
        elif word in FUNCTIONS:
            self.refuse(node, f"the function takes {FUNCTIONS[word].arity}", word)
        elif word not in CONSTANTS:
            self.unknown(node, "symbol", word, (*sorted(self.symbols), *CONSTANTS))
        return Name(word)

    def unknown(self, node: ast.expr, what: str, word: str, allowed: tuple[str, ...]) -> NoReturn:
        near = OTHERS.get(word) if what == "function" else None
        near = near or nearest(word, allowed)
        self.fail(f"unknown {what}", word, self.column(node), allowed, near)

    def binary(self, function: str, left: ast.expr, right: ast.expr, depth: int) -> Apply:
        first, second = self.node(left, depth + 1), self.node(right, depth + 1)
        power = second.value if function == "pow" and isinstance(second, Number) else 0
        if abs(power) > LARGEST_EXPONENT:
            self.refuse(right, f"an exponent beyond {LARGEST_EXPONENT}", str(power))
        return Apply(function, (first, second))

    def junction(self, function: str, values: list[ast.expr], depth: int) -> Node:
        """Nest ``a and b and c`` as ``(a and b) and c``: two arguments each."""
        below = depth + len(values) - 1
        tree = self.node(values[0], below, condition=True)
        for place, value in enumerate(values[1:]):
            tree = Apply(function, (tree, self.node(value, below - place, condition=True)))
        return tree

    def call(self, node: ast.expr, word: str, arguments: list[ast.expr], depth: int) -> Apply:
        if word not in FUNCTIONS:
            self.unknown(node, "function", word, tuple(FUNCTIONS))
        function = FUNCTIONS[word]
        if not function.least <= len(arguments) <= function.most:
            self.refuse(node, f"the function takes {function.arity}, not {len(arguments)}", word)
        conditions = [word == "where" and place == 0 for place in range(len(arguments))]
        pairs = zip(arguments, conditions, strict=True)
        return Apply(word, tuple(self.node(a, depth + 1, condition) for a, condition in pairs))


# ---- growth ----


@dataclass(frozen=True)
class _Growth:
    """Bounds on the number that exact arithmetic may compute for a term, whatever cancels in it.

    ``bits`` bounds the number's length, ``size`` its absolute value and ``scale`` its denominator
    where it is an exponent: SymPy turns 12**(n/m) into a power below m of 2 and of 3. A symbol
    counts as one, since SymPy reduces ``x - x + 9`` and ``x**0`` to numbers. ``least`` is the
    absolute value of a literal, and 0 for everything else.
    """

    bits: float
    size: float
    scale: float = 1
    least: float = 0


_EXPONENTIAL: Final = frozenset(
    ["exp", "expm1", "sinh", "cosh", "sigmoid", "softplus", "logsigmoid", "silu"]
)
_SLOW: Final = frozenset(["sqrt", "sin", "cos", "tanh", "erf", "atan", "sign", "asinh", "relu"])
"""What comes to no more than one above its argument's size."""
_ONE_PRIME: Final = 2  # bits; such a base has no two primes, and takes any denominator


def _number_growth(value: int | float) -> _Growth:
    if isinstance(value, int):
        return _Growth(value.bit_length() + 1, abs(value), least=abs(value))
    scale = Fraction(repr(value)).denominator
    return _Growth(64, abs(value), scale if scale <= LARGEST_DENOMINATOR else 1, abs(value))


def _growth(function: str, arguments: tuple[_Growth, ...]) -> _Growth:
    """Bound the growth of an application from the bounds of its arguments."""
    first, last = arguments[0], arguments[-1]
    bits = sum(argument.bits for argument in arguments)
    scale = math.prod(argument.scale for argument in arguments)
    match function:
        case "add" | "sub" | "max" | "min":
            return _Growth(bits + 1, sum(argument.size for argument in arguments), scale)
        case "where":
            return _Growth(bits + 1, max(value.size for value in arguments[1:]), scale)
        case "mul":
            return _Growth(bits, first.size * last.size, scale)
        case "neg" | "abs" | "round":
            return _Growth(bits + 1, first.size + 1, scale)
        case "div":
            scale *= max(1, last.size)
            if last.least > 0:
                return _Growth(bits, first.size / last.least, scale)
        case "pow":
            bits = first.bits * max(1, last.size, last.scale if first.bits > _ONE_PRIME else 1)
            if 0 < last.least <= 1:
                return _Growth(bits, first.size + 1, scale)
            if last.least > 0:
                return _Growth(bits, _power(first.size, last.size, bits), scale)
        case "square":
            bits = 2 * first.bits
            return _Growth(bits, _power(first.size, 2, bits), scale)
        case _ if function in _SLOW:
            return _Growth(bits, first.size + 1, scale)
        case _ if function in _EXPONENTIAL:
            bits = max(bits, 1.5 * first.size)
    return _Growth(bits, 2.0 ** min(bits, 1000), scale)


def _power(size: float, exponent: float, bits: float) -> float:
    """Bound the size of a power: by its bits, or by that of its base."""
    most: float = min(bits, 1000)
    return float(2.0 ** min(most, exponent * math.log2(size + 1)))
