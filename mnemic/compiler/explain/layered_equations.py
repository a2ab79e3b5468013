"""Equations of a memory of layers, or behind O, intervals or norms: how every matrix moves.

S_t = θ S_{t−1} − η G_t        A_t = decay ∘ A_{t−1} + gain·O(S_t)        W_t = link(A_t)

for each matrix by itself. A matrix that is updated every C tokens accumulates S (which without
momentum is reset after each update), and in between A decays while W stays fixed. Norms, and a
retention that acts on W itself, are applied at chunk ends, or without an anchor at every update of
the matrix. An optimizer that acts entry by entry has running averages in place of S
(``average_equations``).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import sympy as sp

from mnemic.compiler.explain.average_equations import means, step, title
from mnemic.compiler.explain.dialect import Dialect
from mnemic.compiler.explain.memory_equations import link, mirrored, seen_memory
from mnemic.compiler.explain.network_equations import NetworkEquations, Place
from mnemic.compiler.explain.notation import acted, feature, role_key, with_value
from mnemic.compiler.network import Matrix
from mnemic.compiler.rule import Layers, Rule
from mnemic.compiler.symbolic import simplified

Lines = Iterator[tuple[str, str]]


def layered(rule: Layers, d: Dialect) -> Lines:
    """Yield the rule's lines in order; the first that names W_ref says which memory that is."""
    told, mark = rule.anchor == 1, d.sign("ᵣ", "ref")
    for name, line in _lines(rule, d):
        names = not told and mark in line
        told = told or names
        yield name, line + (reference(rule, d) if names else "")


def _lines(rule: Layers, d: Dialect) -> Lines:
    layers = NetworkEquations(rule.network, d)
    if not rule.network.linear:
        yield from memory(rule, d)
    seen = "ref" if rule.anchor > 1 else "t-1"
    if not rule.error.constant:
        yield "prediction", _prediction(rule, d)
    if rule.seen != 1 and rule.anchor == 1 and not rule.network.linear:
        yield "seen", _seen(rule, d)
    yield "error", _error(rule, d)
    yield from _gradients(rule, d, layers, seen)
    for group in groups(rule):
        yield from _Moves(rule, d, group).lines()
    if rule.kernels is not None:
        yield from (("rows", _rows(rule, layers, d, m)) for m in rule.network.matrices
                    if m.columns == "D")  # fmt: skip
    yield "read-out", _readout(rule, d)


# -- M, and what is seen of it -----------------------------------------------------------------


def memory(rule: Rule, d: Dialect) -> Lines:
    """Yield M(W, x) = …, one line a memory of a chain, then its activations."""
    layers = NetworkEquations(rule.network, d)
    place = Place("x", feature(rule, d, "x"), "", "")
    shown = []
    for name, formula in layers.formula(place):
        left = layers.named(name, "") if name else "M(W, x)"
        shown.append(f"{left} = {formula}")
    shown[-1] = _joined(d, [shown[-1], *layers.definitions()])
    yield from (("network", line) for line in shown)


def reference(rule: Rule, d: Dialect) -> str:
    """Write what the index of W_ref means; nothing without an anchor."""
    if rule.anchor == 1:
        return ""
    b = rule.anchor
    return d.sign(f",  r = {b}⌊(t − 1)/{b}⌋",
                  rf",\quad \mathrm{{ref}} = {b}\lfloor (t - 1)/{b}\rfloor")  # fmt: skip


def _index(rule: Rule) -> str:
    return "i" if rule.window > 1 else "t"


def _prediction(rule: Rule, d: Dialect) -> str:
    index = _index(rule)
    key = role_key(rule, d, "predict", index)
    if rule.network.linear:
        seen = d.of("W", "ref")
        if rule.anchor == 1:
            held = rule.network.matrices[0].every > 1
            seen = d.of("W", "t-1") if held else seen_memory(rule, d, sp.Integer(1))
        shown = f"{seen} {feature(rule, d, key)}"
    else:
        shown = f"M({d.of('W', 'ref' if rule.anchor > 1 else 't-1')}, {key})"
    return f"{d.of('y^', index)} = {shown}"


def _seen(rule: Rule, d: Dialect) -> str:
    """Write that under ``order: before`` W_{t−1} stands for the memory that has decayed already."""
    plain = rule.retained.mode == "dual" and rule.retained.link.identity
    old = d.of("W" if plain else "A", "t-1")
    shown = d.factor(rule.seen) + old
    shown = shown if plain else d.call("link", shown)
    told = f"{d.of('W', 't-1')} {d.sign('stands for', chr(92) + 'text{ stands for }')} {shown}"
    moving = [m.name for m in rule.network.matrices if m.every == 1]
    some = len(moving) < len(rule.network.matrices)
    return told + (_of_matrices(d, moving) if some else "")


def _error(rule: Rule, d: Dialect) -> str:
    signal = d.expr(rule.error.signal)
    signal = signal if rule.window == 1 else d.at_each(signal)
    return f"{d.of('e', _index(rule))} = {signal}{with_value(rule, d)}"


# -- the gradient ------------------------------------------------------------------------------


