"""The read-out as the language states it: slots, the bonus of the current pair, the normaliser.

    y_t = (W_t q' + v_t (u ∘ k_t)·q') / n_t,   q' = φ(q_t), or softmax(K_t φ(q_t)) under slots

n_t is the sum of the weights of the values, which is the read-out if all values are one; ``max1``
divides by the larger of its absolute value and one. Without any weight the read-out is zero.
"""

from dataclasses import replace

import torch
from torch import Tensor

from mnemic.compiler.oracle.stated_memory import memories
from mnemic.compiler.oracle.stated_steps import predict
from mnemic.compiler.oracle.stated_tokens import Token
from mnemic.compiler.oracle.statement import tensor
from mnemic.dsl.spec import Spec

Sequence = list[list[Token]]


def read(spec: Spec, sequence: Sequence, dual: Tensor | None) -> Tensor:
    """Return the outputs [T, d_v] of one head of one sequence, from a dual of zero unless given."""
    if getattr(spec.memory, "slots", None) is not None:
        sequence = _through_slots(spec, sequence)
    y = _plain(spec, sequence, dual)
    if spec.readout.normalizer == "none":
        return y
    weight = _plain(spec, _of_ones(sequence), None)
    if spec.readout.normalizer == "max1":
        weight = weight.abs().clamp_min(1)
    return torch.where(weight == 0, 0, y / torch.where(weight == 0, 1, weight))


def _plain(spec: Spec, sequence: Sequence, dual: Tensor | None) -> Tensor:
    """Return what the memory says to each query, with the bonus of its token."""
    found = zip(sequence, memories(spec, sequence, dual), strict=True)
    return torch.stack([predict(spec, w, t.query) + _bonus(spec, t) for (t, *_), w in found])


def _bonus(spec: Spec, token: Token) -> Tensor:
    """Return v (u ∘ φ(k))·φ(q), or channel by channel v u k q of a diagonal memory."""
    if spec.readout.bonus is None:
        return tensor(0)
    u, pair = token.names["bonus"], token.pair
    if type(spec.memory).word() == "diagonal":
        return pair.value * u.reshape(-1) * pair.write * token.query.mapped
    return pair.value * (u * pair.write * token.query.mapped).sum()


def _of_ones(sequence: Sequence) -> Sequence:
    """Return the same tokens with values of one, which no row decay belongs to."""

    def one(token: Token) -> Token:
        pair = replace(token.pair, value=torch.ones_like(token.pair.value))
        return replace(token, pair=pair, names={**token.names, "beta": tensor(1)})

    return [[one(token) for token in micro] for micro in sequence]


def _through_slots(spec: Spec, sequence: Sequence) -> Sequence:
    """Return the tokens with queries read from the companion memory K [m, d_k] of the keys."""
    kept = [[replace(t, pair=replace(t.pair, value=t.key)) for t in micro] for micro in sequence]
    plain = [[replace(t, names={**t.names, "beta": tensor(1)}) for t in micro] for micro in kept]
    found = []
    for micro, keys in zip(sequence, memories(spec, plain), strict=True):
        shares = torch.softmax(micro[0].query.mapped @ keys, -1)
        query = replace(micro[0].query, mapped=shares)
        found.append([replace(token, query=query) for token in micro])
    return found
