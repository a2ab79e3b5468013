"""Pages looked at in Chromium: what is wider than the page, where the map leads, pictures."""

import html
import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars", "--allow-file-access-from-files",
)  # fmt: skip
WAIT_MS = 100_000
"""Milliseconds of the browser's own clock, which stands still while nothing is left to do."""

needed = pytest.mark.skipif(PROGRAM is None, reason="no Chromium: apt-get install chromium")

HARNESS = """<!doctype html><meta charset="utf-8"><iframe height="900"></iframe><pre></pre><script>
const [pages, widths, clicked] = %s;
const frame = document.querySelector("iframe");
const loaded = (go) => new Promise((done) => { frame.onload = done; go(); });
const held = (e) => {
  for (let at = e.parentElement; at; at = at.parentElement)
    if (/auto|scroll/.test(frame.contentWindow.getComputedStyle(at).overflowX)
        && at.getBoundingClientRect().right <= frame.clientWidth + 1) return true;
  return false;
};
(async () => {
  const wide = [], led = {};
  for (const width of widths) {
    frame.style.width = width + "px";
    for (const page of pages) {
      await loaded(() => { frame.src = page; });
      const inner = frame.contentDocument;
      if (inner.documentElement.scrollWidth > width) wide.push(`${page} at ${width}: the page`);
      for (const e of inner.querySelectorAll("article *"))
        if (e.getBoundingClientRect().right > width + 1 && !held(e))
          wide.push(`${page} at ${width}: ${e.tagName} ${e.textContent.trim().slice(0, 60)}`);
    }
  }
  for (const [page, selector] of clicked) {
    await loaded(() => { frame.src = page; });
    const link = frame.contentDocument.querySelector(selector);
    const click = new MouseEvent("click", { bubbles: true, view: frame.contentWindow });
    await loaded(() => link.dispatchEvent(click));
    led[selector] = frame.contentDocument.querySelector("h1").textContent;
  }
  document.querySelector("pre").textContent = JSON.stringify({ wide, led });
})();
</script>"""


def _run(*arguments: str) -> str:
    assert PROGRAM is not None
    with tempfile.TemporaryDirectory() as profile:
        command = [PROGRAM, *FLAGS, f"--user-data-dir={profile}", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return done.stdout


def looked_at(
    site: Path, pages: list[str], widths: tuple[int, ...], clicked: list[tuple[str, str]]
) -> dict[str, Any]:
    """Return what is ``wide``r than the page, and the heading that each click ``led`` to."""
    place = site.parent / "harness.html"
    asked = [[str(site / page) for page in pages], widths,
             [(str(site / page), selector) for page, selector in clicked]]  # fmt: skip
    place.write_text(HARNESS % json.dumps(asked).replace("</", "<\\/"), encoding="utf-8")
    dom = _run(f"--virtual-time-budget={WAIT_MS}", "--dump-dom", f"file://{place}")
    found = re.search(r"<pre>(\{.*?)</pre>", dom, re.S)
    assert found, "the browser did not come to the end of the pages"
    return dict(json.loads(html.unescape(found[1])))


def pictured(page: Path, width: int, picture: Path) -> None:
    """Keep a screenshot of a page, as high as a tall window."""
    picture.parent.mkdir(parents=True, exist_ok=True)
    _run(f"--window-size={width},2400", f"--screenshot={picture}", f"file://{page}")
