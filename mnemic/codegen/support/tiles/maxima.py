"""Weights of a chunk under a running maximum of their logarithms."""

import triton
import triton.language as tl

from .blocks import order


@triton.jit
def _logs(log_decay, log_rate):
    """Compute Σ_{s<i≤t} l_i + r_s, −∞ for s > t: [C] twice → [C, C]."""
    t, s = order(log_decay.shape[0])
    steps = tl.cumsum(tl.where(t > s, log_decay[:, None], 0.0), 0)
    return tl.where(t >= s, steps + log_rate[None, :], float("-inf"))


@triton.jit
def running_maximum(log_decay, log_rate, start):
    """Compute m_t = max(max_s(Σ_{s<i≤t} l_i + r_s), Σ_{i≤t} l_i + m_0): [C] twice, number → [C]."""
    return tl.maximum(tl.max(_logs(log_decay, log_rate), 1), tl.cumsum(log_decay, 0) + start)


@triton.jit
def stable_mix(log_decay, log_rate, m):
    """Compute exp(Σ_{s<i≤t} l_i + r_s − m_t), zero for s > t: [C] three times → [C, C]."""
    return tl.exp(_logs(log_decay, log_rate) - m[:, None])


@triton.jit
def stable_reach(log_decay, start, m):
    """Compute exp(Σ_{i≤t} l_i + m_0 − m_t): [C], number, [C] → [C]."""
    return tl.exp(tl.cumsum(log_decay, 0) + start - m)


@triton.jit
def maximum_share(log_decay, log_rate, m):
    """Put 1 where Σ_{s<i≤t} l_i + r_s attains m_t, shared by ties: [C] three times → [C, C]."""
    attains = tl.where(_logs(log_decay, log_rate) == m[:, None], 1.0, 0.0)
    return attains / tl.maximum(tl.sum(attains, 1), 1.0)[:, None]
