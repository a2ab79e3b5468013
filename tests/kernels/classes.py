"""One spec of each structural class, for tests that cannot afford them all."""

from functools import cache

from packaged import FACTS, available

from mnemic import pipeline

KINDS = (
    "additive", "affine", "residual", "frozen", "kernelised", "second-order", "nonparametric",
    "sequential",
)  # fmt: skip


@cache
def kinds() -> dict[str, list[str]]:
    """The packaged specs that compile, by class."""
    found: dict[str, list[str]] = {}
    for name in available():
        (kind,) = (x for x in FACTS[name]["traits"] if x.startswith("class "))
        found.setdefault(kind.removeprefix("class "), []).append(name)
    return found


CHEAPER = {"frozen": "ttt-mlp", "additive": "gla"}
"""Where the first by name (three MLPs, one behind the other; features in many blocks) takes minutes
to interpret."""


@cache
def representative(kind: str) -> str:
    """Return the first spec of a class, by name, that has a kernel of chunks, or else of tokens.

    Fails where the class has none: every class has had kernels, and is not to lose them unseen.
    """
    if kind in CHEAPER:
        return CHEAPER[kind]
    of_tokens = ""
    for name in filter(fused, kinds()[kind]):
        if chunked(name):
            return name
        of_tokens = of_tokens or name
    assert of_tokens, f"no spec of class {kind} has a fused form"
    return of_tokens


def fused(name: str) -> bool:
    """Whether a spec has the fused form."""
    forms: tuple[str, ...] = pipeline.compile(name).operator.forms
    return "triton" in forms


def chunked(name: str) -> bool:
    """Whether a spec's chunk form has a kernel."""
    return "CHUNK = None" not in (pipeline.compile(name).folder / "kernels.py").read_text("utf-8")
