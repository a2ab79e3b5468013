"""The best measured cut of each fused kernel on a device, kept in the user's cache folder.

One small file an answer, under the digest of the generated code: for a kernel, its sizes, classes
of length and memories, dtype, device and versions. Writes are atomic, so several processes may
write at once. An answer counts only if all of these match; a file that cannot be read is reported
once and ignored. Without an answer the model of ``configuration`` chooses.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from . import verified, versions
from .configuration import Choices, Configuration
from .sizes import power_of_two

VARIABLE = "MNEMIC_CACHE"
"""Where the cache lies, if not in the user's cache folder."""


@dataclass(frozen=True)
class Question:
    """What a cut is chosen for: a kernel, its sizes, and classes of what it runs over.

    ``length`` (rows of a sequence) and ``memories`` (batch times heads) are powers of two, the
    least that is no less.
    """

    kernel: str
    sizes: tuple[tuple[str, int], ...]
    length: int
    memories: int
    dtype: str
    gradient: bool

    @classmethod
    def of(
        cls, kernel: str, sizes: Mapping[str, int], rows: Tensor, *, gradient: bool
    ) -> "Question":  # fmt: skip
        """Return the question of arguments by row, [B, R, H, …]."""
        batch, length, heads = (int(n) for n in rows.shape[:3])
        named = str(rows.dtype).removeprefix("torch.")
        return cls(
            kernel, tuple(sorted(sizes.items())), power_of_two(length),
            power_of_two(batch * heads), named, gradient,
        )  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """The best cut that passed its check, or ``None`` and why none did."""

    choice: Configuration | None
    why: str = ""


@dataclass(frozen=True)
class Run:
    """A kernel that was run: what for, how it was cut, how the model would, what may be chosen."""

    question: Question
    chosen: Configuration
    model: Configuration
    choices: Choices


def chosen(
    question: Question,
    device: torch.device,
    model: Callable[[], Configuration],
    choices: Callable[[Configuration], Choices],
    *,
    tunable: bool = True,
) -> Configuration:
    """Return the cut that is being tried, else the one measured best, else the model's.

    Not ``tunable`` is a call that asks for rows of its own.
    """
    found = _forced.get((question.kernel, question.gradient))
    if found is None and tunable:
        answer = answered(question, device)
        found = None if answer is None else answer.choice
    found = found or model()
    for seen in _recording:
        seen.append(Run(question, found, model(), choices(found)))
    return found


def failed(question: Question, device: torch.device) -> str | None:
    """Return why no cut of a kernel may run, where the tuner found none right, else ``None``."""
    if (question.kernel, question.gradient) in _forced:
        return None
    answer = answered(question, device)
    if answer is None or answer.choice is not None:
        return None
    return f"no way of cutting its kernel passed its check here ({answer.why})"


# -- trials ------------------------------------------------------------------------------------

_forced: dict[tuple[str, bool], Configuration] = {}
_recording: list[list[Run]] = []
_unread: list[bool] = []
"""While there is anything in it, answers on disk are not looked at."""


@contextmanager
def unread() -> Iterator[None]:
    """Ignore stored measurements in this context: kernels are cut as if none existed."""
    _unread.append(True)
    try:
        yield
    finally:
        _unread.pop()


@contextmanager
def forcing(question: Question, configuration: Configuration) -> Iterator[None]:
    """Force this cut, in this context, on kernels that match the question, at any length."""
    place = (question.kernel, question.gradient)
    _forced[place] = configuration
    try:
        yield
    finally:
        del _forced[place]


@contextmanager
def recording() -> Iterator[list[Run]]:
    """Yield a list that collects the kernels run in this context."""
    seen: list[Run] = []
    _recording.append(seen)
    try:
        yield seen
    finally:
        _recording.remove(seen)


# -- on disk -----------------------------------------------------------------------------------


def root() -> Path:
    """Return the cache's folder: the user's, unless ``MNEMIC_CACHE`` names another."""
    return _root(*map(os.environ.get, (VARIABLE, "LOCALAPPDATA", "XDG_CACHE_HOME", "HOME")))


@cache
def _root(told: str | None, local: str | None, cache: str | None, _: str | None) -> Path:
    """Return the folder that the environment names; a call of every kernel asks for it."""
    if told:
        return Path(told)
    if sys.platform == "win32":
        return (Path(local) if local else Path.home() / "AppData/Local") / "mnemic/mnemic/Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library/Caches/mnemic"
    users = (cache or "").strip()
    return (Path(users) if users else Path.home() / ".cache") / "mnemic"


@cache
def setting(device: torch.device) -> dict[str, Any]:
    """Return what an answer holds for: code, device, versions, and whether Triton interprets."""
    here = verified.setting(device)
    return {"code": verified.digest(), **here, "interpreted": versions.interpreting()}


def place(question: Question, device: torch.device) -> Path:
    """Return the file of an answer."""
    here = setting(device)
    named = sha256(json.dumps([here, asdict(question)], sort_keys=True).encode()).hexdigest()
    return root() / "tuned" / here["code"][:16] / f"{named[:32]}.json"


def answered(question: Question, device: torch.device) -> Answer | None:
    """Return what was measured for a question on this device with these versions and this code."""
    return None if _unread else _answered(root(), question, device)


@cache
def _answered(_: Path, question: Question, device: torch.device) -> Answer | None:
    """Read an answer, once a process for each folder of the cache; ``None`` where it is no use."""
    path = place(question, device)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        _ignore(path, str(error))
        return None
    try:
        found = json.loads(text)
        if found["setting"] != setting(device) or found["question"] != _plain(question):
            return None
        choice = found["choice"]
        return Answer(None if choice is None else Configuration.checked(**choice), found["why"])
    except (ValueError, KeyError, TypeError) as error:
        _ignore(path, f"{type(error).__name__}: {error}")
        return None


def _ignore(path: Path, why: str) -> None:
    versions.announce(f"{path}: cannot be read and is ignored ({why}); mnemic tune writes it anew")


def _plain(question: Question) -> Any:
    """Return a question as JSON has it."""
    return json.loads(json.dumps(asdict(question)))


def store(
    question: Question, device: torch.device, answer: Answer, told: Mapping[str, Any]
) -> Path:  # fmt: skip
    """Write an answer, with what else is to be told of it; the file is whole at any time."""
    path = place(question, device)
    path.parent.mkdir(parents=True, exist_ok=True)
    choice = None if answer.choice is None else asdict(answer.choice)
    whole = {"setting": setting(device), "question": asdict(question), "choice": choice,
             "why": answer.why, **told}  # fmt: skip
    handle, beside = tempfile.mkstemp(prefix=".tuned.", dir=path.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(whole, file, indent=1)
        file.write("\n")
    os.replace(beside, path)
    forget()
    return path


def forget() -> None:
    """Forget the answers that were read, so that the files are read again."""
    _answered.cache_clear()
    setting.cache_clear()
