"""A folder of Markdown → a folder of HTML, by Sphinx."""

import io
import shutil
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import furo as furo  # Sphinx imports what it has names of late; what is missing is told at once
import latex2mathml as latex2mathml
import myst_parser as myst_parser
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

STATIC: Final = Path(__file__).parent / "static"

SETTINGS: Final[dict[str, Any]] = {
    "project": "mnemic",
    "extensions": ["myst_parser", "mnemic.site.mathml"],
    "root_doc": "README",
    "html_theme": "furo",
    "html_title": "mnemic",
    "html_math_renderer": "mathml",
    "html_static_path": [str(STATIC)],
    "html_css_files": ["site.css"],
    "html_js_files": [("filter.js", {"defer": "defer"})],
    "html_copy_source": False,
    "html_show_sphinx": False,
    "html_show_copyright": False,
    "html_theme_options": {"top_of_page_buttons": []},
    "pygments_style": "friendly",
    "myst_heading_anchors": 4,
    "myst_enable_extensions": ["colon_fence"],
    "smartquotes": False,
    "suppress_warnings": ["myst.header", "misc.highlighting_failure"],
}


def to_html(source: Path, made: Path, kept: Path) -> tuple[str, ...]:
    """Write the pages of ``source`` to ``made``, the front page as index.html too.

    ``kept`` is a folder for what Sphinx remembers. Returns what it warned of.
    """
    heard = io.StringIO()
    settings = {**SETTINGS, "version": version("mnemic")}
    with docutils_namespace(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what MyST uses and Sphinx deprecates
        app = Sphinx(source, None, made, kept, "html", settings, status=None, warning=heard)
        app.build()
    for name in (".buildinfo", "objects.inv"):
        (made / name).unlink(missing_ok=True)
    shutil.copy(made / "README.html", made / "index.html")
    return tuple(line for line in heard.getvalue().splitlines() if line.strip())
