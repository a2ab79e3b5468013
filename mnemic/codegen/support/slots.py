"""Slots: two gated memories, of the slots' keys and of their values, read through a softmax.

K_t = Diag(α_t) K_{t−1} + w_t k_tᵀ, q′_t = softmax(K_t q_t), W_t = W_{t−1} Diag(α_t) + v_t w_tᵀ,
y_t = W_t q′_t: both are rules of their own, so forms, states and splits are theirs.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from . import kept_in
from .arguments import check, check_choices, check_state, fail, one_of
from .norms import widened
from .operator import Operator
from .pickled import by_name
from .positions import emptied
from .signature import Coefficient, Signature

States = dict[str, Tensor]


@dataclass(frozen=True)
class SlotOperator:
    """``out, state = rule(q, k, v, **coefficients)`` as any other operator.

    ``keys`` reads what the slots hold for a query, ``values`` what they hold for a softmax of
    that; ``write`` gives w_t from the arguments. The states are K [B, H, m, d_k] and W [B, H, d_v,
    m].
    """

    signature: Signature
    keys: Operator
    values: Operator
    by_slot: bool
    """Whether each slot has a decay of its own."""
    write: Callable[..., Tensor | float]
    """w [B, T, H, m], or [B, T, H, 1] where it is the same for all slots, or a number."""

    @property
    def name(self) -> str:
        """The system's name."""
        return self.signature.name

    @property
    def coefficients(self) -> Mapping[str, Coefficient]:
        """Each coefficient by name, with its meaning, shape and range."""
        return {c.name: c for c in self.signature.coefficients}

    @property
    def params(self) -> Mapping[str, str]:
        """What slots start from: nothing that is learned."""
        return {}

    @property
    def state(self) -> Mapping[str, str]:
        """Each carried state by name, with its meaning."""
        return {s.name: f"{s.meaning} {s.axes}" for s in self.signature.states}

    @property
    def forms(self) -> tuple[str, ...]:
        """The forms that this rule has."""
        return self.signature.forms

    @property
    def parts(self) -> tuple[Callable[..., Any], ...]:
        """Functions of both memories' chunks that compute a matrix for every row."""
        return (*self.keys.parts, *self.values.parts)

    @contextmanager
    def compiled_parts(self) -> Iterator[None]:
        """Run ``parts`` under ``torch.compile`` while this lasts; see ``Operator``."""
        with self.keys.compiled_parts(), self.values.compiled_parts():
            yield

    def keep_up_to(self, most: int) -> None:
        """Set how many bytes ``parts`` keep for gradients; see ``Operator``."""
        self.keys.keep_up_to(most)  # for the functions of both, which are of one module
        self.values.keep_up_to(most)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return by_name(self, "rule") or super().__reduce_ex__(protocol)

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        form: str = "auto",
        initial_state: Mapping[str, Tensor] | None = None,
        output_final_state: bool = False,
        params: Mapping[str, Tensor] | None = None,
        cu_seqlens: Tensor | None = None,
        mask: Tensor | None = None,
        chunk_size: int | None = None,
        states_at: Sequence[int] | Tensor | None = None,
        state_dtype: torch.dtype | None = None,
        **coefficients: Tensor,
    ) -> Any:
        """Run both memories; see ``Operator``. Coefficients of slots are [B, T, H, m]."""
        check(self.signature, q, k, v, coefficients, mask, cu_seqlens)
        one_of(self.signature, "form", form, ("auto", *self.forms))
        if params:
            raise fail(self.signature, f"params: this rule has none; read {', '.join(params)}")
        check_choices(self.signature, initial_state, None, chunk_size)
        kept_in.check(self.signature, state_dtype)
        given = {name: widened(emptied(x, mask)) for name, x in coefficients.items()}
        state = initial_state or {}
        call = _Call(form, mask, cu_seqlens, chunk_size, states_at)
        q, k, dtype = widened(q), widened(k), v.dtype
        w = self._written(given, k)
        held, *keys = call.run(self.keys, q, k, w, self._renamed(given), state.get("K"))
        read = torch.softmax(held, -1)
        out, *values = call.run(self.values, read, w, widened(v), given, state.get("W"))
        found = [{"K": k["W"], "W": v["W"]} for k, v in zip(keys, values, strict=True) if k]
        told = [kept_in.rounded(self.signature, states, state_dtype) for states in found]
        final = told[0] if output_final_state else None
        if states_at is None:
            return out.to(dtype), final
        return out.to(dtype), final, told[1] if len(told) > 1 else {}

    def begin(
        self, q: Tensor, k: Tensor, v: Tensor, *, params: Mapping[str, Tensor] | None = None,
        **coefficients: Tensor,
    ) -> States:  # fmt: skip
        """Return the state before a document's first token, which the arguments are of (T = 1)."""
        call: Callable[..., tuple[Tensor, States | None]] = self
        nothing = {name: x[:, :0] for name, x in coefficients.items()}
        _, state = call(q[:, :0], k[:, :0], v[:, :0], output_final_state=True, **nothing)
        assert state is not None
        return state

    @property
    def reading(self) -> tuple[str, ...]:
        """The coefficients that ``read`` takes: those of the features."""
        return self.keys.reading

    @property
    def read_states(self) -> tuple[str, ...]:
        """The carried states that ``read`` looks at."""
        return tuple(self.state)

    def read(
        self,
        q: Tensor,
        state: Mapping[str, Tensor],
        *,
        params: Mapping[str, Tensor] | None = None,
        sizes: tuple[int, int] | None = None,
        **coefficients: Tensor,
    ) -> Tensor:
        """Return W softmax(K q), the memories as ``state`` has them; see ``Operator.read``."""
        check_state(self.signature, state)
        keys, values = ({"W": state[n]} if n in state else {} for n in ("K", "W"))
        slots = None if sizes is None else (sizes[0], self.signature.slots)
        held = self.keys.read(widened(q), keys, sizes=slots, **coefficients)  # type: ignore[arg-type]
        read = self.values.read(torch.softmax(held, -1), values, sizes=sizes)
        return read.to(q.dtype)

    def _written(self, given: Mapping[str, Tensor], k: Tensor) -> Tensor:
        """Return what each slot is written with, w [B, T, H, m]."""
        names = inspect.signature(self.write).parameters
        w: Tensor | float = self.write(**{name: given[name] for name in names})
        return k.new_ones(()).mul(w).expand(*k.shape[:-1], self.signature.slots)

    def _renamed(self, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Rename each slot's decay, one of W's columns, to the decay of K's rows that it is."""
        return {"log_beta" if self.by_slot and n == "log_alpha" else n: x for n, x in given.items()}


@dataclass(frozen=True)
class _Call:
    """What both memories are called with."""

    form: str
    mask: Tensor | None
    cu_seqlens: Tensor | None
    chunk_size: int | None
    states_at: Sequence[int] | Tensor | None = None

    def run(
        self, rule: Operator, q: Tensor, k: Tensor, v: Tensor, given: Mapping[str, Tensor],
        start: Tensor | None,
    ) -> tuple[Tensor, States, States]:  # fmt: skip
        """Run one memory with what it takes of the coefficients; return the output, the state after
        it, and the states after so many tokens."""
        out, state, *between = rule(
            q, k, v, form=self.form, mask=self.mask, cu_seqlens=self.cu_seqlens,
            chunk_size=self.chunk_size, output_final_state=True, states_at=self.states_at,
            initial_state=None if start is None else {"W": start},
            **{name: given[name] for name in rule.coefficients},  # type: ignore[arg-type]
        )  # fmt: skip
        return out, state, between[0] if between else {}
