"""A spec's chunk form against its token by token form."""

from collections.abc import Iterator

from mnemic.bench.report import Figure
from mnemic.bench.subject import Subject, ratio


def figures(name: str) -> Iterator[Figure | str]:
    """Forward, and forward with backward."""
    subject = Subject.named(name)
    forms = subject.compiled.operator.forms
    if "chunk" not in forms:
        yield f"{name} has no chunk form: {subject.compiled.rule.structure.reason}"
        return
    runs = {form: subject.form(form) for form in ("chunk", "recurrent")}
    yield ratio(f"{name}, chunk over token by token, forward", subject.forward(runs))
    yield ratio(f"{name}, chunk over token by token, forward+backward", subject.both(runs))
