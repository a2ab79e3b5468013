"""Documents from a folder, a file or a table."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from mnemic.errors import Issue, UsageError, format_issue, nearest

TABLES = {".parquet", ".jsonl", ".json"}
"""Files with a document a row, read by the library datasets; all others are a document each."""

FEWEST = 20
"""Documents from which whole ones can be held out; of fewer, or equal ones, the end is."""

SHARE = 20
"""One in so many documents, or characters, is held out."""


@dataclass(frozen=True)
class Texts:
    """Documents to learn from and held-out ones."""

    train: tuple[str, ...]
    held_out: tuple[str, ...]

    @property
    def digest(self) -> str:
        """A digest that identifies these documents."""
        found = sha256()
        for text in (*self.train, "\0\0", *self.held_out):
            found.update(text.encode() + b"\0")
        return found.hexdigest()[:16]

    @property
    def held_out_bytes(self) -> int:
        """The bytes of the held-out documents in UTF-8."""
        return sum(len(text.encode()) for text in self.held_out)


def read_texts(place: Path, column: str = "text", held_out: Path | None = None) -> Texts:
    """Return the documents of a folder, a file or a table, some of them held out.

    Args:
        place: a file, or a folder with files at any depth; hidden ones and Python's
            caches are left out.
        column: of tables, with the text.
        held_out: where held-out documents are; else they are chosen by a hash of their text.

    Raises:
        UsageError: nothing there, a file that is no UTF-8 text, a table without the column.
    """
    found = read_documents(place, column)
    if held_out is not None:
        return Texts(tuple(_mixed(found)), read_documents(held_out, column, "--held-out"))
    if len(found) < FEWEST:
        return _cut(found)
    held = [text for text in found if _hash(text) % SHARE == 0] or [min(found, key=_hash)]
    kept = set(held)
    train = [text for text in found if text not in kept]
    return Texts(tuple(_mixed(train)), tuple(held)) if train else _cut(found)


def read_documents(place: Path, column: str = "text", option: str = "--data") -> tuple[str, ...]:
    """Return all documents of a folder, a file or a table, in order.

    Args:
        place: as for `read_texts`.
        column: of tables, with the text.
        option: by which the place was told, for messages.

    Raises:
        UsageError: nothing there, a file that is no UTF-8 text, a table without the column.
    """
    if not place.exists():
        raise UsageError(f"{option}: {place}: no such file or folder")
    files = [place] if place.is_file() else sorted(_files(place))
    found = tuple(text for path in files for text in _read(path, column, option) if text)
    if not found:
        raise UsageError(f"{option}: {place}: no text in it")
    return found


def _files(folder: Path) -> list[Path]:
    return [
        path
        for path in folder.rglob("*")
        if path.is_file() and not any(map(_left_out, path.relative_to(folder).parts))
    ]


def _left_out(name: str) -> bool:
    return name.startswith(".") or name == "__pycache__"


def _read(path: Path, column: str, option: str) -> list[str]:
    if path.suffix in TABLES:
        return _table(path, column, option)
    try:
        return [path.read_text(encoding="utf-8")]
    except UnicodeDecodeError as error:
        raise UsageError(f"{option}: {path}: no UTF-8 text at byte {error.start}") from None


def _table(path: Path, column: str, option: str) -> list[str]:
    from datasets import Dataset

    read = Dataset.from_parquet if path.suffix == ".parquet" else Dataset.from_json
    try:
        table = read(str(path), keep_in_memory=True)
    except Exception as error:  # datasets wraps whatever its readers raise
        reason = str(error.__cause__ or error).splitlines()[0]
        raise UsageError(f"{option}: {path}: cannot be read: {reason}") from None
    if column not in table.column_names:
        names = tuple(table.column_names)
        issue = Issue("", f"{option}: {path}: column", column, names, nearest(column, names))
        raise UsageError(format_issue(issue))
    return [str(text) for text in table[column] if text is not None]


def _hash(text: str) -> int:
    return int.from_bytes(sha256(text.encode()).digest()[:8], "big")


def _mixed(texts: Sequence[str]) -> list[str]:
    """Return the documents in a fixed pseudo-random order."""
    found = list(texts)
    random.Random(0).shuffle(found)
    return found


def _cut(texts: Sequence[str]) -> Texts:
    """Hold the last part of the characters out, cutting a document where it ends within one."""
    left = sum(map(len, texts)) // SHARE + 1
    train = list(texts)
    held: list[str] = []
    while left > 0 and train:
        last = train.pop()
        if len(last) > left:
            train.append(last[: len(last) - left])
            last = last[len(last) - left :]
        held.insert(0, last)
        left -= len(last)
    if not train:
        raise UsageError("--data: one character, too short to hold some of it out")
    return Texts(tuple(train), tuple(held))
