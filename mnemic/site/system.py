"""A system as its page shows it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mnemic.dsl.spec import Spec


@dataclass(frozen=True)
class System:
    """A spec with its text, and what the compiler says of it.

    ``source`` is what a command names it by, ``text`` its YAML, ``facts`` its row of `mnemic list`
    (class, forms, state, costs), ``kernels`` what `mnemic check` says of fused kernels, ``derived``
    the derivation and the code (`mnemic.site.description`).
    """

    spec: Spec
    source: str
    text: str
    facts: Mapping[str, Any]
    kernels: tuple[Mapping[str, Any], ...]
    derived: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The spec's name, which its page is called after."""
        return self.spec.name

    @property
    def title(self) -> str:
        """The spec's title, or its name."""
        return self.spec.title or self.spec.name

    @property
    def paper(self) -> str:
        """Authors and year of its source; or nothing."""
        paper = self.spec.source.paper if self.spec.source else ""
        return paper.partition("), ")[0] + ")" if "), " in paper else paper
