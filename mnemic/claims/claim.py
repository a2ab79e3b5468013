"""A claim of a paper: what it says, where, and the function that reproduces it."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from mnemic.claims.outcome import Outcome

Told = Callable[[str], None]


@dataclass(frozen=True)
class Claim:
    """``says`` is the claim in our words, ``source`` the paper and its figure.

    ``run`` reproduces it with ``seeds`` repetitions; ``quick`` makes it small, for tests, and its
    verdict then says nothing. ``trained`` tells whether models are trained, ``sizes`` how ours
    differ from the paper's, ``specs`` which packaged specs it runs, or is about.
    """

    name: str
    says: str
    source: str
    run: Callable[[int, bool, Told], Outcome]
    seeds: int = 3
    trained: bool = False
    sizes: str = ""
    specs: tuple[str, ...] = ()


def reproduce(
    claim: Claim, seeds: int | None = None, quick: bool = False, told: Told = lambda what: None
) -> Outcome:
    """Run a claim and return its outcome, with the time it took and the machine."""
    began = time.perf_counter()
    outcome = claim.run(claim.seeds if seeds is None else seeds, quick, told)
    return replace(outcome, seconds=round(time.perf_counter() - began, 1), setting=_setting())


def _setting() -> str:
    import platform

    import torch

    found: dict[str, Any] = {"torch": torch.__version__, "python": platform.python_version()}
    return ", ".join(f"{name} {value}" for name, value in found.items())
