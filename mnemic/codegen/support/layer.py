"""A compiled rule as a layer: vectors and coefficients from x, the rule, the read-out."""

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from . import kept_in, pool, step
from .arguments import fail
from .block import Block, Learned, Sizes
from .convolution import Counted
from .documents import Documents
from .norms import rms, widened
from .owned import check_apart
from .sequence import SequenceLayer
from .signature import Signature
from .sizes import eval_size
from .vectors import Activation, States, Vectors, projection


class MemoryLayer(SequenceLayer):
    """[B, T, dim] → [B, T, dim] around ``rule``; a generated module subclasses it.

    o = rule(q, k, v, coefficients), all from x; y = W_o (rms(o) ∘ σ(W_g x)), and D ∘ x with
    ``skip``.

    Args:
        dim: channels of x and y.
        heads, key_dim, value_dim: sizes in place of the spec's, or of what follows from dim.

    Raises:
        ValueError: sizes that do not go together.
    """

    block: ClassVar[Block]
    activations: ClassVar[Mapping[str, Activation]]
    """Of each vector (q, k, v, keys of their own), and of the output gate where there is one."""
    constant: ClassVar[Mapping[str, float]] = {}
    """Vectors that are the same everywhere, without a projection."""
    learned: ClassVar[tuple[Learned, ...]] = ()
    spread: ClassVar[float] = 0.0
    """The standard deviation of what a deep memory starts from; 0 takes 1/√columns."""
    linked: ClassVar[Any] = None
    """A deep memory from its start, where the link takes a power of the dual's size."""
    step_kernel: ClassVar[Callable[[], Any] | None] = None
    """The kernel of one token, prologue and all, imported when first asked for."""
    no_step: ClassVar[str] = ""
    """Why there is no kernel of one token."""

    def __init__(
        self,
        dim: int,
        *,
        heads: int | None = None,
        key_dim: int | None = None,
        value_dim: int | None = None,
    ) -> None:
        """Make the layer, with its weights as training begins.

        Args:
            dim: channels of x and y.
            heads, key_dim, value_dim: sizes in place of the spec's, or of what follows from dim;
                ``print(layer)`` shows them.
        """
        super().__init__()
        told, self.dim = self.rule.signature, dim
        block = self.block.resized(heads, key_dim, value_dim)
        square = told.diagonal or told.square
        self.sizes = sizes = block.sizes(dim, square=square, pairs=told.complex)
        self.vectors = Vectors(dim, told, self.block, sizes, self.activations, self.constant)
        self.shapes = {c.name: self._shape(c.argument) for c in self.learned}
        for coefficient in self.learned:
            self._declare(coefficient)
        self.start = nn.ParameterDict({
            name: nn.Parameter(drawn(shape, self.spread, self.linked))
            for name, shape in starts(told, sizes).items()
        })  # fmt: skip
        width = sizes.heads * sizes.value_dim
        normed, gated = self.block.output_norm == "rms", "gate" in self.activations
        self.norm_weight = nn.Parameter(torch.ones(sizes.value_dim)) if normed else None
        self.gate = projection(dim, width) if gated else None
        self.out = projection(width, dim)
        self.skip = nn.Parameter(torch.randn(dim)) if self.block.skip else None

    def extra_repr(self) -> str:
        """Return the rule's name and the sizes, for ``print(layer)``."""
        sizes = self.sizes
        widths = f"key_dim={sizes.key_dim}, value_dim={sizes.value_dim}"
        return f"{self.signature.name}, dim={self.dim}, heads={sizes.heads}, {widths}"

    @classmethod
    def grouped(cls) -> int:
        """Return the number of query heads for each key head."""
        return cls.block.groups

    # -- coefficients -----------------------------------------------------------------------

    def _shape(self, argument: str) -> tuple[int, ...]:
        """Return the shape of a coefficient, without the leading [B, T]."""
        told, sizes, found = self.rule.signature, self.sizes, self.rule.coefficients[argument]
        shape: tuple[int, ...] = told.shape(found, sizes.key_heads, sizes.key_dim, sizes.value_dim)
        return shape

    def _declare(self, coefficient: Learned) -> None:
        """Make the parameters behind a coefficient, so that it starts in its range."""
        size = torch.Size(self.shapes[coefficient.name]).numel()
        low, high = coefficient.start
        start = torch.linspace(low, high, size) if size > 1 else torch.tensor([(low + high) / 2])
        name = f"raw_{coefficient.name}"
        if coefficient.origin == "parameter":
            self.register_parameter(name, nn.Parameter(start))
            return
        affine = nn.Linear(self.dim, size)
        with torch.no_grad():
            affine.bias.copy_(start)
        self.add_module(name, affine)

    def raw(self, name: str, x: Tensor) -> Tensor:
        """Compute a coefficient before its activation, [B, T, H, …], in float32 at least."""
        source = getattr(self, f"raw_{name}")
        found: Tensor = widened(source if isinstance(source, Tensor) else source(x))
        shape = self.shapes[name]
        return found.reshape(*found.shape[:-1], *shape).expand(*x.shape[:2], *shape)

    def coefficients(self, x: Tensor) -> States:
        """Return what the rule takes beside its vectors, by name: generated layers tell."""
        return {}

    def params(self) -> States:
        """Return what a deep memory starts from, by its matrices' names, [H, rows, columns]."""
        return {name: widened(x) for name, x in self.start.items()}

    # -- calls ------------------------------------------------------------------------------

    def _check(self, x: Tensor, state: Any, mask: Tensor | None, cu_seqlens: Tensor | None) -> None:
        super()._check(x, state, mask, cu_seqlens)
        if not state:
            return
        needed = [s.name for s in self.signature.states]
        needed += ["convolution"] * bool(self.block.convolution) + ["tokens"] * self.block.rotary
        if missing := [name for name in needed if name not in state]:
            shown = f"read {', '.join(state)}; missing: {', '.join(missing)}"
            raise fail(self.signature, f"state: {shown}; give all that an earlier call returned")

    def rows(
        self, x: Tensor, state: Mapping[str, Tensor], lengths: Tensor | None, form: str
    ) -> tuple[Tensor, States]:
        """Run rows of which the first ``lengths`` tokens count; all, where there are none."""
        kernel = None if lengths is not None else step.chosen(self, x, state, form)
        if kernel is not None:
            return step.run(self, kernel, x, state)
        live = None
        if lengths is not None:
            live = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
        return self._ran(x, state, lengths, {"mask": live, "form": form})

    def packed(
        self, x: Tensor, state: Mapping[str, Tensor], ends: Tensor, form: str, *,
        ending: bool = True,
    ) -> tuple[Tensor, States]:  # fmt: skip
        """Run documents packed into one row, each with a state of its own if ``ending``."""
        documents = Documents.of(ends, x)
        options = {"cu_seqlens": ends, "form": form, "output_final_state": ending}
        return self._ran(x, state, documents, options)

    def _parts(
        self, x: Tensor, state: States, ends: tuple[int, ...], form: str
    ) -> tuple[Tensor, States, States]:  # fmt: skip
        """Run rows once, and return the states after ``ends`` tokens too, the rule run in parts."""
        at = (*ends, x.shape[1])
        vectors, after = self.vectors(x, state, None, at)
        kept = {name: s for name, s in state.items() if name not in ("convolution", "tokens")}
        y, last, states = self.rule(
            **vectors, **self.coefficients(x), form=form, initial_state=kept,
            output_final_state=True, params=self.params(), states_at=ends,
        )  # fmt: skip
        last = {**last, **{name: s[:, -1] for name, s in after.items()}}
        between = {**states, **{name: s[:, :-1] for name, s in after.items()}} if ends else {}
        return self._read_out(x, y), last, between

    def _ran(
        self, x: Tensor, state: Mapping[str, Tensor], counted: Counted, options: dict[str, Any]
    ) -> tuple[Tensor, States]:
        vectors, after = self.vectors(x, state, counted)
        kept = {name: s for name, s in state.items() if name not in ("convolution", "tokens")}
        y, states = self.rule(
            **vectors, **self.coefficients(x), initial_state=kept, params=self.params(),
            **{"output_final_state": True, **options},
        )  # fmt: skip
        return self._read_out(x, y), {**(states or {}), **after}

    def advance(
        self, x_t: Tensor, state: States, *, indices: Tensor | None = None, form: str = "auto"
    ) -> Tensor:  # fmt: skip
        """Run one token and update the state in its own tensors: [B, dim] → [B, dim]."""
        self._check_token(x_t)
        x = x_t[:, None]
        kernel = step.chosen(self, x, state, form)
        if kernel is None or (indices is not None and not step.pooled(kernel, state)):
            return super().advance(x_t, state, indices=indices, form=form)
        kept_in.check_kept(self.signature, state)
        check_apart(self.signature, state, self.params())
        if indices is not None:
            pool.check(self.signature, state, indices, x.shape[0])
            places = pool.Places.of(indices)
            return step.run_in(self, kernel, x, state, places, indices)[:, 0]
        pool.check_rows(self.signature, state, len(x_t), ": indices= names the slots of a pool")
        return step.run(self, kernel, x, state, in_place=True)[0][:, 0]

    def arguments(self, x: Tensor) -> States:
        """Return what the rule takes of a sequence from its start, x [B, T, dim]."""
        vectors, _ = self.vectors(x, {}, None)
        return {**vectors, **self.coefficients(x)}

    def begin(self, x: Tensor) -> States:
        """Return the rule's state before a document's first token, x [B, 1, dim]."""
        begun: States = self.rule.begin(**self.arguments(x), params=self.params())
        return begun

    def read(self, x: Tensor, q: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        """Compute y = W_o (rms(M(W, φ(q))) ∘ σ(W_g x)) with W as the rule's state has it.

        x [B, T, dim], q [B, T, H, d_k] of the same tokens, whose coefficients the read-out takes;
        nothing is written.
        """
        given = self.coefficients(x) if self.rule.reading else {}
        told = {name: given[name] for name in self.rule.reading}
        sizes = (self.sizes.key_heads, self.sizes.value_dim)
        y = self.rule.read(q, state, params=self.params(), sizes=sizes, **told)
        return self._read_out(x, y)

    def _read_out(self, x: Tensor, y: Tensor) -> Tensor:
        """Norm y [B, T, H, d_v], gate it by x, and mix it, beside D ∘ x."""
        if self.norm_weight is not None:
            y = rms(y, self.norm_weight)
        y = y.flatten(2)
        if self.gate is not None:
            y = y * self.activations["gate"](self.gate(x))
        return self.mixed(x, y)

    def mixed(self, x: Tensor, y: Tensor) -> Tensor:
        """Compute W_o y, plus D ∘ x where there is a skip; y [B, T, H·d_v]."""
        found: Tensor = self.out(y)
        return found if self.skip is None else found + (self.skip * x).to(found.dtype)


def drawn(
    shape: tuple[int, ...], spread: float, linked: Callable[[Tensor], Tensor] | None
) -> Tensor:
    """Draw a deep memory's initial dual, such that the memory's entries have deviation 1/√columns.

    For a link that scales as link(s A) = s^g link(A), g is found from two sizes, and the factor s
    from g. ``spread`` is the deviation of the entries for any other link.
    """
    x, wanted = torch.randn(shape), 1 / math.sqrt(shape[-1])
    if linked is None or x.is_meta:
        return x * (spread or wanted)
    one, two = (float(linked(s * x).square().mean().sqrt()) for s in (1.0, 2.0))
    return x * (wanted / one) ** (1 / math.log2(two / one))


def starts(signature: Signature, sizes: Sizes) -> dict[str, tuple[int, int, int]]:
    """Return the shapes of the matrices that a deep memory starts from, by name."""
    features = eval_size(signature.features, sizes.key_dim) * (2 if signature.phase else 1)
    sides = {"v": sizes.value_dim, "D": features}
    sides |= {name: max(1, round(times * sizes.value_dim)) for name, times in signature.widths}
    return {p.name: (sizes.key_heads, sides[p.rows], sides[p.columns]) for p in signature.params}
