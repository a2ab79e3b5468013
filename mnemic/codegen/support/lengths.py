"""What the layer and the kernel of its token both have to know about lengths of vectors."""

EPSILON = 1e-6
"""Added under the roots of norms."""

DIRECTIONS = frozenset({"carry"})
"""Vectors whose length is a factor of a rate alone, so that the layer makes them unit vectors."""
