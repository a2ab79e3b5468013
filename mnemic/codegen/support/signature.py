"""What an operator takes and carries, as data of the generated module."""

from dataclasses import dataclass

from .pickled import Pickled
from .sizes import eval_size

Axes = str
"""Axes after [B, T, H]: ``""``, ``"k"`` (d_k), ``"K"`` (D features), ``"v"``, ``"c"``, ``"s"``
(slots), ``"l"`` (levels)."""


@dataclass(frozen=True)
class Coefficient(Pickled):
    """One argument of the operator: its name, meaning, shape after [B, T, H] (after [B, T, n, H]
    where each of n steps a token has its own), and range."""

    name: str
    meaning: str
    axes: Axes
    low: float
    high: float
    micro: bool = False
    """Whether each of several steps a token has its own."""
    same: bool = False
    """Whether it is the same at every token, and read off one of them."""
    inside: str = ""
    """Its name in the forms, where that is another one: the spec's own are told apart there."""
    above: bool = False
    """Whether it is larger than ``low``, never that number itself."""
    below: bool = False
    """Whether it is smaller than ``high``, never that number itself."""

    @property
    def parameter(self) -> str:
        """Its name in the forms."""
        return self.inside or self.name

    def __str__(self) -> str:
        last = {"": "", "k": ", d_k", "K": ", D", "v": ", d_v", "c": ", c", "s": ", m", "l": ", L"}[
            self.axes
        ]
        steps = ", n" if self.micro else ""
        shape = f"[B, T{steps}, H{last}]"
        ends = "(" if self.above else "[", ")" if self.below else "]"
        span = f"{ends[0]}{self.low:g}, {self.high:g}{ends[1]}"
        return f"{self.name} {shape}: {self.meaning}, in {span}"


@dataclass(frozen=True)
class State(Pickled):
    """One carried state: its name, its axes after [B, H], and what it is.

    An axis ``n`` counts kept pairs: such a state grows with the sequence. Where the rows of a batch
    kept different numbers, the first min(position·steps, span − 1) of each row are its own and the
    rest is padding.
    """

    name: str
    axes: str
    meaning: str
    identity: float = 0.0
    """Its start as a multiple of the unit matrix (zero elsewhere); what a kept number is where it
    is missing."""
    begins: bool = False
    """Whether it starts at its parameter (the dual of a deep memory)."""
    side: str = ""
    """The hidden width that its rows have in place of d_v."""
    of: str = ""
    """The parameter that it goes with: its shape is that matrix's, or of its rows or columns."""

    @property
    def kept(self) -> bool:
        """Whether the state has an entry for each kept pair."""
        return "n" in self.axes and set(self.axes) <= set("nkv")


@dataclass(frozen=True)
class Parameter(Pickled):
    """The initial dual of one matrix of a deep memory, [H, rows, columns].

    Sides are ``v`` (d_v), ``D`` (features), or a hidden width such as ``m2``.
    """

    name: str
    rows: str
    columns: str

    def __str__(self) -> str:
        return f"{self.name} [H, {self.rows}, {self.columns}]"


@dataclass(frozen=True)
class Signature(Pickled):
    """Everything about a rule that the operator needs to prepare its forms' arguments."""

    name: str
    coefficients: tuple[Coefficient, ...]
    states: tuple[State, ...]
    keys: tuple[str, ...]
    """Vectors beside q, k, v that are arguments: predict, erase, write."""
    forms: tuple[str, ...]
    steps: int = 1
    """Steps a token, each with its own key, value and rate."""
    inner: int = 1
    """Steps on the same token."""
    once: tuple[str, ...] = ()
    """Coefficients that act before the first of a token's steps only (decays)."""
    window: int = 1
    token_weights: bool = False
    banded: bool = False
    anchor: int = 1
    """Tokens a chunk, where the rule says how many: all its intervals are multiples."""
    diagonal: bool = False
    square: bool = False
    """Whether d_k = d_v is needed (a residual)."""
    phase: bool = False
    chunk: int = 64
    """Rows a chunk; 0 takes all that there are at once."""
    most_chunk: int = 0
    """Rows that a chunk has at most, whatever a call asks for; 0 for any number."""
    tolerance: float = 0.0
    """The relative residual at which a solver of the chunk and the fused form may stop."""
    slots: int = 0
    """Slots m between keys and values, in which the write keys live."""
    levels: int = 0
    """Levels L of the Fenwick tree whose buckets are read apart; 0 for one memory."""
    params: tuple[Parameter, ...] = ()
    """What a deep memory starts from."""
    widths: tuple[tuple[str, float], ...] = ()
    """Hidden widths of a layer's memory, in units of d_v."""
    started: tuple[str, ...] = ()
    """States that ``start`` gives."""
    features: str = "d"
    """D as an expression of d = d_k."""
    span: int = 0
    """The window c of kept pairs, of which c − 1 are carried; 0 keeps them all."""

    @property
    def complex(self) -> bool:
        """Whether the state is a vector of complex numbers, one a key channel, and so is the value:
        real parts before imaginary ones, d_v = 2·d_k."""
        return self.diagonal and self.phase

    @property
    def vectors(self) -> tuple[str, ...]:
        """The arguments that are vectors by row: q, k, v and what else a rule reads so."""
        return ("q", "k", "v", *self.keys)

    def shape(
        self, coefficient: Coefficient, heads: int, key_dim: int, value_dim: int
    ) -> tuple[int, ...]:
        """Return a coefficient's shape after [B, T], for H key heads of d_k and d_v."""
        last = {
            "": (), "k": (key_dim,), "K": (eval_size(self.features, key_dim),),
            "v": (value_dim,), "c": (self.window,), "s": (self.slots,), "l": (self.levels,),
        }[coefficient.axes]  # fmt: skip
        steps = (self.steps,) if coefficient.micro and self.steps > 1 else ()
        return (*steps, heads, *last)

    def values(self, key_dim: int, wanted: int) -> int:
        """Return d_v as wanted, or what must go with d_k."""
        return 2 * key_dim if self.complex else wanted

    def at_most(self, tokens: int) -> int:
        """Return so many tokens, or a document's most: L levels hold 2^(L − 1)."""
        return min(tokens, 1 << (self.levels - 1)) if self.levels else tokens

    @property
    def keeps_keys(self) -> bool:
        """Whether every key is kept, behind a kernel: ``K``."""
        return any(s.name == "K" and s.kept for s in self.states)
