"""Optimizers that act entry by entry, as their papers have them, for one matrix and one token.

Each takes the gradient G, its averages by the names of the states, and the coefficients. It returns
what is subtracted from the matrix at a rate of one, and the new averages. Averages are of −G, as
everywhere else.
"""

from collections.abc import Callable, Mapping
from typing import Final

import torch
from torch import Tensor

from mnemic.compiler.oracle.stated_steps import Names
from mnemic.dsl.optimizer import OptimizerEntry

Kept = dict[str, Tensor]
Method = Callable[[Tensor, Kept, Names, OptimizerEntry], tuple[Tensor, Kept]]


def adam(
    gradient: Tensor, kept: Kept, names: Names, optimizer: OptimizerEntry
) -> tuple[Tensor, Kept]:
    """Step by Adam (Kingma and Ba, arXiv:1412.6980, algorithm 1); S is minus their m."""
    zero, one = torch.zeros_like(gradient), torch.ones((), dtype=gradient.dtype)
    theta, beta = names.get("theta", 0 * one), names["beta2"]
    first = theta * -kept.get("S", zero) + (1 - theta) * gradient
    second = beta * kept.get("squares", zero) + (1 - beta) * gradient**2
    weights = (
        1 - theta * (1 - kept.get("S_weight", 0 * one)),
        1 - beta * (1 - kept.get("squares_weight", 0 * one)),
    )
    mean, size = first / weights[0], second / weights[1]
    root = torch.where(size > 0, torch.where(size > 0, size, 1.0).sqrt(), 0.0)
    step = mean / (root + optimizer.epsilon)
    names_kept = ("S", "squares", "S_weight", "squares_weight")
    return step, dict(zip(names_kept, (-first, second, *weights), strict=True))


def lion(
    gradient: Tensor, kept: Kept, names: Names, optimizer: OptimizerEntry
) -> tuple[Tensor, Kept]:
    """Step by Lion (Chen et al., arXiv:2302.06675, algorithm 2), no decay; S is minus their m."""
    zero, one = torch.zeros_like(gradient), torch.ones((), dtype=gradient.dtype)
    momentum, theta, beta = -kept.get("S", zero), names.get("theta", 0 * one), names["beta2"]
    step = torch.sign(theta * momentum + (1 - theta) * gradient)
    return step, {"S": -(beta * momentum + (1 - beta) * gradient)}


def adagrad(
    gradient: Tensor, kept: Kept, names: Names, optimizer: OptimizerEntry
) -> tuple[Tensor, Kept]:
    """Step by AdaGrad (Duchi, Hazan, Singer, JMLR 12 (2011), fig. 1), diag, G summed, no set X."""
    total = kept.get("squares", torch.zeros_like(gradient)) + gradient**2
    root = torch.where(total > 0, torch.where(total > 0, total, 1.0).sqrt(), 0.0)
    return gradient / (root + optimizer.epsilon), {"squares": total}


METHODS: Final[Mapping[str, Method]] = {"adam": adam, "lion": lion, "adagrad": adagrad}
