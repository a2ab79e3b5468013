"""Whole models beside a transformer of the same size: learning, training's speed, decoding."""
