"""A memory before sliding-window attention: MAL."""

from collections.abc import Mapping

from torch import Tensor

from .hybrid import named, part
from .vectors import States
from .windowed import Windowed


class MemoryAsLayer(Windowed):
    """x̃ = [p₁ … p_P; x],  y = M(x̃),  o = SWA(y).

    The persistent tokens p are a document's first: the memory writes them, and what it says at
    them is a prefix that the attention's window never leaves behind.

    Source: Titans (Behrouz et al. 2025), section 4.3, (29)–(31); Atlas, section 5 and Figure 3.
    """

    def rows(
        self, x: Tensor, state: Mapping[str, Tensor], lengths: Tensor | None, form: str
    ) -> tuple[Tensor, States]:
        """Run rows of which the first ``lengths`` tokens count; all, where there are none."""
        first, own = self.seen(x, state), part(state, "attention")
        prefix = None if state else self.prefix(x)
        y, memory = self.remembered(x, part(state, "memory"), lengths, form, prefix)
        before = None if prefix is None else y[:, : prefix.shape[1]]
        o, attention = self.attention(y[:, y.shape[1] - x.shape[1] :], own, lengths, first, before)
        after = {**named(memory, "memory"), **named(attention, "attention")}
        return o, {**after, "tokens": first + (x.shape[1] if lengths is None else lengths)}
