"""Expressions: what is read, what is refused and how it is said, the round trip."""

import ast
import pickle
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tiers import examples

from mnemic.dsl.expressions import (
    Apply,
    Expression,
    ExpressionError,
    Name,
    Node,
    Number,
    fold,
    parse,
    unparse,
)
from mnemic.dsl.functions import CONSTANTS, FUNCTIONS, OPERATORS

SYMBOLS = ("e", "p", "x", "y")
COMPARISONS = ("lt", "le", "gt", "ge", "eq")
E, X, Y = Name("e"), Name("x"), Name("y")
BELOW, ABOVE, EQUAL = Apply("lt", (X, Y)), Apply("ge", (Y, E)), Apply("eq", (E, X))


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("1e-3", Number(0.001)),
        ("-2", Number(-2)),
        ("-x**2", Apply("neg", (Apply("pow", (X, Number(2))),))),
        ("(-2)**2", Apply("pow", (Number(-2), Number(2)))),
        ("x - y - e", Apply("sub", (Apply("sub", (X, Y)), E))),
        ("x**y**e", Apply("pow", (X, Apply("pow", (Y, E))))),
        ("2*pi", Apply("mul", (Number(2), Name("pi")))),
        ("max(x, 0)", Apply("max", (X, Number(0)))),
        ("where(x < 1, x, y)", Apply("where", (Apply("lt", (X, Number(1))), X, Y))),
        (
            "where(x < y and y >= e and e == x, x, y)",
            Apply("where", (Apply("and", (Apply("and", (BELOW, ABOVE)), EQUAL)), X, Y)),
        ),
    ],
)
def test_the_tree_of_a_text(text: str, tree: Node) -> None:
    assert parse(text, SYMBOLS).tree == tree
    assert parse(unparse(tree), SYMBOLS).tree == tree


def test_an_expression_knows_its_symbols_and_its_canonical_text() -> None:
    expression = parse("  ((x)**2)\n - (-(y+ pi)) ", SYMBOLS)
    assert expression == Expression(
        "((x)**2)\n - (-(y+ pi))", expression.tree, frozenset({"x", "y"})
    )
    assert str(expression) == "x**2 - -(y + pi)"
    assert pickle.loads(pickle.dumps(expression)) == expression


PAPERS = [
    "log(cosh(e))",
    "w*log(w) + (1-w)*log(1-w)",
    "x*sigmoid(x)",
    "1 - 2**(-5 - h)",
    "1 - 2**(-5 - 8*h/H)",
    "1 - eta*lam",
    "x*log(x) - (x + 1)*log((x + 1)/2)",
    "where(abs(e) < delta, e**2/2, delta*(abs(e) - delta/2))",
    "abs(e)**(p/(p - 1))",
    "log(exp(10*e) + exp(-10*e))/10",
    "exp(-1000*x)",
    "tanh(1000000*e)",
    "(1 + e**2)**0.123",
    "exp(e/5.65685)",
    "(1 + e**2)**(1/3)",
    "(1 + e**2)**0.3333333333333333",
    "exp(-exp(x))",
]


@pytest.mark.parametrize("text", PAPERS)
def test_what_papers_write_is_read(text: str) -> None:
    parse(text, ["e", "w", "x", "h", "H", "eta", "lam", "p", "delta"])


ALL = ", ".join(FUNCTIONS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "column 1: is empty"),
        (" \n", "column 1: is empty"),
        ("x + yy", "column 5: unknown symbol: read 'yy', allowed: e, p, x, y, pi, inf; "
                   "did you mean 'y'?"),
        ("hubber(x)", f"column 1: unknown function: read 'hubber', allowed: {ALL}"),
        ("sigmod(x)", f"column 1: unknown function: read 'sigmod', allowed: {ALL}; "
                      "did you mean 'sigmoid'?"),
        ("x + exp", "column 5: the function takes 1 argument: read 'exp'"),
        ("max(x)", "column 1: the function takes 2 to 8 arguments, not 1: read 'max'"),
        ("where(x, y)", "column 1: the function takes 3 arguments, not 2: read 'where'"),
        ("where(x, y, e)", "column 7: a comparison must be the first argument of where"),
        ("x < y", "column 1: a comparison may only be the first argument of where"),
        ("x and y", "column 1: a comparison may only be the first argument of where"),
        ("where(0 < x < 1, x, y)",
         "column 7: a chain of comparisons is written with and: a < b and b < c"),
        ("x.real", "column 2: is not part of the grammar: read '.real'"),
        ("x^2", "column 2: is not part of the grammar: read '^'; did you mean '**'?"),
        ("1 + |x - y|", "column 5: is not part of the grammar: read '|'; did you mean "
                        "'abs(x - y)'?"),
        ("\\frac{1}{2}", "column 1: is not part of the grammar: read '\\\\frac'; did you mean "
                         "'(...)/(...)'?"),
        ("\\log(x)", "column 1: is not part of the grammar: read '\\\\log'; did you mean "
                     "'log(...)'?"),
        ("x²", "column 2: is not part of the grammar: read '²'; did you mean '**2'?"),
        ("||x||", "column 1: is not part of the grammar: read '||'"),
        ("x | y", "column 3: is not part of the grammar: read '|'; did you mean 'or'?"),
        ("np.arctan(x)", "column 3: is not part of the grammar: read '.arctan'; did you mean "
                         "'atan(...)'?"),
        ("x.abs()", "column 2: is not part of the grammar: read '.abs'; did you mean 'abs(...)'?"),
        ("x.T", "column 2: is not part of the grammar: read '.T'"),
        ("1 + 2.5x", "column 5: is not part of the grammar: read '2.5x'; did you mean '2.5*x'?"),
        ("x > 0 & x < 1", "column 7: is not part of the grammar: read '&'; did you mean 'and'?"),
        ("x[0]", "column 2: is not part of the grammar: read '['"),
        ("'x'", "column 1: is not part of the grammar: read \"'\""),
        ("lambda: x", "column 1: a keyword of Python is no name: read 'lambda'; "
                      "did you mean 'lam'?"),
        ("  1 + 2*(e - lambda)", "column 14: a keyword of Python is no name: read 'lambda'; "
                                 "did you mean 'lam'?"),
        ("x if x else y", "column 3: a keyword of Python is no name: read 'if'; "
                          "did you mean 'where'?"),
        ("e + in", "column 5: a keyword of Python is no name: read 'in'"),
        ("  1 + +x", "column 7: is not part of the grammar: read '+x'"),
        ("x, y", "column 1: is not part of the grammar: read 'x, y'"),
        ("max(x, **y)", "column 1: is not part of the grammar: read 'max(x, **y)'"),
        ("max(x, *y)", "column 8: is not part of the grammar: read '*y'"),
        ("x # y", "column 3: is not part of the grammar: read '#'"),
        ("x; y", "column 2: is not part of the grammar: read ';'"),
        ("\uff58 + 1", "column 1: is not part of the grammar: read '\uff58'"),
        ("x\0", "column 2: is not part of the grammar: read '\\x00'"),
        ("2x", "column 1: is not part of the grammar: read '2x'; did you mean '2*x'?"),
        ("1_000", "column 1: is not part of the grammar: read '1_000'"),
        ("0x10", "column 1: is not part of the grammar: read '0x10'"),
        ("True", "column 1: is not a number: read 'True'"),
        ("x + )", "column 5: a bracket closes none that is open: read 'x + )'"),
        ("exp(x + (y", "column 9: a bracket is opened and never closed: read 'exp(x + (y'"),
        ("x + + * y", "column 7: cannot be read: read 'x + + * y'"),
        ("1e999", "column 1: a number beyond 1e+12: read 'inf'"),
        ("2000000000000", "column 1: a number beyond 1e+12: read '2000000000000'"),
        ("0." + "1" * 18, f"column 1: a number of over 17 digits: read '0.{'1' * 18}'"),
        ("x**65", "column 4: an exponent beyond 64: read '65'"),
        ("x**-65", "column 4: an exponent beyond 64: read '-65'"),
        ("9**9**9", "column 1: its powers may grow past 2**8192"),
        ("where(x > 1, 9, x)**9**9", "column 1: its powers may grow past 2**8192"),
        ("-" * 60 + "x", "column 41: is nested more than 40 deep"),
        ("+".join("x" * 501), "column 1: longer than 1000 characters: "
                              f"read '{'x+' * 28}x...'"),
    ],
)  # fmt: skip
def test_what_is_refused_is_said_in_full(text: str, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(text, SYMBOLS, what="bias.expr")
    assert str(caught.value) == f"bias.expr, {message}"
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.column) == (str(caught.value), caught.value.column)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 10_000 + "x" + ")" * 10_000,
        "(" * 490 + "x" + ")" * 490,
        "-" * 999 + "x",
        "x**" * 300 + "x",
        "exp(" * 240 + "x",
        "not " * 240 + "x",
        "lambda " * 140,
        "9**(9**9 + x - x)",
        "9**(9**9*x**0)",
        "(x - x + 9)**(64*64*64*64)",
        "((9**64)**64)**64",
        "9**max(9**9, 1)",
        "9**(1/1e-12)",
        "exp(1e12*log(9))",
        "exp(1000000000000*softplus(0))",
        "exp(exp(1000000000000))",
        "exp(exp(exp(64)))",
        "576**(2 - 1/1000000000000)",
        "square(" * 30 + "9" + ")" * 30,
        "__import__(x)",
        "x.__class__.__mro__",
        "yield",
        "await x",
        "x := 1",
        "f'{x}'",
        "1 if",
        "0777",
        "1j",
        "...",
        "None",
        "()",
    ],
)
def test_hostile_texts_are_refused_at_once(text: str) -> None:
    start = time.perf_counter()
    with pytest.raises(ExpressionError):
        parse(text, SYMBOLS)
    assert time.perf_counter() - start < 1


