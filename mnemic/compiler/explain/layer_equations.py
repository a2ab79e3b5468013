"""What a layer computes around its memory, as equations: vectors, output, attention beside it.

They continue the numbers of the rule's equations, whose y they read. M(x) is the whole memory,
from the vectors of its tokens to its output. Sources of the hybrids: Titans (Behrouz et al. 2025),
section 4, (21)-(31), which Atlas, section 5, takes up; ours are causal (docs/block.md).
"""

from collections.abc import Iterator

from mnemic.compiler import symbols as sym
from mnemic.compiler.explain.dialect import Dialect, dialect
from mnemic.compiler.explain.equations import Equation
from mnemic.compiler.explain.notation import role_letter
from mnemic.compiler.kernelised import KEY
from mnemic.compiler.rule import Rule
from mnemic.compiler.symbolic import read
from mnemic.dsl.block import Block
from mnemic.dsl.texts import activation

NAMED = {"q": "query", "v": "value"}
"""What the vectors are called; all others are keys."""


def layer_equations(rule: Rule, first: int) -> tuple[Equation, ...]:
    """Return the equations of a rule's layer, numbered from ``first``."""
    plain = list(_lines(rule, dialect(rule, tex=False)))
    tex = list(_lines(rule, dialect(rule, tex=True)))
    return tuple(
        Equation(i, name, shown, typeset)
        for i, ((name, shown), (_, typeset)) in enumerate(zip(plain, tex, strict=True), first)
    )


def layer_words(rule: Rule) -> tuple[str, ...]:
    """Say what the equations of a rule's layer do not define."""
    block = rule.problem.spec.block
    found = ["W with a small letter: a learned matrix of the layer."]
    if block.convolution:
        found.append(f"conv: each channel by itself, over the last {block.convolution} tokens.")
    if block.qk_norm == "l2" or rule.problem.spec.keys.carry is not None:
        found.append("unit(u) = u / ‖u‖, a head at a time.")
    if block.output_norm == "rms" or block.hybrid in ("context", "gate"):
        found.append("rms(u): u over the root of its mean square, times learned weights.")
    if block.rotary:
        found.append("rot turns pairs of channels by angles that grow with the token's number.")
    if block.hybrid != "none":
        found.append("Attention has heads of its own, with q̄, k̄ and v̄ linear in what it sees.")
    if block.hybrid == "context":
        found.append("Mₛ(xₜ): the memory as it was after token s, read by xₜ's query.")
    if block.persistent:
        found.append("p are learned tokens.")
    return tuple(found)


def _lines(rule: Rule, d: Dialect) -> Iterator[tuple[str, str]]:
    block = rule.problem.spec.block
    match block.hybrid:
        case "none":
            yield from _memory(rule, d, "x", "o")
        case "gate":
            yield "tokens", _prefixed(block, d, "x")
            yield from _memory(rule, d, _tilde(d), "m")
            yield "attention", _attended(block, d, "a", _tilde(d), _window(block, d))
            yield "output", f"{d.of('o')} = {_gated(d)}"
        case "layer":
            yield "tokens", _prefixed(block, d, "x")
            yield from _memory(rule, d, _tilde(d), "m")
            yield "output", _attended(block, d, "o", "m", _window(block, d))
        case "context":
            yield from _context(rule, d)


def _context(rule: Rule, d: Dialect) -> Iterator[tuple[str, str]]:
    """Write how the memory as it stood before a segment is read into the segment's attention."""
    block = rule.problem.spec.block
    last = f"s+{block.segment}"
    yield "segment", d.sign(f"s < t ≤ {last}", rf"s < t \le {last}")
    yield "context", f"{d.of('h')} = {d.sign('Mₛ(xₜ)', 'M_s(x_t)')}"
    learned = "p, " if block.persistent else ""
    seen = d.sign(f"{learned}h_j, x_j; s < j ≤ t", rf"{learned}h_j, x_j;\ s < j \le t")
    yield "attention", _attended(block, d, "a", None, seen)
    yield from _memory(rule, d, "a", "m")
    yield "output", f"{d.of('o')} = {_gated(d)}"


# -- the memory ------------------------------------------------------------------------------


def _memory(rule: Rule, d: Dialect, tokens: str, out: str) -> Iterator[tuple[str, str]]:
    """Yield the vectors from tokens, and the output of a memory's read-out y."""
    for name, text in _activations(rule).items():
        yield NAMED.get(name, "key"), _vector(rule, d, name, text, tokens)
    yield ("output" if out == "o" else "answer"), f"{d.of(out)} = {_output(rule, d, tokens)}"


def _activations(rule: Rule) -> dict[str, str]:
    """Return the text of the activation of each vector that the rule reads."""
    spec, problem = rule.problem.spec, rule.problem
    idle = {"predict", "erase"} if getattr(rule, "error", None) and rule.error.constant else set()
    roles = {r: x for r, x in problem.keys.items() if r not in idle}
    own = [r for r in roles if (key := getattr(spec.keys, r, None)) is not None and key.own]
    named = {"q": spec.block.query, "k": spec.block.key, "v": spec.block.value}
    seen = set().union(*(x.free_symbols for x in roles.values()))
    keyed = KEY in seen or getattr(spec.memory, "slots", None) is not None
    names = ["q", *(["k"] if keyed else []), "v", *own]
    return {n: named.get(n, spec.block.key) or spec.block.activation for n in names}


