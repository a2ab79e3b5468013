"""The guides: the README and docs/, with all that they link to."""

import re
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
"""The checkout. An installed package has no guides beside it."""

LINK: Final = re.compile(r"(?<!!)\[([^\]\[]+)\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")
PICTURE: Final = re.compile(r"!\[[^\]\[]*\]\((?!https?:)([^)\s]+)\)")


def present() -> bool:
    """Return whether the guides are here."""
    return (ROOT / "docs").is_dir() and (ROOT / "README.md").is_file()


def stage(folder: Path) -> list[str]:
    """Copy the guides and all they link to or show into a folder; return the pages, by their names.

    A link to a folder, or to what is not there, becomes its words.
    """
    todo = [Path("README.md"), *(p.relative_to(ROOT) for p in sorted((ROOT / "docs").glob("*.md")))]
    done = list[Path]()
    while todo:
        page = todo.pop(0)
        if page in done:
            continue
        done.append(page)
        text = (ROOT / page).read_text(encoding="utf-8")
        for target in (*_linked(text, page), *_shown(text, page)):
            if target.suffix == ".md":
                todo.append(target)
            else:
                _copy(target, folder)
        _write(folder / page, LINK.sub(partial(_keep_link, page=page), text))
    return [page.with_suffix("").as_posix() for page in done]


def _linked(text: str, page: Path) -> Iterator[Path]:
    for _, target, _ in LINK.findall(text):
        found = _target(target, page)
        if found is not None:
            yield found


def _shown(text: str, page: Path) -> Iterator[Path]:
    for target in PICTURE.findall(text):
        picture = _target(target, page)
        if picture is not None:
            yield picture


def _target(target: str, page: Path) -> Path | None:
    """Return the file of the checkout that a page links to, None where there is none."""
    path = (ROOT / page.parent / target).resolve()
    inside = path.is_file() and path.is_relative_to(ROOT)
    return path.relative_to(ROOT) if inside else None


def _keep_link(found: re.Match[str], page: Path) -> str:
    return found[0] if _target(found[2], page) is not None else found[1]


def _copy(path: Path, folder: Path) -> None:
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / path, folder / path)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
