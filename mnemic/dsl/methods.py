"""Optimizers by name; of those that act entry by entry, what they average and the step they take.

With g = −∇_W ℓ such an optimizer keeps running averages of expressions of g, or their sums, and
steps along an expression of g and of them:

    X_t = β X_{t−1} + (1 − β) x(g_t)        A_t = decay ∘ A_{t−1} + gain·η·step(g_t, X_t, X_{t−1})
    X_t = X_{t−1} + x(g_t)

The texts below are all that the package knows of one: its states, equations, forms, kernels, costs
and refusals follow from them. Expressions are written as in a spec, of ``g``, the averages' letters
(``S`` after the token, ``S_old`` before it), and coefficients of the optimizer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Method = Literal[
    "gd", "momentum", "implicit", "exact", "muon", "adam", "lion", "adagrad", "flow", "batch",
    "nonparametric",
]  # fmt: skip


@dataclass(frozen=True)
class Average:
    """X_t = β X_{t−1} + (1 − β) x(g_t), from zero; ``decay`` names β, ``of`` is x.

    Without a decay nothing is forgotten, and it is the sum X_t = X_{t−1} + x(g_t).
    A ``corrected`` one is divided by the weight that it has gathered, 1 − Πβ, where the step reads
    it: then its weights add up to one from the first token on.
    """

    state: str
    letter: str
    decay: str | None
    meaning: str
    of: str = "g"
    corrected: bool = False


@dataclass(frozen=True)
class Elementwise:
    """An optimizer whose step is an expression of each entry's gradient and its averages.

    ``says`` is what the documentation says of the method, ``because`` the end of a sentence on why
    a rate belongs outside the step, ``coefficients`` what each coefficient does, by its name, and
    ``options`` the options of the spec that it uses beside rate and momentum. A coefficient that a
    spec leaves out is zero.
    """

    title: str
    says: str
    because: str
    source: str
    averages: tuple[Average, ...]
    step: str
    coefficients: Mapping[str, str]
    options: tuple[str, ...]


ELEMENTWISE: Final[Mapping[str, Elementwise]] = {
    "adam": Elementwise(
        title="Adam",
        says="Ŝ/(√ŝ + ε), averages of g by θ and of g∘g by β₂",
        because="divides a gradient by its own size",
        source="Kingma and Ba, arXiv:1412.6980, algorithm 1",
        averages=(
            Average("S", "S", "theta", "momentum", corrected=True),
            Average("squares", "s", "beta2", "mean square of the gradient", "g**2", corrected=True),
        ),
        step="S/(sqrt(s) + epsilon)",
        coefficients={"theta": "momentum", "beta2": "decay of the gradients' mean square"},
        options=("beta2", "epsilon"),
    ),
    "lion": Elementwise(
        title="Lion",
        says="sign(θ S + (1 − θ) g), S the average of g by β₂ before the token",
        because="takes the sign of a gradient",
        source="Chen et al., arXiv:2302.06675, algorithm 2",
        averages=(Average("S", "S", "beta2", "momentum"),),
        step="sign(theta*S_old + (1 - theta)*g)",
        coefficients={
            "theta": "weight of the momentum in the step",
            "beta2": "decay of the momentum",
        },
        options=("beta2",),
    ),
    "adagrad": Elementwise(
        title="AdaGrad",
        says="g/(√s + ε), s the sum of g∘g",
        because="divides a gradient by the size of all that came",
        source="Duchi, Hazan and Singer, JMLR 12 (2011), figure 1 with diagonal matrices",
        averages=(Average("squares", "s", None, "sum of the squared gradients", "g**2"),),
        step="g/(sqrt(s) + epsilon)",
        coefficients={},
        options=("epsilon",),
    ),
}
"""The optimizers that act entry by entry, by the name of their method."""

NAMES: Final = tuple(ELEMENTWISE)

OPTIONS: Final = tuple(dict.fromkeys(o for e in ELEMENTWISE.values() for o in e.options))
"""Options of the optimizer that only these methods have."""


def options_of(method: str) -> tuple[str, ...]:
    """Return which of ``OPTIONS`` a method uses.

    >>> options_of("adam"), options_of("muon")
    (('beta2', 'epsilon'), ())
    """
    return ELEMENTWISE[method].options if method in ELEMENTWISE else ()


def have(option: str) -> tuple[str, ...]:
    """Return the methods that act entry by entry and have the given option.

    >>> have("epsilon")
    ('adam', 'adagrad')
    """
    return tuple(name for name in ELEMENTWISE if option in options_of(name))


def averages_by(method: str, coefficient: str) -> bool:
    """Return whether a coefficient is the decay of a corrected average, which stays 0 at 1."""
    if method not in ELEMENTWISE:
        return False
    return any(a.corrected and a.decay == coefficient for a in ELEMENTWISE[method].averages)


def listed(names: tuple[str, ...], word: str) -> str:
    """Return names as a list in a sentence.

    >>> listed(("gd", "muon", "adam"), "or")
    'gd, muon or adam'
    """
    return f"{', '.join(names[:-1])} {word} {names[-1]}"


_WORDS: Final[Mapping[str, str]] = {
    "gd": "by gradient steps",
    "momentum": "by gradient steps with momentum",
    "muon": "by orthogonalised gradient steps (Muon)",
    "implicit": "solved at every token",
    "exact": "solved over all tokens so far",
    "flow": "by gradient flow",
    "batch": "by gradient steps on all tokens so far",
    "nonparametric": "solved anew at every query",
}


def in_words(method: str) -> str:
    """Return how a method minimises.

    >>> in_words("momentum"), in_words("adam")
    ('by gradient steps with momentum', 'by Adam')
    """
    return _WORDS.get(method) or f"by {ELEMENTWISE[method].title}"
