"""Rewrites of a chunk's plan for tiles: the same values with fewer products and conversions.

PyTorch's forms compute for all chunks at once what no state reaches, so they take A B before
(A B) S. A kernel has one chunk at a time and the states beside it: there A (B S − x) is one product
fewer. Factors of rows stand beside what was computed, so that a product's operands are read as they
were loaded. Each rule leaves a quantity's value as it is.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import sympy as sp

from mnemic.codegen.plan import Call, Given, Map, Op, Plan, Product, Quantity, Read
from mnemic.codegen.tiled.layout import turned

Axes = tuple[str, ...]
Rule = Callable[[Plan, Quantity], Op | None]


def reordered(plan: Plan) -> Plan:
    """Rewrite a form's plan, before its gradient is taken: decays, and common left sides."""
    return _applied(plan, (left_at_end, common_left, column_factor))


def tidied(plan: Plan) -> Plan:
    """Rewrite a plan that is printed next, a form's or its gradient's: factors off loaded rows."""
    return _applied(plan, (row_factor,))


def upright(plan: Plan) -> Plan:
    """Rewrite the plan of a gradient in several kernels: factors off transposed left sides."""
    return _applied(plan, (turned_factor,))


def _applied(plan: Plan, rules: tuple[Rule, ...]) -> Plan:
    """Return a copy of the plan in which none of the rules fits any more."""
    found = plan.emptied()
    found.graph, found.known = plan.graph.copy(), dict(plan.known)
    while any(_rewritten(found, rule, q) for q in found.ordered() for rule in rules):
        _forget(found)
    return found


def _rewritten(plan: Plan, rule: Rule, quantity: Quantity) -> bool:
    op = rule(plan, quantity)
    if op is None or plan.known.get((op, quantity.axes), quantity.name) != quantity.name:
        return False
    plan.rewrite(replace(quantity, op=op))
    plan.known[op, quantity.axes] = quantity.name
    return True


def _forget(plan: Plan) -> None:
    """Leave out what nothing needs any more; what is given stays."""
    given = {name for name in plan.graph if isinstance(plan[name].op, Given)}
    plan.keep(plan.needed() | given)


# -- decays ----------------------------------------------------------------------------------


def left_at_end(plan: Plan, quantity: Quantity) -> Op | None:
    """Rewrite the last row of decays between rows as the decay from each row to the last one."""
    match quantity.op:
        case Call("last_row", (mix,)):
            inner = plan[mix].op
            if isinstance(inner, Call) and inner.function == "segments":
                return Call("left_at_end", inner.arguments)
    return None


# -- products with a common left side --------------------------------------------------------


@dataclass(frozen=True)
class Term:
    """A term ± A X, or ± (A B) S, of a sum of products."""

    read: Read
    sign: int
    left: tuple[str, bool]
    """A, and whether it is transposed."""
    inner: tuple[str, bool] | None
    """B, and whether it is transposed, where there is one."""
    right: tuple[str, bool]


def common_left(plan: Plan, quantity: Quantity) -> Op | None:
    """Rewrite ± A X ± (A B) S → A (± X ± B S), where nothing else reads the products."""
    op = quantity.op
    if not isinstance(op, Map) or not op.expr.is_Add or len(op.reads) != len(op.expr.args):
        return None
    terms = [*_terms(plan, quantity, op)]
    if len(terms) != len(op.reads) or len({term.left for term in terms}) > 1:
        return None
    if all(term.inner is None for term in terms) and len(terms) < 2:
        return None
    left, flipped = terms[0].left
    plain = [t.right[0] for t in terms if t.inner is None and not t.right[1]]
    letter = plan.axes(plain[0])[0] if plain else plan.axes(left)[0 if flipped else 1]
    axes = (letter, quantity.axes[1])
    equation = quantity.equation
    reads = tuple(Read(t.read.symbol, _right(plan, t, axes, equation), axes) for t in terms)
    right = plan.add(f"{quantity.name}_start", axes, Map(op.expr, reads), equation)
    return Product(left, right, flip_left=flipped)


def _terms(plan: Plan, quantity: Quantity, op: Map) -> Iterator[Term]:
    for read in op.reads:
        product = plan[read.quantity].op
        sign = op.expr.coeff(sp.Symbol(read.symbol, real=True))
        alone = _alone(plan, read.quantity) and read.axes == quantity.axes
        if not (isinstance(product, Product) and abs(sign) == 1 and alone):
            return
        right = (product.right, product.flip_right)
        nested = plan[product.left].op
        nests = isinstance(nested, Product) and _alone(plan, product.left)
        if isinstance(nested, Product) and nests and not product.flip_left:
            inner = (nested.right, nested.flip_right)
            yield Term(read, sign, (nested.left, nested.flip_left), inner, right)
        elif not product.flip_right:
            yield Term(read, sign, (product.left, product.flip_left), None, right)


def _right(plan: Plan, term: Term, axes: Axes, equation: str) -> str:
    """Return the name of X, or of B S, which is added to the plan."""
    if term.inner is None:
        return term.right[0]
    inner, right = term.inner, term.right
    op = Product(inner[0], right[0], inner[1], right[1])
    return plan.add(f"{term.read.quantity}_start", axes, op, equation)


