"""The title of a spec inside generated source."""

from mnemic.dsl.spec import Spec


def title_of(spec: Spec) -> str:
    """Return the title, or the name, as text that can neither end nor escape a docstring.

    >>> from mnemic.dsl.load import load
    >>> title_of(load({"mnemic": 1, "name": "x", "title": 'a \\\\ "quoted" title'}))
    "a / 'quoted' title"
    """
    plain = (spec.title or spec.name).replace("\\", "/").replace('"', "'")
    return " ".join("".join(c if c.isprintable() else " " for c in plain).split())
