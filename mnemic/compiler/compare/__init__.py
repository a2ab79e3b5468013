"""Canonical forms of rules, and what tells two of them apart."""
