"""The parts of ``gpu.py``: rows, subjects, peers, timing, results."""
