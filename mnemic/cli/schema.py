"""``mnemic schema``: the JSON Schema of a spec, for editors."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from mnemic.cli.output import echo, raw
from mnemic.dsl.schema import schema as describe
from mnemic.errors import UsageError
from mnemic.models.files import replacing

Output = Annotated[
    Path | None, typer.Option("-o", "--output", help="Write it to a file.", metavar="FILE")
]

OfSpaces = Annotated[bool, typer.Option("--space", help="Of spaces (mnemic search).")]


def schema(output: Output = None, space: OfSpaces = False) -> None:
    """Print or write the JSON Schema of a spec, or of a space to search.

    Editors find it by a spec's first line, # yaml-language-server: $schema=FILE. An existing file
    is replaced only where it is such a schema.
    """
    text = json.dumps(_described(space), indent=2, ensure_ascii=False) + "\n"
    if output is None:
        raw(text)
        return
    _refuse_foreign(output)
    with replacing(output) as beside:
        beside.write_text(text, encoding="utf-8")
    echo(f"wrote {output}")


def _described(space: bool) -> dict[str, Any]:
    if not space:
        return describe()
    from mnemic.search.space.schema import schema as of_spaces

    return of_spaces()


def _refuse_foreign(path: Path) -> None:
    if path.is_dir():
        raise UsageError(f"{path}: a folder; name a file")
    if path.exists() and not _ours(path):
        raise UsageError(f"{path}: not a schema that mnemic wrote; choose another file")


def _ours(path: Path) -> bool:
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return False
    identity = found.get("$id") if isinstance(found, dict) else None
    return isinstance(identity, str) and identity.startswith(
        ("urn:mnemic:spec:", "urn:mnemic:space:")
    )
