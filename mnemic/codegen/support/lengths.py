"""Numbers that generated code and the compiler share, in a module without torch."""

EPSILON = 1e-6
"""Added under the roots of norms."""

DIRECTIONS = frozenset({"carry"})
"""Vectors whose length is a factor of a rate alone, so that the layer makes them unit vectors."""

FAINTEST = 0.1
"""The least that weights may leave of the past over a chunk, by which a least-squares kernel
divides in float32: it loses a digit."""
