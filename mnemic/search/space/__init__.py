"""Spaces: specs with choices in them, and what to search for."""
