"""Canonical forms of rules, and the differences between two of them."""
