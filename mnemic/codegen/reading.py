"""The read-out alone: what a memory says to a query before anything is written.

It needs no plan of its own. A recurrent plan reads the states that follow a token; with every
following state taken for the state itself, and a token without a value and a bonus (which weighs
the token's own pair), the same statements read the memory as it stands.
"""

from dataclasses import dataclass, field, replace

from mnemic.codegen.plan import Call, Fused, Given, Map, Op, Plan, Product, Read

WRITTEN = frozenset({"k", "v", "predict", "erase", "write", "carry"})
"""Arguments that a token writes."""

OWN = frozenset({"v", "bonus"})
"""Arguments without which a read-out says nothing of the token's own pair."""


def reading(token: Plan) -> Plan | None:
    """Plan M(W, φ(q)) from a token's plan and its carried states; None where it needs a write."""
    standing = {after: state for state, after in token.following.items()}
    found = _Reading(token, standing)
    for quantity in token.ordered():
        found.name_of(quantity.name)
    output = found.name_of(token.output)
    if output is None:
        return None
    found.plan.output = output
    return None if WRITTEN & set(found.plan.arguments()) else found.plan


@dataclass
class _Reading:
    """Carries quantities over; one that vanishes has no name."""

    token: Plan
    standing: dict[str, str]
    plan: Plan = field(default_factory=Plan)
    names: dict[str, str | None] = field(default_factory=dict)

    def name_of(self, name: str) -> str | None:
        """Return the name of a quantity in the new plan, ``None`` where it vanishes."""
        name = self.standing.get(name, name)
        if name not in self.names:
            self.names[name] = self._carried(name)
        return self.names[name]

    def _carried(self, name: str) -> str | None:
        quantity = self.token[name]
        found: Op | str | None
        match quantity.op:
            case Given(state=state):
                return None if name in OWN else self.plan.given(name, quantity.axes, state=state)
            case Map():
                found = self._mapped(quantity.op)
            case Call(function="total", arguments=(rows,)) if self.name_of(rows) is None:
                return None
            case _:
                found = self._renamed(quantity.op)
        if found is None or isinstance(found, str):
            return found
        return self.plan.add(name, quantity.axes, found, quantity.equation)

    def _mapped(self, op: Map) -> Map | str | None:
        """Return a map without what vanishes, or the one quantity that is left, if any is."""
        named = {read.symbol: self.name_of(read.quantity) for read in op.reads}
        gone = {x: 0 for x in op.expr.free_symbols if named.get(x.name, x) is None}
        expr = op.expr.subs(gone) if gone else op.expr
        if expr == 0:
            return None
        if gone and expr.is_Symbol:
            return named[expr.name]
        left = {symbol.name for symbol in expr.free_symbols}
        kept = (read for read in op.reads if read.symbol in left)
        return Map(expr, tuple(_renamed(read, named[read.symbol]) for read in kept))

    def _renamed(self, op: Op) -> Op:
        match op:
            case Product():
                return replace(op, left=self._needed(op.left), right=self._needed(op.right))
            case Call():
                return replace(op, arguments=tuple(map(self._needed, op.arguments)))
            case Fused():
                product = self._renamed(op.product)
                assert isinstance(product, Product)
                return replace(op, addend=self._needed(op.addend), product=product)
            case _:
                raise AssertionError(op)

    def _needed(self, name: str) -> str:
        """Return the name of what an operation cannot do without, declared where it vanishes."""
        return self.name_of(name) or self.plan.given(name, self.token.axes(name))


def _renamed(read: Read, name: str | None) -> Read:
    assert name is not None
    return replace(read, quantity=name)
