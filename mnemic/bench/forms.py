"""A spec's chunk form against its token by token form, on the arguments of a layer's start."""

from collections.abc import Iterator, Mapping
from typing import Any

from mnemic.bench.report import Figure
from mnemic.bench.subject import SIZES, Subject
from mnemic.compiler.oracle.samples import Sizes
from mnemic.pipeline import Compiled, compile

WAYS = ("forward", "forward+backward")


def figures(name: str) -> Iterator[Figure | str]:
    """Measure a spec's chunk form against token by token, forward and with backward."""
    found = measured(compile(name), SIZES.length)
    yield from compare_times(name, found)
    if "reason" in found:
        yield f"{name} has no chunk form: {found['reason']}"


def measured(compiled: Compiled, length: int) -> dict[str, Any]:
    """Time each form by way; return ``reason`` alone where there is no chunk form.

    A tree gets no more tokens than its levels hold.

    Raises:
        CheckFailed: the forms do not agree.
    """
    if "chunk" not in compiled.operator.forms:
        return {"reason": compiled.rule.structure.reason}
    length = compiled.operator.signature.at_most(length)
    sizes = Sizes(1, length, SIZES.heads, SIZES.key, SIZES.value)
    subject = Subject(compiled, sizes, started=True)
    runs = {form: subject.form(form) for form in ("chunk", "recurrent")}
    return dict(zip(WAYS, (subject.forward(runs), subject.both(runs)), strict=True))


def compare_times(name: str, found: Mapping[str, Any]) -> Iterator[Figure]:
    """Yield how many times faster the chunk form is, for each way that was timed."""
    for way in WAYS:
        if way in found:
            chunk, recurrent = found[way]["chunk"], found[way]["recurrent"]
            detail = f"chunk {chunk * 1e3:.1f} ms, recurrent {recurrent * 1e3:.1f} ms"
            what = f"{name}, chunk over token by token, {way}"
            yield Figure(what, recurrent / chunk, "x", detail)
