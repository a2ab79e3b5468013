"""The data that a generated module declares for its layer: block and learned coefficients."""

from dataclasses import dataclass, replace

from .pickled import Pickled

HEAD = 64
"""Channels of a head where the spec does not say."""


@dataclass(frozen=True)
class Block(Pickled):
    """The block around a rule, as the spec has it; ``None`` where the size follows from dim."""

    heads: int | None = None
    key_dim: int | None = None
    value_dim: int | None = None
    groups: int = 1
    """Query heads for each key head."""
    convolution: int = 4
    """Taps; 0 leaves it out."""
    qk_norm: str = "l2"
    scale: float | None = None
    output_norm: str = "rms"
    rotary: bool = False
    skip: bool = False
    """Whether D ∘ x is added to y, D learned."""

    def resized(self, heads: int | None, key_dim: int | None, value_dim: int | None) -> "Block":
        """Return the block with the sizes that are given in place of its own."""
        for name, size in (("heads", heads), ("key_dim", key_dim), ("value_dim", value_dim)):
            if size is not None:
                _at_least_one(name, size)
        return replace(
            self,
            heads=heads or self.heads,
            key_dim=key_dim or self.key_dim,
            value_dim=value_dim or self.value_dim,
        )

    def sizes(self, dim: int, *, square: bool, pairs: bool = False) -> "Sizes":
        """Return the sizes at ``dim`` channels; ``square`` needs d_k = d_v, ``pairs`` d_v = 2·d_k.

        Heads are dim / value_dim, or dim / 64, and at least one; a head's keys and values share
        out the channels.
        """
        _at_least_one("dim", dim)
        heads = self.heads or max(1, dim // (self.value_dim or HEAD))
        even = max(1, dim // heads)
        times, tied = (2, True) if pairs else (1, square)
        told = times * self.key_dim if tied and self.key_dim else None
        value = self.value_dim or told or max(times, even - even % times)
        key = self.key_dim or (value // times if tied else even)
        if heads % self.groups:
            raise ValueError(f"heads must be a multiple of groups; read {heads} and {self.groups}")
        if tied and times * key != value:
            need = "value_dim = 2·key_dim" if pairs else "key_dim = value_dim"
            raise ValueError(f"{need} is needed; read {key} and {value}")
        if self.rotary and key % 2:
            raise ValueError(f"rotary positions need an even key_dim; read {key}")
        return Sizes(heads, heads // self.groups, key, value)


def _at_least_one(name: str, size: object) -> None:
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise ValueError(f"{name}: read {size!r}, a whole number of at least 1 is needed")


@dataclass(frozen=True)
class Beside(Pickled):
    """The attention that a hybrid layer has beside its memory, as the spec describes it."""

    window: int | None = None
    """Tokens that a query sees, its own too."""
    segment: int | None = None
    """Tokens of a segment, within which a memory as context attends."""
    persistent: int = 0
    """Learned tokens before all others, which every query sees."""
    rotary: bool = False


@dataclass(frozen=True)
class Sizes(Pickled):
    """Query heads, key heads H, and a head's d_k and d_v."""

    heads: int
    key_heads: int
    key_dim: int
    value_dim: int


@dataclass(frozen=True)
class Learned(Pickled):
    """A coefficient that a layer computes or learns, described before its activation."""

    name: str
    argument: str
    """The operator's argument that it becomes."""
    origin: str
    """``input``: an affine map of x; ``parameter``: a number for each head or channel."""
    start: tuple[float, float]
    """The range over heads and channels in which it starts."""