def column_factor(plan: Plan, quantity: Quantity) -> Op | None:
    """Rewrite (A ∘ c_s) X → A (c_s ∘ X), where X is computed and nothing else reads A ∘ c_s."""
    op = quantity.op
    if not isinstance(op, Product) or op.flip_left or op.flip_right or _loaded(plan, op.right):
        return None
    found = _factored(plan, op.left)
    if found is None or not _alone(plan, op.left) or found.axis != 1:
        return None
    right = _times(plan, found, op.right, plan.axes(op.right)[0])
    return Product(found.matrix, right)


# -- factors of rows -------------------------------------------------------------------------


@dataclass(frozen=True)
class Factored:
    """f ∘ B: a factor along one axis of a matrix."""

    matrix: str
    factor: Any
    symbol: Any
    """The matrix in the expression."""
    reads: tuple[Read, ...]
    """What the factor reads."""
    axis: int


def _factored(plan: Plan, name: str) -> Factored | None:
    op = plan[name].op
    if not isinstance(op, Map) or len(plan.axes(name)) != 2:
        return None
    whole = [r for r in op.reads if len(r.axes) == 2]
    others = tuple(r for r in op.reads if len(r.axes) == 1)
    letters = {r.axes for r in others}
    if len(whole) != 1 or len(letters) != 1 or len(others) + 1 != len(op.reads):
        return None
    ((letter,),) = letters
    (symbol,) = (s for s in op.expr.free_symbols if s.name == whole[0].symbol)
    factor = op.expr.coeff(symbol)
    if whole[0].axes != plan.axes(name) or sp.expand(op.expr - factor * symbol) != 0:
        return None
    if factor.has(symbol):
        return None
    axis = plan.axes(name).index(letter)
    return Factored(whole[0].quantity, factor, symbol, others, axis)


def row_factor(plan: Plan, quantity: Quantity) -> Op | None:
    """Rewrite (f_t ∘ B) X → f_t ∘ (B X), (f_s ∘ B)ᵀ X → Bᵀ (f_s ∘ X), of rows B that were loaded.

    So too on the other side. Where the other operand was loaded as well there is nothing to gain.
    """
    op = quantity.op
    if not isinstance(op, Product):
        return None
    for own, other, left in ((op.left, op.right, True), (op.right, op.left, False)):
        found = _factored(plan, own)
        if found is None or not _loaded(plan, found.matrix):
            continue
        flipped = op.flip_left if left else op.flip_right
        outer = (found.axis == 0) == (left != flipped)
        if outer:
            return _outside(plan, quantity, op, found, left=left)
        if not _loaded(plan, other):
            turned = op.flip_right if left else op.flip_left
            letter = plan.axes(other)[(0 if left else 1) ^ turned]
            scaled = _times(plan, found, other, letter)
            sides = (found.matrix, scaled) if left else (scaled, found.matrix)
            return Product(*sides, op.flip_left, op.flip_right)
    return None


def turned_factor(plan: Plan, quantity: Quantity) -> Op | None:
    """Rewrite (f_s ∘ B)ᵀ X → Bᵀ (f_s ∘ X), B loaded, even where X was: a transposed left side that
    was computed may have come from an accumulator, which old versions of Triton get wrong, and
    kernels are kept clear of what could be one."""
    op = quantity.op
    if not isinstance(op, Product) or not op.flip_left or op.flip_right:
        return None
    swapped = turned(quantity.axes)  # a tile holds Xᵀ B as Bᵀ X
    own, other = (op.right, op.left) if swapped else (op.left, op.right)
    found = _factored(plan, own)
    if found is None or found.axis != 0 or not _loaded(plan, found.matrix):
        return None
    scaled = _times(plan, found, other, plan.axes(other)[0])
    sides = (scaled, found.matrix) if swapped else (found.matrix, scaled)
    return Product(*sides, flip_left=True)


def _outside(plan: Plan, quantity: Quantity, op: Product, found: Factored, *, left: bool) -> Op:
    """Return the factor times the product's value, which is added as a quantity."""
    sides = (found.matrix, op.right) if left else (op.left, found.matrix)
    plain = Product(*sides, op.flip_left, op.flip_right)
    name = plan.add(f"{quantity.name}_plain", quantity.axes, plain, quantity.equation)
    letter = quantity.axes[0 if left else 1]
    return _scaled(found, name, quantity.axes, letter)


def _times(plan: Plan, found: Factored, name: str, letter: str) -> str:
    """Add the factor times another operand, along one of its axes, and return its name."""
    axes = plan.axes(name)
    return plan.add(f"{name}_weighed", axes, _scaled(found, name, axes, letter))


def _scaled(found: Factored, name: str, axes: Axes, letter: str) -> Map:
    reads = tuple(replace(read, axes=(letter,)) for read in found.reads)
    return Map(found.factor * found.symbol, (Read(found.symbol.name, name, axes), *reads))


# -- what rules ask --------------------------------------------------------------------------


def _alone(plan: Plan, name: str) -> bool:
    """Return whether one quantity alone reads another, which is no end of the plan."""
    return plan.graph.out_degree(name) == 1 and not plan.is_end(name)


def _loaded(plan: Plan, name: str) -> bool:
    return plan[name].op == Given()
