"""A memory beside sliding-window attention: MAG."""

from collections.abc import Mapping

from torch import Tensor

from .hybrid import Gate, named, part
from .vectors import States
from .windowed import Windowed


class MemoryAsGate(Windowed):
    """x̃ = [p₁ … p_P; x],  y = SWA(x̃),  o = y ⊗ M(x̃), with ⊗ as in ``Gate``.

    Both branches see the persistent tokens p first: the attention as a prefix that no window
    leaves behind, the memory as a document's first tokens, which it writes.

    Source: Titans (Behrouz et al. 2025), section 4.2, (26)–(28); Atlas, section 5 and Figure 3.
    """

    def __init__(
        self,
        dim: int,
        *,
        heads: int | None = None,
        key_dim: int | None = None,
        value_dim: int | None = None,
    ) -> None:
        super().__init__(dim, heads=heads, key_dim=key_dim, value_dim=value_dim)
        self.gate = Gate(dim)

    def rows(
        self, x: Tensor, state: Mapping[str, Tensor], lengths: Tensor | None, form: str
    ) -> tuple[Tensor, States]:
        """Run rows of which the first ``lengths`` tokens count; all, where there are none."""
        first, own = self.seen(x, state), part(state, "attention")
        prefix = None if state else self.prefix(x)
        m, memory = self.remembered(x, part(state, "memory"), lengths, form, prefix)
        y, attention = self.attention(x, own, lengths, first, prefix)
        o = self.gate(y, m[:, m.shape[1] - x.shape[1] :])
        after = {**named(memory, "memory"), **named(attention, "attention")}
        return o, {**after, "tokens": first + (x.shape[1] if lengths is None else lengths)}
