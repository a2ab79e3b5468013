"""The parts of ``gpu.py``: rows, subjects, peers, steps, results."""