def _gradients(rule: Rule, d: Dialect, layers: NetworkEquations, seen: str) -> Lines:
    """Write the layers at the key, the chain rule, and each matrix's G."""
    index = _index(rule)
    if rule.network.linear:
        key = d.flipped(feature(rule, d, role_key(rule, d, "write", index)))
        yield "gradient", f"{d.of('G')} = {_summed(rule, d, d.of('e', index) + ' ' + key)}"
        return
    key = role_key(rule, d, "predict", index)
    place = Place(key, feature(rule, d, key), index, seen)
    lines, outer = layers.chain_rule(place)
    if named := layers.layers(place):
        yield "layers", _joined(d, named)
    yield "chain rule", _joined(d, lines)
    parts = [
        f"{layers.named('G' + name.removeprefix('W'), 't')} = "
        f"{_summed(rule, d, f'{rows} {d.flipped(keys)}')}"
        for name, (rows, keys) in sorted(outer.items())
    ]
    yield "gradient", _joined(d, parts)


def _summed(rule: Rule, d: Dialect, body: str) -> str:
    whole = d.factor(rule.weight)  # where the rate cannot hold it
    if rule.window == 1:
        return whole + body
    gate = "" if rule.gamma is None else d.of("gamma", "i") + " "
    return whole + d.windowed(gate + body, rule.window)


# -- how matrices move -------------------------------------------------------------------------


def groups(rule: Rule) -> tuple[tuple[Matrix, ...], ...]:
    """Return the matrices by the tokens between their moves, the fastest first."""
    every = sorted({m.every for m in rule.network.matrices})
    return tuple(tuple(m for m in rule.network.matrices if m.every == n) for n in every)


@dataclass(frozen=True)
class _Moves:
    """The equations of those matrices that are updated together."""

    rule: Rule
    d: Dialect
    matrices: tuple[Matrix, ...]

    @property
    def every(self) -> int:
        """The number of tokens between updates."""
        return self.matrices[0].every

    @property
    def acts(self) -> int:
        """The number of tokens after which norms, and a retention on W itself, are applied."""
        return max(self.rule.anchor, self.every)

    @property
    def plain(self) -> bool:
        """Whether the memory is its own dual."""
        return self.rule.retained.mode == "dual" and self.rule.retained.link.identity

    @property
    def keeps_dual(self) -> bool:
        """Whether A changes at tokens at which W does not."""
        return not self.plain or (self.every > 1 and self.rule.decay != 1)

    @property
    def letter(self) -> str:
        """The letter of the state to which steps are added."""
        return "A" if self.keeps_dual else "W"

    @property
    def free(self) -> bool:
        """Whether the retention acts on W at every token."""
        return self.rule.retained.mode == "prox" and self.acts == 1

    def lines(self) -> Lines:
        """Yield the lines of S, A or W, norms and link, naming the matrices if others differ."""
        some = len(self.matrices) < len(self.rule.network.matrices)
        of = _of_matrices(self.d, [m.name for m in self.matrices]) if some else ""
        yield from ((name, line + of) for name, line in self._all())

    def _all(self) -> Lines:
        rule, d = self.rule, self.d
        gathers = self.every > 1
        if rule.applied.elementwise:
            yield from means(rule, d)
        elif rule.momentum is not None or gathers:
            yield "momentum" if rule.momentum is not None else "steps", self._momentum()
        if gathers:
            yield from self._held()
        else:
            name = "dual" if self.keeps_dual else "memory"
            yield name, f"{d.of(self.letter)} = {self._retain()} {self._step()}"
        if rule.applied.normalize != "none":
            yield "norms", self._norms()
        if self.keeps_dual:
            yield from self._link()
        if rule.retained.mode == "prox" and not self.free:
            yield "retention", taken_back(rule, d, self.acts)

    def _link(self) -> Lines:
        """Write W = link(A); for a matrix that is held, at its moves."""
        before, after = "", ""
        if self.every > 1:
            before, after = at_multiples(self.d, self.every), self._still()
        if self.plain:
            yield "link", f"{before}{self.d.of('W')} = {self.d.of('A')}{after}"
        yield from ((name, before + line + after) for name, line in link(self.rule, self.d))

    def _momentum(self) -> str:
        d, rule = self.d, self.rule
        theta = sp.Integer(1) if rule.momentum is None else rule.momentum
        rate = sp.Integer(1) if rule.applied.outside else rule.rate
        return (f"{d.of('S')} = {d.factor(theta)}{d.of('S', 't-1')} {d.minus} "
                f"{d.factor(rate)}{d.of('G')}")  # fmt: skip

    def _retain(self) -> str:
        d, rule = self.d, self.rule
        old = d.of(self.letter, "t-1")
        if self.free:
            old = mirrored(rule, d, d.of("W", "t-1"))
        return acted(rule, d, rule.decay, rule.row_decay, old)

    def _step(self) -> str:
        """Write ± gain·O(S): without momentum the step is −η G itself, and O is odd."""
        d, rule = self.d, self.rule
        outside = rule.rate if rule.applied.outside else sp.Integer(1)
        before = d.factor(simplified(rule.gain * outside))
        if rule.applied.elementwise:
            return step(rule, d, before)
        if rule.momentum is not None or self.every > 1:
            return f"+ {before}{self._through(d.of('S'))}"
        inside = sp.Integer(1) if rule.applied.outside else rule.rate
        if rule.applied.kind == "identity":
            return f"{d.minus} {d.factor(simplified(rule.gain * rule.rate))}{d.of('G')}"
        return f"{d.minus} {before}{self._through(d.factor(inside) + d.of('G'))}"

    def _through(self, step: str) -> str:
        name = step_map(self.rule, self.d)
        return f"{name}({step})" if name else step

    def _held(self) -> Lines:
        """Write how A decays at every token, and gets S added when the matrix is updated."""
        d, arrow, now = self.d, self.d.sign("←", r"\leftarrow"), self.d.of(self.letter)
        at = at_multiples(d, self.every)
        emptied = ""
        if self.rule.momentum is None:
            emptied = d.sign(", then ", r",\text{ then }") + f"{d.of('S')} {arrow} 0"
        if not self.keeps_dual:
            yield "memory", f"{at}{now} = {self._retain()} {self._step()}{emptied}{self._still()}"
            return
        yield "dual", f"{now} = {self._retain()}"
        yield "use", f"{at}{now} {arrow} {now} {self._step()}{emptied}"

    def _still(self) -> str:
        between = self.d.sign(";  between, ", r";\quad\text{between, }")
        return f"{between}{self.d.of('W')} = {self.d.of('W', 't-1')}"

    def _norms(self) -> str:
        d, side = self.d, self.rule.applied.normalize
        now, first = d.of(self.letter), d.sign(f"{self.letter}₀", f"{self.letter}_0")
        verb = "go back to their norms in"
        if self.rule.applied.centred:
            verb = "lose their means and go back to the spreads of those in"
        at = at_multiples(d, self.acts)
        if d.tex:
            return rf"{at}\text{{the {side} of }} {now} \text{{ {verb} }} {first}"
        return f"{at}the {side} of {now} {verb} {first}"