def _operations(trees: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    def apply(name: str, *arguments: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
        return st.tuples(*arguments).map(lambda found: Apply(name, found))

    compared = st.sampled_from(COMPARISONS).flatmap(lambda name: apply(name, trees, trees))
    conditions = st.recursive(
        compared,
        lambda below: st.sampled_from(["and", "or"]).flatmap(lambda n: apply(n, below, below)),
        max_leaves=3,
    )
    unary = [name for name, function in FUNCTIONS.items() if function.most == 1]
    not_literal = trees.filter(lambda tree: not isinstance(tree, Number) or tree.value < 0)
    return st.one_of(
        st.sampled_from(unary).flatmap(lambda name: apply(name, trees)),
        st.sampled_from(["add", "sub", "mul", "div"]).flatmap(lambda n: apply(n, trees, trees)),
        apply("pow", trees, st.integers(-3, 3).map(Number)),
        apply("pow", trees, st.sampled_from([X, Y])),
        apply("neg", not_literal),
        apply("max", trees, trees, trees),
        apply("where", conditions, trees, trees),
    )


LITERALS = st.one_of(st.integers(-1000, 1000), st.floats(-1e12, 1e12)).map(Number)
LEAVES = st.one_of(LITERALS, st.sampled_from([E, X, Y, *map(Name, CONSTANTS)]))
TREES = st.recursive(LEAVES, _operations, max_leaves=8)


@settings(max_examples=examples(100, 25), deadline=None)
@given(TREES)
def test_unparse_and_parse_are_inverse(tree: Node) -> None:
    text = unparse(tree)
    try:
        again = parse(text, SYMBOLS)
    except ExpressionError as error:
        assert any(bound in str(error) for bound in ("longer", "grow", "deep", "parts"))
        return
    assert repr(again.tree) == repr(tree)
    assert str(again) == text


@settings(max_examples=examples(100, 25), deadline=None)
@given(TREES)
def test_no_parenthesis_could_be_left_out(tree: Node) -> None:
    text = unparse(tree)
    for at, mark in enumerate(text):
        if mark == "(" and not text[:at][-1:].isalnum():
            end = _closing(text, at)
            bare = f"{text[:at]} {text[at + 1 : end]} {text[end + 1 :]}"
            assert not _same_meaning(bare, text)


def _closing(text: str, at: int) -> int:
    depth = 0
    for place in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if depth == 0:
            return place
    raise AssertionError("unbalanced")


def _same_meaning(text: str, other: str) -> bool:
    try:
        return ast.dump(ast.parse(text, mode="eval")) == ast.dump(ast.parse(other, mode="eval"))
    except SyntaxError:
        return False


MARKS = [*"()+-*/,<>=. ", "**", "9", "1e3", " and "]
PIECES = st.lists(st.sampled_from([*SYMBOLS, *FUNCTIONS, *CONSTANTS, *MARKS])).map("".join)


@settings(max_examples=examples(1000, 250), deadline=None)
@given(st.one_of(st.text(), st.text("xe0123456789.+-*/()<=, \n_"), PIECES))
@example("--0")
@example("-0.0")
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        expression = parse(text, SYMBOLS)
    except ExpressionError:
        return
    assert expression.names <= set(SYMBOLS)
    assert repr(parse(str(expression), SYMBOLS).tree) == repr(expression.tree)


def test_fold_goes_from_the_leaves_up() -> None:
    tree = parse("max(x, 2) - pi", SYMBOLS).tree
    seen: list[object] = []

    def number(value: int | float) -> int:
        seen.append(value)
        return 1

    def name(word: str) -> int:
        seen.append(word)
        return 1

    def apply(function: str, arguments: tuple[int, ...]) -> int:
        seen.append(function)
        return 1 + sum(arguments)

    assert fold(tree, number, name, apply) == 5
    assert seen == ["x", 2, "max", "pi", "sub"]


def test_no_name_means_two_things() -> None:
    assert not set(FUNCTIONS) & set(CONSTANTS)
    assert not set(FUNCTIONS) & set(OPERATORS)


@pytest.mark.parametrize(
    "text",
    [
        "exp(-sqrt(x + 0.1))",
        "exp(-(x + 0.1)**0.5)",
        "cosh(tanh(x + 1.5))",
        "exp(-where(x > 0.5, x, 0.5)**2)",
    ],
)
def test_what_a_slow_function_comes_to_may_stand_in_an_exponential(text: str) -> None:
    assert str(parse(text, {"x"})) == text
