"""Specs whose printed equations need letters that the packaged ones do not."""

from typing import Any

KERNEL = {"features": {"kind": "exponential"}, "bias": "l2"}
MOMENTUM = {"method": "momentum", "momentum": "token", "rate": "token"}
OWN: dict[str, dict[str, Any]] = {
    "own erase key": {"bias": "l2", "window": 3, "weights": "window", "keys": {"erase": "own"}},
    "all keys own": {"bias": "l2", "keys": {"predict": "own", "erase": "own", "write": "own"}},
    "additive window": {"window": 3, "weights": "token"},
    "window of the norm": {"bias": {"expr": "sqrt(1+n**2)"}, "window": 2},
    "window of layers": {"bias": "l2", "window": 2, "memory": {"kind": "mlp"}},
    "kernel": {**KERNEL, "retention": {"decay": "token"}},
    "kernel and momentum": {**KERNEL, "retention": {"decay": "token"}, "optimizer": MOMENTUM},
    "kernel and window": {**KERNEL, "window": 3, "retention": {"decay": "token"}},
    "kernel, window, momentum": {**KERNEL, "window": 3, "optimizer": MOMENTUM},
    "time": {"bias": "l2", "retention": {"decay": "1 - 1/(t + 2)"}},
}  # fmt: skip
