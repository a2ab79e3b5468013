"""A rule in plain words, for a reader who has met neither fast weights nor test-time training."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from mnemic.compiler.explain.equations import Equation, equations
from mnemic.compiler.explain.layer_equations import layer_equations
from mnemic.compiler.rule import KeyValuePairs, Moments, Rule

WIDTH: Final = 80

LINES: Final = {
    "network": "The memory as a function: its layers, and the activation between them.",
    "kernel": "How alike two keys are: what stands for their product, since the features of this "
    "kernel would be infinitely many.",
    "slots": "A companion memory of the keys: a query first finds out which slots it means.",
    "seen": "The memory that predictions and gradients see: what is left of the last one.",
    "prediction": "What the memory, as it stands, answers when it is asked for this token's key.",
    "error": "How the inner loss changes with that answer: how wrong it is, and which way.",
    "layers": "What each layer of the memory makes of the key on the way to its answer.",
    "chain rule": "The error taken back through the layers: what each of them has to do with it.",
    "gradient": "The change of the memory that would raise the loss fastest; the memory goes the "
    "other way.",
    "momentum": "An average of the last tokens' gradients: one surprise goes on working for some "
    "tokens.",
    "means": "The running means, corrected for having begun at zero.",
    "steps": "Steps are gathered here until the memory takes them.",
    "use": "When the gathered steps are taken.",
    "dual": "What is kept from token to token is not the memory itself but its dual, in which a "
    "step is a plain sum.",
    "link": "The memory that belongs to that dual: where the retention's cost is least.",
    "memory": "The new memory: what is left of the old one, and what this token adds to it.",
    "retention": "What the retention takes back where the memory moves.",
    "norms": "The memory's lines go back to a size that they keep, so that none grows without end.",
    "rows": "The memory as it is kept: the keys that were seen, and what each of them leads to.",
    "moments": "Sums over all pairs so far; the best memory for the past follows from them alone.",
    "normaliser": "How much has been written along each feature, so that an answer is an average.",
    "keys": "The kept keys are moved by later tokens.",
    "weights": "How much each kept pair counts for this query.",
    "levels": "Several memories side by side, of spans that double: near tokens one by one, far "
    "ones together.",
    "read-out": "What the memory answers to the query.",
    "tokens": "Learned tokens stand before the text, and are there at every token.",
    "segment": "The text is cut into segments; t is a token of the one behind token s.",
    "context": "What the memory, as it stood before this segment, has to say about each token.",
    "attention": "Softmax attention over what stands below the sum: how much each of them counts.",
    "query": "What the memory is asked: a learned function of the token, and with conv of the "
    "few before it.",
    "key": "Under what a value is kept; learned likewise.",
    "value": "What is kept; learned likewise.",
    "answer": "The memory's answer, taken back to the width of the layer.",
    "output": "What the layer passes on to the rest of the model.",
}
"""What a numbered equation says, by its name; an optimizer's averages and sums tell their own."""

UNMOVED: Final = (
    "How the inner loss changes with the memory's answer: always in the same way, whatever the "
    "memory holds, so that it need not be asked before it is written to."
)
"""What the error says where it does not see the memory."""

CLASSES: Final = {
    "additive": "What a token writes does not depend on what the memory holds, so that a whole "
    "chunk of tokens is written by a few matrix products.",
    "affine": "What a token writes depends on the memory linearly, so that a chunk of tokens is "
    "written at once, after one triangular system.",
    "residual": "What a token writes depends on the memory, but not linearly; a chunk's errors "
    "are found together, from a triangular system that is not linear.",
    "frozen": "Gradients see a memory that stands still for a chunk, so that all tokens of a "
    "chunk are handled at once.",
    "kernelised": "The kernel has no finite features, so that the pairs themselves are kept, and "
    "work and memory grow with the text.",
    "second-order": "The best memory for all of the past is computed at every token, from sums "
    "of a fixed size.",
    "nonparametric": "Nothing is learned in advance of a query: it is answered from the kept "
    "pairs, and work and memory grow with the text.",
    "sequential": "Each token needs the memory that the one before it left, so that tokens run "
    "one after another.",
}
"""What a class means for running the rule."""


def words_of(rule: Rule) -> dict[str, str]:
    """Return what the equations of a rule say, by their names."""
    own = {a.equation: f"The {a.meaning}, of each entry by itself." for a in rule.applied.averages}
    constant = {"error": UNMOVED} if rule.structure.kind == "additive" else {}
    return {**own, **LINES, **constant}


def in_words(rule: Rule) -> str:
    """Return a rule in paragraphs: what the memory is, each equation with its meaning, the class.

    Raises KeyError for an equation or a class that has no words yet.
    """
    return "\n\n".join(_paragraphs(rule)) + "\n"


def _paragraphs(rule: Rule) -> Iterator[str]:
    title = rule.problem.spec.title
    yield _filled(f"{rule.name}{f' ({title})' if title else ''}, in words. {_opening(rule)}")
    found, words = equations(rule), words_of(rule)
    yield _explained(found, words)
    yield "Around the memory the layer computes:\n" + _explained(
        layer_equations(rule, len(found) + 1), words
    )
    structure = rule.structure
    yield _filled(f"How it runs: {structure.kind}. {CLASSES[structure.kind]}")


def _explained(found: Iterable[Equation], words: Mapping[str, str]) -> str:
    """Return equations, each first one of a name with what it says."""
    told, lines = set[str](), []
    for equation in found:
        lines.append(f"  ({equation.number}) {equation.text}")
        if equation.name not in told:
            lines.append(_filled(words[equation.name], "      "))
        told.add(equation.name)
    return "\n".join(lines)


def _opening(rule: Rule) -> str:
    """Say what this kind of memory is, before any equation."""
    begins = (
        "A sequence layer that gets from each token t a key kₜ, a value vₜ and a query qₜ, and "
        "gives back an answer yₜ."
    )
    match rule:
        case KeyValuePairs():
            rest = "It keeps the pairs of keys and values themselves, and looks them up."
        case Moments():
            rest = (
                "It keeps sums over the pairs so far, from which it computes the memory that fits "
                "all of them best."
            )
        case _:
            rest = (
                "It keeps a memory, a function from keys to values, and trains it while it reads: "
                "each token is an example, “this key has this value”, and moves the "
                "memory by a step against an inner loss. How much it forgets and how far it moves "
                "is told by coefficients, which the layer learns like any weights."
            )
    return f"{begins} {rest}"


def _filled(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )
