"""Equations as the papers print them: a small matrix grammar, parsed to a tree and evaluated.

A rule is one or more assignments separated by ``;``, for example
``S = theta*S - eta*(W @ k - v) @ k.T; W = alpha*W + S``. A right-hand side sees the last step's
state, except for names that the same rule has assigned before.

Scalars are numbers, vectors are columns ``[n, 1]``. ``@`` is the matrix product, ``.T`` the
transpose; ``+ - * / **`` and the functions of the expression grammar act entry by entry (with
broadcasting), ``where`` takes a comparison. Beyond these:

=============  =====================================================================
``I``          the identity of the key's size, where the environment has none
``diag(x)``    the diagonal matrix of a column
``outer(a,b)`` ``a @ b.T``
``norm(x)``    the 2-norm over all entries; ``norm(x, p)`` the p-norm
``softmax(x)`` over all entries
``inv(x)``     the inverse
``ns(x)``      Newton–Schulz, five steps of Muon's quintic
``sum_i(x)``   the sum over a window or a prefix: ``x`` names its items ``k_i``, ``v_i``, …
``total(x)``   the sum of all entries
``trace(x)``   the sum of the diagonal
``inner(a,b)`` the sum of ``a*b`` over all entries
=============  =====================================================================

A problem is stated in the same grammar with four functions more, whose second argument is a name:
``gradient(f, W)`` is the gradient of a number in ``W``; ``argmin(f, X)`` what makes it least, which
starts at the value of ``X`` in the environment, and ``argmin(f, X, s)`` the same among the matrices
whose entries are at least 0 and sum to ``s``; ``root(f, z)`` the number ``z`` at which f is 0;
and ``expect(f, x)`` the mean of f over a standard normal number ``x``.

Of a deep memory a rule is read once for each of its matrices, and ``grad`` is the gradient of the
summed, weighted loss of the step in that matrix, ``e`` the last key's ŷ − v.

The text is cut into tokens of a closed list, parsed by Python's ``ast`` and walked with an
allow-list; it is never executed.
"""

from __future__ import annotations

import ast
import keyword
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

from mnemic.dsl.expressions import Apply, ExpressionError, Name, Node, Number
from mnemic.dsl.functions import CONSTANTS, FUNCTIONS
from mnemic.dsl.spec import Spec
from mnemic.errors import Issue, nearest

if TYPE_CHECKING:
    from torch import Tensor

Assignment: TypeAlias = tuple[str, Node]
Environment: TypeAlias = Mapping[str, Any]

LONGEST_TEXT: Final = 1_500
DEEPEST: Final = 40
MOST_NODES: Final = 500
MOST_ASSIGNMENTS: Final = 16
LARGEST_LITERAL: Final = 1e12

MATRIX_FUNCTIONS: Final[Mapping[str, tuple[int, int]]] = {
    "diag": (1, 1), "outer": (2, 2), "norm": (1, 2), "softmax": (1, 1), "inv": (1, 1),
    "ns": (1, 1), "sum_i": (1, 1), "total": (1, 1), "trace": (1, 1), "inner": (2, 2),
    "gradient": (2, 2), "argmin": (2, 3), "root": (2, 2), "expect": (2, 2),
}  # fmt: skip
"""The functions beside those of the expression grammar: the least and most arguments."""


def assignments(rule_text: str) -> tuple[Assignment, ...]:
    """Return the assignments of a rule, in order: names and trees.

    Raises ExpressionError, and nothing else, for any text that is not a rule.

    >>> assignments("W = W + v @ k.T")[0][0]
    'W'
    """
    _check_tokens(rule_text)
    walk = _Walk()
    return tuple(walk.assignment(statement) for statement in _syntax(rule_text))


def issues(spec: Spec) -> Iterator[Issue]:
    """Yield one issue for each published equation of a spec that cannot be read."""
    for i, equation in enumerate(spec.published):
        try:
            assignments(equation.rule)
        except ExpressionError as error:
            yield replace(error.issue, where=f"published[{i}].rule")


def inputs(rule_text: str) -> frozenset[str]:
    """Return the names that a rule reads from its environment (``I`` and constants left out)."""
    known, found = {*CONSTANTS, "I"}, set[str]()
    for name, tree in assignments(rule_text):
        found |= _names(tree) - known
        known.add(name)
    return frozenset(found)


def evaluate(tree: Node, environment: Environment) -> Tensor:
    """Return the value of a tree in float64.

    ``environment`` maps names to numbers or arrays: scalars, columns [n, 1], matrices. A name
    ``x_i`` under ``sum_i`` is looked up there too, as a sequence (or a stacked array) of items.
    Raises KeyError for a name that it lacks.
    """
    match tree:
        case Number(value):
            return _tensor(value)
        case Name(name):
            return _lookup(name, environment)
        case Apply("sum_i", (body,)):
            return _sum(body, environment)
        case Apply("gradient" | "argmin" | "root" | "expect", _):
            from mnemic.compiler import extremes

            return extremes.value(tree, environment)
        case Apply(function, arguments):
            return _functions()[function](*(evaluate(a, environment) for a in arguments))


