"""The activation and the start of a coefficient for which a spec names neither."""

Start = float | tuple[float, float] | None

DEFAULTS: dict[str, tuple[str, Start]] = {
    "alpha": ("sigmoid", (0.97, 0.99)),
    "beta": ("sigmoid", (0.97, 0.99)),
    "eta": ("sigmoid", 0.5),
    "delta": ("softplus", 1.0),
    "Delta": ("softplus", 0.1),
    "theta": ("sigmoid", 0.5),
    "beta2": ("sigmoid", 0.99),
    "gamma": ("sigmoid", 0.5),
    "lam": ("sigmoid", 0.02),
    "l1": ("softplus", 0.01),
    "l2": ("softplus", 0.01),
    "phase": ("identity", (0.0, 0.3)),
    "bonus": ("identity", 1.0),
    "levels": ("softplus", 1.0),
    "scale": ("softplus", 1.0),
    "radius": ("softplus", 1.0),
}
"""By name of the coefficient: its activation and where it starts, unless the spec tells. A pair
is spread over heads and channels, so that they remember for different times."""

OTHERWISE: tuple[str, Start] = ("sigmoid", 0.5)


def start_of(name: str) -> tuple[str, Start]:
    """Return the activation and the start of a coefficient; ``scale3`` is one of several scales.

    >>> start_of("l1"), start_of("scale3") == start_of("scale"), start_of("mine")
    (('softplus', 0.01), True, ('sigmoid', 0.5))
    """
    family = name if name in DEFAULTS else name.rstrip("0123456789")
    return DEFAULTS.get(family, OTHERWISE)
