"""Lets the tests of this folder import ``conformance`` beside them; one thread for small sizes."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
torch.set_num_threads(1)