def step(rule_text: str, environment: Environment) -> dict[str, Tensor]:
    """Return the names that a rule assigns, and their values after it.

    >>> step("W = alpha*W + v @ k.T", {"alpha": 0.5, "W": [[2.0]], "v": [[3.0]], "k": [[1.0]]})
    {'W': tensor([[4.]], dtype=torch.float64)}
    """
    assigned: dict[str, Tensor] = {}
    for name, tree in assignments(rule_text):
        assigned[name] = evaluate(tree, {**environment, **assigned})
    return assigned


# ---- text to trees ----

_TOKEN: Final = re.compile(
    r"(?P<number>(?:[0-9]{1,17}(?:\.[0-9]{0,17})?|\.[0-9]{1,17})(?:[eE][-+]?[0-9]{1,3})?)(?![\w.])"
    r"|\.T\b|(?P<name>[A-Za-z][A-Za-z0-9_]*)|\*\*|[<>=]=|[ \n=;@*/+\-(),<>]",
    re.ASCII,
)

_BINARY: Final[dict[type[ast.operator], str]] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Pow: "pow",
    ast.MatMult: "matmul",
}  # fmt: skip
_COMPARE: Final[dict[type[ast.cmpop], str]] = {
    ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq",
}  # fmt: skip


def _fail(message: str, read: str | None = None, column: int = 1, **more: Any) -> NoReturn:
    raise ExpressionError(Issue(message, f"rule, column {column}", read, **more), column)


def _check_tokens(text: str) -> None:
    """Refuse what the grammar has no token for, before Python's parser sees it."""
    if len(text) > LONGEST_TEXT:
        _fail(f"longer than {LONGEST_TEXT} characters", text)
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None or keyword.iskeyword(token["name"] or ""):
            _fail("is not part of the grammar", token["name"] if token else text[at], at + 1)
        at = token.end()


def _syntax(text: str) -> list[ast.stmt]:
    """Parse the text into Python's statements."""
    try:
        body = ast.parse(text.replace("\n", " ").strip()).body
    except SyntaxError as error:
        _fail("cannot be read", text, max(error.offset or 1, 1))
    except (RecursionError, MemoryError):
        _fail("is nested too deeply")
    if not 1 <= len(body) <= MOST_ASSIGNMENTS:
        _fail(f"a rule has 1 to {MOST_ASSIGNMENTS} assignments", text)
    return body


@dataclass
class _Walk:
    """One walk over Python's tree, counting what it builds."""

    count: int = 0

    def assignment(self, statement: ast.stmt) -> Assignment:
        match statement:
            case ast.Assign([ast.Name(name)], value):
                if name in FUNCTIONS or name in MATRIX_FUNCTIONS or name in (*CONSTANTS, "I"):
                    self.refuse(statement, "is taken", name)
                return name, self.node(value, 1)
        self.refuse(statement, "is no assignment to a name")

    def node(self, node: ast.expr, depth: int, condition: bool = False, item: bool = False) -> Node:
        """Convert a node of Python's tree to ours; ``item`` inside ``sum_i``."""
        self.count += 1
        if self.count > MOST_NODES or depth > DEEPEST:
            self.refuse(node, "is too large")
        if isinstance(node, ast.Compare) != condition:
            self.refuse(node, "a comparison is the first argument of where, and nothing else is")

        def sub(*parts: ast.expr) -> tuple[Node, ...]:
            return tuple(self.node(part, depth + 1, item=item) for part in parts)

        match node:
            case ast.Constant(value):
                return self.number(node, value)
            case ast.Name(name):
                return self.name(node, name, item)
            case ast.UnaryOp(ast.USub(), operand):
                return Apply("neg", sub(operand))
            case ast.Attribute(value, "T"):
                return Apply("transpose", sub(value))
            case ast.BinOp(left, op, right) if type(op) in _BINARY:
                return Apply(_BINARY[type(op)], sub(left, right))
            case ast.Compare(left, [op], [right]) if type(op) in _COMPARE:
                return Apply(_COMPARE[type(op)], sub(left, right))
            case ast.Call(ast.Name("where"), [test, a, b], []):
                return Apply("where", (self.node(test, depth + 1, True, item), *sub(a, b)))
            case ast.Call(ast.Name("sum_i"), [body], []) if not item:
                return Apply("sum_i", (self.node(body, depth + 1, item=True),))
            case ast.Call(ast.Name(name), arguments, []):
                return Apply(self.function(node, name, len(arguments)), sub(*arguments))
        self.refuse(node, f"{type(node).__name__} is not part of the grammar")

    def number(self, node: ast.expr, value: object) -> Number:
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.refuse(node, "is not a number", str(value))
        if value > LARGEST_LITERAL:
            self.refuse(node, f"a number beyond {LARGEST_LITERAL:g}", str(value))
        return Number(value)

    def name(self, node: ast.expr, name: str, item: bool) -> Name:
        if name in FUNCTIONS or name in MATRIX_FUNCTIONS:
            self.refuse(node, "is a function", name)
        if name.endswith("_i") and not item:
            self.refuse(node, "an item of a window stands inside sum_i", name)
        return Name(name)

    def function(self, node: ast.expr, name: str, count: int) -> str:
        arity = {word: (f.least, f.most) for word, f in FUNCTIONS.items()}
        arity.update(MATRIX_FUNCTIONS)
        if name not in arity:
            allowed = tuple(arity)
            near = nearest(name, allowed)
            _fail("unknown function", name, node.col_offset + 1, allowed=allowed, nearest=near)
        least, most = arity[name]
        if not least <= count <= most or name in ("where", "sum_i"):
            self.refuse(node, f"does not take {count} arguments here", name)
        return name

    def refuse(self, node: ast.AST, message: str, read: str | None = None) -> NoReturn:
        _fail(message, read, getattr(node, "col_offset", 0) + 1)


