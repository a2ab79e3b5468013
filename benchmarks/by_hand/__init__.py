"""Kernels written by hand, to hold generated ones against."""
