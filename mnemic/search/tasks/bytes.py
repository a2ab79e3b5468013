"""Next-byte prediction on the sources of Python's standard library."""

from __future__ import annotations

import hashlib
import math
import platform
import sysconfig
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from mnemic.errors import EnvironmentFailed
from mnemic.search.tasks.base import IGNORED, Batch, Split, Task
from mnemic.search.tasks.options import Options, number

_LEFT_OUT = {"site-packages", "dist-packages", "__pycache__", "test", "tests", "idle_test"}
_OF_THE_BUILD = "_sysconfigdata"
_HELD_OUT_SHARE = 0.1


@dataclass(frozen=True)
class BytesOptions(Options):
    """The options of `Bytes`."""

    length: int = number(256, 2, 2**17, "bytes in a sequence (T)")


class Bytes(Task[BytesOptions]):
    """Predict each next byte of windows at random places; in bits a byte, less is better.

    About a tenth of the modules, chosen by a hash of their names, is held out for the test
    split. The text is that of the running Python: `facts` has its version and digest, and
    results compare only where these agree.
    """

    name = "bytes"
    title = "next byte of Python's standard library"
    source = "the standard library of the running Python, tests left out"
    options_type = BytesOptions
    ladder: ClassVar = {"tiny": {"length": 64}, "published": {}, "long": {"length": 1024}}
    metric = "bits per byte"
    higher_is_better = False

    @property
    def vocabulary(self) -> int:
        """The number of tokens: 256 bytes."""
        return 256

    @property
    def chance(self) -> float:
        """The score of a guess, 8 bits: all bytes alike."""
        return 8.0

    @property
    def ceiling(self) -> float:
        """A bound that no model reaches: 0 bits."""
        return 0.0

    @property
    def facts(self) -> dict[str, str | int]:
        """The Python version and, for each split, the bytes and their digest."""
        texts: dict[Split, Tensor] = {"train": corpus("train"), "test": corpus("test")}
        sizes = {f"{split} bytes": len(text) for split, text in texts.items()}
        digests = {
            f"{split} sha256": hashlib.sha256(text.numpy().data).hexdigest()
            for split, text in texts.items()
        }
        return {"python": platform.python_version(), **sizes, **digests}

    def word(self, token: int) -> str:
        """Return the byte's character, escaped where it does not print."""
        return repr(chr(token))[1:-1] if token != 32 else "␣"

    def batch(self, generator: torch.Generator, size: int, split: Split) -> Batch:
        """Draw ``size`` windows at uniformly random places of a split, [size, T]."""
        text, length = corpus(split), self.options.length
        starts = torch.randint(len(text) - length, (size, 1), generator=generator)
        windows = text[starts + torch.arange(length + 1)].long()
        return Batch(windows[:, :-1], windows[:, 1:])

    def score(self, logits: Tensor, targets: Tensor) -> float:
        """Return the mean cross-entropy in bits."""
        nats = F.cross_entropy(
            logits.reshape(-1, logits.shape[-1]).double(),
            targets.reshape(-1),
            ignore_index=IGNORED,
        )
        return nats.item() / math.log(2)


def held_out(module: str) -> bool:
    """Return whether a module is in the test split: by the hash of its dotted name alone."""
    digest = hashlib.sha256(module.encode()).digest()
    return int.from_bytes(digest[:8], "big") < _HELD_OUT_SHARE * 2**64


@lru_cache(maxsize=2)
def corpus(split: Split) -> Tensor:
    """Return [bytes], uint8: the split's modules in order of name, each ended by a 0.

    Raises:
        EnvironmentFailed: this Python came without its sources.
    """
    root = Path(sysconfig.get_paths()["stdlib"])
    modules = {_module(root, path): path for path in root.rglob("*.py") if _is_text(root, path)}
    text = bytearray()
    for module in sorted(modules):
        if held_out(module) == (split == "test"):
            text += modules[module].read_bytes() + b"\0"
    if len(text) < 2**18:
        raise EnvironmentFailed("the sources of Python's standard library are not installed")
    return torch.frombuffer(text, dtype=torch.uint8)


def _is_text(root: Path, path: Path) -> bool:
    parts = path.relative_to(root).parts
    return not (_LEFT_OUT.intersection(parts) or path.name.startswith(_OF_THE_BUILD))


def _module(root: Path, path: Path) -> str:
    """Return a file's dotted name: ``json.decoder``, ``json.__init__``."""
    return ".".join(path.relative_to(root).with_suffix("").parts)
