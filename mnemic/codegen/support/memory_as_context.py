"""A memory that attention sees as context, segment by segment: MAC."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from . import kept
from .attention import Attention, Keys
from .hybrid import Gate, Hybrid, named, part
from .outside import outside_graphs
from .vectors import States


class MemoryAsContext(Hybrid):
    """For each segment S of C tokens, with M the memory as it stood at the segment's start:

        h_i = M(q_i),  q of S                         read, nothing is written
        y_i = attention of S_i over p₁ … p_P, h_j and S_j, j ≤ i
        M_i = M_{i−1} after a step on k, v of y_i      by the rule, token by token
        o_i = y_i ⊗ M_i(q of y_i)                      with ⊗ as in ``Gate``

    The memory's two readings, of S and of y, share its projections; the convolution runs over
    each by itself. Rotary positions are those of [p; h; S]: p from 0, h from P, S from P + C.

    Titans writes attention over [p; h; S] of a whole segment, in which h_j, j > i, would tell
    token i what is still to come, and reads the memory after all of y. Here both are causal, so
    that a language model can be trained on every token and run one token at a time.

    Source: Titans (Behrouz et al. 2025), section 4.1, (21)–(25); named in Atlas, section 5.
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
        assert self.beside.segment is not None
        self.segment = self.beside.segment
        self.attention = Attention(dim, self.block, self.beside.rotary)
        self.gate = Gate(dim)

    def rows(
        self, x: Tensor, state: Mapping[str, Tensor], lengths: Tensor | None, form: str
    ) -> tuple[Tensor, States]:
        """Run rows of which the first ``lengths`` tokens count; all, where there are none."""
        anchored = self.signature.anchor > 1 and not torch.compiler.is_exporting()
        if state or lengths is not None or (anchored and torch.compiler.is_compiling()):
            return self._placed(x, state, lengths, form)
        return self._together(x, state, form, x[:, :1])

    @outside_graphs("carried positions and lengths are read, since they decide where segments of a "
                    "memory as context end")  # fmt: skip
    def _placed(
        self, x: Tensor, state: Mapping[str, Tensor], lengths: Tensor | None, form: str
    ) -> tuple[Tensor, States]:
        """Run rows apart that end, or stand, at different tokens: their segments differ."""
        offset = self.seen(x, state) % self.segment
        if lengths is None and not bool((offset != offset[:1]).any()):
            return self._together(x, state, form, x[:, :1])
        found = []
        for row in range(x.shape[0]):
            live = x.shape[1] if lengths is None else int(lengths[row])
            own = {name: s[row : row + 1] for name, s in state.items()}
            whole = x[row : row + 1]
            o, after = self._together(whole[:, :live], own, form, whole[:, :1])
            found.append((F.pad(o, (0, 0, 0, x.shape[1] - live)), after))
        states = kept.joined(self.rule.signature, [after for _, after in found])
        return torch.cat([o for o, _ in found]), states

    def _together(
        self, x: Tensor, state: Mapping[str, Tensor], form: str, opening: Tensor
    ) -> tuple[Tensor, States]:
        """Run rows that stand at the same token of a segment.

        ``opening`` is the token whose coefficients a memory may start from: padding, as in a
        memory by itself, where a row has no other.
        """
        first = self.seen(x, state)
        offset = int(first[0]) % self.segment if state and len(x) else 0
        run = _Segments(self, x, state, first, offset, form, opening)
        outs = [run.forward(low, high) for low, high in run.pieces()]
        return torch.cat(outs, 1) if outs else x, run.state()