def step_map(rule: Rule, d: Dialect) -> str:
    """Return the name of O, nothing for the identity."""
    if rule.applied.kind == "newton-schulz":
        return d.sign(f"NS{rule.applied.steps}", rf"\mathrm{{NS}}_{{{rule.applied.steps}}}")
    return title(rule, d) if rule.applied.elementwise else ""


def taken_back(rule: Rule, d: Dialect, every: int) -> str:
    """Write that a retention on W itself acts at the ends of intervals: A ← ∇R(W)."""
    arrow = d.sign("←", r"\leftarrow")
    return f"{at_multiples(d, every)}{d.of('A')} {arrow} {mirrored(rule, d, d.of('W'))}"


def at_multiples(d: Dialect, every: int) -> str:
    """Write ``at t = 16, 32, …: ``; nothing for every token."""
    if every == 1:
        return ""
    return d.sign(f"at t = {every}, {2 * every}, …: ",
                  rf"\text{{at }} t = {every}, {2 * every}, \dots:\ ")  # fmt: skip


def _joined(d: Dialect, parts: list[str]) -> str:
    return d.sign(",  ", r",\quad ").join(parts)


def _of_matrices(d: Dialect, names: list[str]) -> str:
    if d.tex:
        return r"\quad (" + ", ".join(f"W_{{{n[1:]}}}" for n in names) + ")"
    return f"  ({', '.join(names)})"


# -- the read-out ------------------------------------------------------------------------------


def _rows(rule: Rule, layers: NetworkEquations, d: Dialect, matrix: Matrix) -> str:
    """Write a matrix behind a kernel: rows u over the kept keys, each begun by its own token."""
    total = d.sign("Σ_(i≤t)", r"\sum_{i \le t}")
    key, kappa = d.of("k", "i"), d.sign("κ", r"\kappa")
    dot = d.sign("·", r" \cdot ")
    shown = f"{total} {d.of('u', 'i')} {kappa}({key}{dot}x)"
    whole, delta = (layers.named(name, index) for name, index in
                    ((matrix.name, "t"), (f"δ{matrix.name.removeprefix('W')}", "i")))  # fmt: skip
    begun = d.sign(",  ", r",\quad ") + d.of("u", "i")
    if rule.window > 1 or rule.momentum is not None:
        begun += d.sign(" along ", r" \text{ along } ") + delta
    else:
        begun += f" = {d.minus}{d.factor(simplified(rule.gain * rule.rate))}{delta}"
        begun += d.sign(" at t = i, then as ", r" \text{ at } t = i \text{, then as } ") + whole
    return f"{whole} {d.call('phi', 'x')} = {shown}{begun}"


def _readout(rule: Rule, d: Dialect) -> str:
    where = rule.problem.spec.readout.memory
    index = {"after": "t", "before": "t-1", "anchor": "ref" if rule.anchor > 1 else "t-1"}[where]
    place = d.of("W", index)
    query = d.of("q")
    linear = f"{place} {feature(rule, d, query)}"
    return f"{d.of('y')} = " + (linear if rule.network.linear else f"M({place}, {query})")
