"""Slow, simple oracles: the rule interpreted, the problem as written, and their agreement."""