# ---- trees to numbers ----


def _names(tree: Node) -> set[str]:
    match tree:
        case Name(name):
            return {name}
        case Apply(_, arguments):
            return set[str]().union(*map(_names, arguments))
    return set()


def _tensor(value: Any) -> Tensor:
    import torch

    return torch.as_tensor(value, dtype=torch.float64)


def _lookup(name: str, environment: Environment) -> Tensor:
    import torch

    if name in environment:
        return _tensor(environment[name])
    if name in CONSTANTS:
        return _tensor(CONSTANTS[name])
    if name == "I":
        return torch.eye(_key_size(environment), dtype=torch.float64)
    raise KeyError(name)


def _key_size(environment: Environment) -> int:
    for key in ("k", "phi", "k_1"):
        if key in environment:
            return _tensor(environment[key]).shape[0]
    return _tensor(environment["k_i"][0]).shape[0]


def _sum(body: Node, environment: Environment) -> Tensor:
    """Return the sum of the body over the items of the names that end in ``_i``."""
    items = {name: environment[name] for name in _names(body) if name.endswith("_i")}
    if len(lengths := {len(values) for values in items.values()}) != 1:
        raise ValueError(f"sum_i needs items of one length, not {sorted(lengths)}")
    terms = [
        evaluate(body, {**environment, **{name: values[i] for name, values in items.items()}})
        for i in range(lengths.pop())
    ]
    return reduce(operator.add, terms)


def _newton_schulz(x: Tensor) -> Tensor:
    """Send singular values towards one by p(s) = 3.4445 s − 4.7750 s³ + 2.0315 s⁵, by the SVD."""
    import torch

    left, sizes, right = torch.linalg.svd(x, full_matrices=False)
    sizes = sizes / (torch.linalg.vector_norm(x) + 1e-7)
    for _ in range(5):
        sizes = 3.4445 * sizes - 4.7750 * sizes**3 + 2.0315 * sizes**5
    found: Tensor = left @ torch.diag(sizes) @ right
    return found


def _functions() -> Mapping[str, Callable[..., Tensor]]:
    """Return each operator and function by its name, on float64 tensors."""
    import torch
    from torch.nn import functional

    return {
        "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div,
        "pow": torch.pow, "neg": torch.neg, "matmul": torch.matmul,
        "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge, "eq": torch.eq,
        "transpose": lambda x: x.mT,
        "diag": lambda x: torch.diag(x[:, 0]),
        "outer": lambda a, b: a @ b.mT,
        "total": torch.sum, "trace": torch.trace, "inner": lambda a, b: (a * b).sum(),
        "norm": lambda x, p=2.0: torch.linalg.vector_norm(x, ord=float(p)),
        "softmax": lambda x: torch.softmax(x.flatten(), 0).reshape(x.shape),
        "inv": torch.linalg.inv, "ns": _newton_schulz,
        "exp": torch.exp, "log": torch.log, "log1p": torch.log1p, "expm1": torch.expm1,
        "sqrt": torch.sqrt, "abs": torch.abs, "sign": torch.sign, "square": torch.square,
        "max": lambda *x: reduce(torch.maximum, x), "min": lambda *x: reduce(torch.minimum, x),
        "sin": torch.sin, "cos": torch.cos, "tan": torch.tan, "tanh": torch.tanh,
        "sinh": torch.sinh, "cosh": torch.cosh, "atan": torch.atan, "asinh": torch.asinh,
        "atanh": torch.atanh, "erf": torch.erf,
        "sigmoid": torch.sigmoid, "logit": torch.logit,
        "softplus": lambda x: torch.logaddexp(x, torch.zeros_like(x)),
        "logsigmoid": functional.logsigmoid, "relu": torch.relu, "silu": functional.silu,
        "gelu": functional.gelu, "round": torch.round, "where": torch.where,
        "heaviside": lambda x: torch.heaviside(x, torch.full_like(x, 0.5)),
    }  # fmt: skip
