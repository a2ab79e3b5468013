"""Rewrites of a finished plan: each is one rule, and leaves the values as they are."""

from dataclasses import replace

from mnemic.codegen.plan import Fused, Map, Plan, Product, Quantity


def fuse(plan: Plan) -> None:
    """Apply the rewrites until none fits."""
    for name in list(plan.graph):
        for rule in RULES:
            found = rule(plan, plan[name])
            if found is not None:
                plan.rewrite(found)
                break


def sum_of_product(plan: Plan, quantity: Quantity) -> Quantity | None:
    """Fuse a ± b, with b a product that nothing else reads; ``None`` for other quantities."""
    match quantity.op:
        case Map(expr=expr, reads=(first, second)) if expr.is_Add:
            pass
        case _:
            return None
    if any(read.axes != quantity.axes for read in (first, second)):
        return None
    for addend, product in ((first, second), (second, first)):
        inner = plan[product.quantity].op
        signs = {
            term: int(expr.coeff(term)) for term in expr.free_symbols if expr.coeff(term).is_Integer
        }
        found = {str(term): sign for term, sign in signs.items()}
        plain = found.get(addend.symbol) == 1 and abs(found.get(product.symbol, 0)) == 1
        alone = plan.graph.out_degree(product.quantity) == 1
        alone = alone and plan.is_carried(product.quantity)
        if plain and alone and isinstance(inner, Product) and not plan.is_end(product.quantity):
            op = Fused(addend.quantity, inner, found[product.symbol])
            return replace(quantity, op=op)
    return None


RULES = (sum_of_product,)
