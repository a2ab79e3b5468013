"""Derive from a spec its problem, rule, structural class and costs; each step is one function."""
