"""What a page links to and what it says, read from its HTML."""

import re
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

SILENT = ("script", "style", "code", "pre")
"""Elements whose text is no prose."""


class Page(HTMLParser):
    """A page's links, the places that can be linked to, its elements and its prose.

    ``own`` are the links of its text, without those of the bar that every page has.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.links: list[str] = []
        self.own: list[str] = []
        self.loaded: list[str] = []
        self.ids: set[str] = set()
        self.tags: set[str] = set()
        self.words: list[str] = []
        self._within: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.add(tag)
        self.ids |= {found["id"] or ""} if "id" in found else set()
        if tag == "a" and found.get("href"):
            self.links.append(found["href"] or "")
            if "article" in self._within:
                self.own.append(found["href"] or "")
        elif tag in ("link", "script", "img"):
            self.loaded += [x for x in (found.get("href"), found.get("src")) if x]
        if tag in (*SILENT, "article"):
            self._within.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._within and self._within[-1] == tag:
            self._within.pop()

    def handle_data(self, data: str) -> None:
        if not set(self._within) & set(SILENT):
            self.words.append(data)

    @cached_property
    def prose(self) -> str:
        """The text outside of code."""
        return "".join(self.words)


def broken(folder: Path) -> list[str]:
    """Return the links of a site that lead to no file, or to no place in it."""
    pages = {path.resolve(): Page(path) for path in sorted(folder.rglob("*.html"))}
    return [
        f"{page.path.relative_to(folder)}: {link}"
        for page in pages.values()
        for link in (*page.links, *page.loaded)
        if not _leads(page, link, pages)
    ]


def _leads(page: Page, link: str, pages: dict[Path, Page]) -> bool:
    parts = urlsplit(link)
    if parts.scheme in ("http", "https", "mailto"):
        return link not in page.loaded  # a page that opens offline loads nothing from elsewhere
    if parts.scheme == "data":
        return True
    path = (page.path.parent / unquote(parts.path)).resolve() if parts.path else page.path.resolve()
    if not path.is_file():
        return False
    fragment = unquote(parts.fragment)
    return not fragment or path not in pages or fragment in pages[path].ids


def clicks(folder: Path, start: str, most: int) -> dict[str, int]:
    """Return how many clicks on links of the text lead from a page to each other one, up to a most.

    Pages are told by their names in the site, without what follows a ``#``.
    """
    found, edge = {start: 0}, [start]
    for count in range(1, most + 1):
        ahead = []
        for name in edge:
            page = Page(folder / name)
            for link in page.own:
                parts = urlsplit(link)
                if parts.scheme or not parts.path.endswith(".html"):
                    continue
                path = (page.path.parent / unquote(parts.path)).resolve()
                there = path.relative_to(folder.resolve()).as_posix()
                if there not in found:
                    found[there] = count
                    ahead.append(there)
        edge = ahead
    return found


def section(page: Page, place: str) -> str:
    """Return the HTML of a page's section, from its place to the next section's."""
    text = page.path.read_text(encoding="utf-8")
    parts = re.split(r'<section id="([^"]+)">', text)
    return "".join(body for name, body in zip(parts[1::2], parts[2::2], strict=True)
                   if name == place)  # fmt: skip