class _Segments:
    """One call's way through the segments: what all tokens need at once, and what is carried."""

    def __init__(
        self, layer: MemoryAsContext, x: Tensor, state: Mapping[str, Tensor], first: Tensor,
        offset: int, form: str, opening: Tensor,
    ) -> None:  # fmt: skip
        self.layer, self.x, self.first, self.form = layer, x, first, form
        self.offset = offset
        self.memory = part(state, "memory") or self._begun(opening)
        self.start = part(state, "start") or self._standing()
        self.kept = part(state, "attention")
        self.q, self.query = layer.memory.vectors.queries(x, part(state, "query"))
        place = torch.arange(offset, offset + x.shape[1], device=x.device) % layer.segment
        self.place = (layer.beside.persistent + place).expand(x.shape[:2])
        attention = layer.attention
        self.queries = attention.queries(x, self.place + layer.segment)
        self.keys = attention.keys(x, self.place + layer.segment)
        self.fixed = self._fixed()

    def _begun(self, opening: Tensor) -> States:
        """Return the memory's state before a document's first token."""
        if self.x.shape[1]:
            return self.layer.memory.begin(opening)
        live = self.first if opening.shape[1] else None  # none of the padding counts
        return self.layer.memory.rows(opening, {}, live, self.form)[1]

    def _standing(self) -> States:
        """Return what a read needs of the memory as it stands now."""
        return {n: s for n, s in self.memory.items() if n in self.layer.rule.read_states}

    def _fixed(self) -> Keys:
        """Return the keys and values of the persistent tokens."""
        prefix = self.layer.prefix(self.x)
        if prefix is None:
            prefix = self.x[:, :0]
        position = torch.arange(prefix.shape[1], device=self.x.device).expand(prefix.shape[:2])
        return self.layer.attention.keys(prefix, position)

    def pieces(self) -> Iterator[tuple[int, int]]:
        """Yield where each piece of a segment starts, and the token behind its last."""
        low, tokens, size = 0, self.x.shape[1], self.layer.segment
        while low < tokens:
            high = min(tokens, low + size - (self.offset + low) % size)
            yield low, high
            low = high

    def forward(self, low: int, high: int) -> Tensor:
        """Compute o of the tokens from ``low`` up to ``high``, within one segment."""
        begun = (self.offset + low) % self.layer.segment
        if begun == 0:
            self.start, self.kept = self._standing(), {}
        h = self.layer.memory.read(self.x[:, low:high], self.q[:, low:high], self.start)
        of_memory = self._grown("h", self.layer.attention.keys(h, self.place[:, low:high]), begun)
        own = (self.keys[0][:, :, low:high], self.keys[1][:, :, low:high])
        of_tokens = self._grown("x", own, begun)
        keys = _joined(self.fixed, of_memory, of_tokens)
        read = self.layer.attention.read(
            self.queries[:, :, low:high], keys, self._seen(begun, high - low)
        )
        y = self.layer.attention.mixed(read)
        m, self.memory = self.layer.memory.rows(y, self.memory, None, self.form)
        return self.layer.gate(y, m)

    def _grown(self, name: str, new: Keys, begun: int) -> Keys:
        """Append to a segment's keys and values so far, and keep them for its later tokens."""
        grown = []
        for own, x in zip((f"{name}_k", f"{name}_v"), new, strict=True):
            before = self.kept[own][:, :, :begun].to(x) if begun else x[:, :, :0]
            grown.append(torch.cat([before, x], 2))
            missing = self.layer.segment - grown[-1].shape[2]
            self.kept[own] = F.pad(grown[-1], (0, 0, 0, missing))
        return grown[0], grown[1]

    def _seen(self, begun: int, tokens: int) -> Tensor:
        """Return a mask [tokens, P + 2 (begun + tokens)]: the persistent, h and S up to itself."""
        device = self.x.device
        query = torch.arange(begun, begun + tokens, device=device)[:, None]
        earlier = torch.arange(begun + tokens, device=device) <= query
        fixed = earlier.new_ones(tokens, self.layer.beside.persistent)
        return torch.cat([fixed, earlier, earlier], 1)

    def state(self) -> States:
        """Return the states that are carried on, by name."""
        if not self.kept:
            nothing = self.keys[0][:, :, :0], self.keys[1][:, :, :0]
            self._grown("h", nothing, 0)
            self._grown("x", nothing, 0)
        parts = {"memory": self.memory, "start": self.start, "query": self.query}
        found = {n: s for name, own in parts.items() for n, s in named(own, name).items()}
        found |= named(self.kept, "attention")
        return {**found, "tokens": self.first + self.x.shape[1]}


def _joined(*parts: Keys) -> Keys:
    """Join the keys, and the values, of several parts one after another."""
    k, v = (torch.cat([pair[i].to(parts[-1][i]) for pair in parts], 2) for i in (0, 1))
    return k, v