def _vector(rule: Rule, d: Dialect, name: str, text: str, tokens: str) -> str:
    """Write how one vector of the rule is made of the tokens."""
    block = rule.problem.spec.block
    letter = name if name in "qkv" else role_letter(name)
    if read(activation(text), {"x": sym.x}).is_number:
        return f"{d.of(letter)} = {d.expr(read(activation(text), {'x': sym.x}))}"
    inner = f"{_matrix(letter)} {tokens}"
    if block.convolution:
        shown = d.call("conv", inner) + d.sign("ₜ", "_t")
    else:
        shown = inner + d.sign("ₜ", "_t")
    shown = _activated(d, text, shown)
    if name != "v" and (block.qk_norm == "l2" or name == "carry"):
        shown = d.call("unit", shown)
    if name != "v" and block.rotary in (True, "memory"):
        shown = d.call("rot", shown)
    if name == "q" and block.scale is not None:
        shown = f"{block.scale:g} {shown}"
    return f"{d.of(letter)} = {shown}{_defined(d, text)}"


def _activated(d: Dialect, text: str, argument: str) -> str:
    """Write an activation of an argument, by its name, or as f where it is an expression."""
    if activation(text) == "x":
        return argument
    return d.call(text if text.isidentifier() else "f", argument)


def _defined(d: Dialect, text: str) -> str:
    """Write what f is in a line, where its activation is an expression."""
    if activation(text) == "x" or text.isidentifier():
        return ""
    shown = d.expr(read(activation(text), {"x": sym.x}))
    comma = d.sign(",  ", r",\quad ")
    return f"{comma}{d.call('f', 'x')} = {shown}"


def _output(rule: Rule, d: Dialect, tokens: str) -> str:
    """Write a layer's output from the rule's read-out y."""
    block = rule.problem.spec.block
    shown = d.call("rms", d.of("y")) if block.output_norm == "rms" else d.of("y")
    gate, where = block.gate, ""
    if gate != "none" and read(activation(gate), {"x": sym.x}) != 1:
        at = d.sign("ₜ", "_t")
        gated = _activated(d, gate, f"{_matrix('g')} {tokens}{at}")
        shown, where = d.wrapped(f"{shown}{d.times}{gated}"), _defined(d, gate)
    skip = f" + D{d.times}{tokens}{d.sign('ₜ', '_t')}" if block.skip else ""
    return f"{_matrix('o')} {shown}{skip}{where}"


def _matrix(letter: str) -> str:
    """Write the projection of a vector."""
    return f"W_{letter}"


# -- attention -------------------------------------------------------------------------------


def _tilde(d: Dialect) -> str:
    return d.sign("x̃", r"\tilde x")


def _prefixed(block: Block, d: Dialect, tokens: str) -> str:
    """Write the tokens behind the learned ones."""
    count = block.persistent
    if not count:
        return f"{_tilde(d)} = {tokens}"
    dots = d.sign("…", r"\dots")
    learned = ", ".join(
        ["p_1", *([dots] if count > 2 else []), *([f"p_{count}"] if count > 1 else [])]
    )
    whole = f"{tokens}_1, {dots}, {tokens}_T"
    return f"{_tilde(d)} = " + d.sign(f"[{learned}; {whole}]", rf"[{learned};\ {whole}]")


def _window(block: Block, d: Dialect) -> str:
    """Write which tokens sliding-window attention sees."""
    assert block.attention_window is not None
    since = f"t{d.minus}{block.attention_window - 1}"
    learned = "p; " if block.persistent else ""
    return learned + d.sign(f"{since} ≤ j ≤ t", rf"{since} \le j \le t")


def _attended(block: Block, d: Dialect, out: str, tokens: str | None, seen: str) -> str:
    """Write softmax attention over what a token sees, its vectors linear in ``tokens``."""
    turned = block.rotary in (True, "attention")
    q, k, v = (d.sign(f"{x}\u0304", rf"\bar {x}") for x in "qkv")
    q, k = (d.call("rot", x + d.sign(i, "_" + j)) if turned else x + d.sign(i, "_" + j)
            for x, i, j in ((q, "ₜ", "t"), (k, "_j", "j")))  # fmt: skip
    product = d.sign(f"{q}·{k} / √d", rf"{q} \cdot {k} / \sqrt d")
    weights = d.sign(f"softmax_j({product})", rf"\operatorname{{softmax}}_j({product})")
    over = d.sign(f"Σ_(j: {seen})", rf"\sum_{{j:\ {seen}}}")
    of = "" if tokens is None else d.sign(f"  (of {tokens})", rf"\quad (\text{{of }} {tokens})")
    return f"{d.of(out)} = {_matrix('a')} {over} {weights} {v}_j{of}"


def _gated(d: Dialect) -> str:
    """Write y ⊗ m: attention's output, the memory's as its gate."""
    gate = d.sign("σ", r"\sigma")
    return f"{d.call('rms', d.of('a'))}{d.times}{gate}({d.call('rms', d.of('m'))})"
