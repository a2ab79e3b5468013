"""``mnemic check``: is a spec valid, and what should one hear before training?

Nothing heavy is imported for a spec that was checked before: its warnings are kept on disk.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from mnemic import pipeline
from mnemic.cli.arguments import AsJson, SpecArguments
from mnemic.cli.facts import find_ahead, kernels, uncompiled, warned
from mnemic.cli.output import echo, print_json, progress, tell
from mnemic.compiler import published
from mnemic.dsl.catalogue import names
from mnemic.dsl.hashing import spec_hash
from mnemic.dsl.load import load
from mnemic.dsl.spec import Spec
from mnemic.dsl.writing import short
from mnemic.errors import MnemicError, UsageError

AXES = (
    "features", "memory", "bias", "weights", "window", "retention", "optimizer",
    "coefficients", "keys", "readout", "block",
)  # fmt: skip
SEVEN = AXES[:7]

Derive = Annotated[bool, typer.Option("--derive", help="Print the derived class and forms too.")]


def check(specs: SpecArguments, as_json: AsJson = False, derive: Derive = False) -> None:
    """Check that specs are valid; print what each one says, and what speaks against it.

    All errors are reported, in the order of the text, each with its place, what was read, what is
    allowed and the nearest match; a spec from which no rule is derived is an error, too. A rule
    that is derived but cannot be compiled is reported with the reason; compile refuses it.
    Warnings, such as of coefficients outside the stable range, are no errors. What follows from
    the derived rule is cached. In a folder, every .yaml and .yml below it is checked; several
    processes derive many specs.

    JSON: {"specs": [{"source", "valid", "compiles", "name", "title", "hash", "axes", "refused",
    "warnings"}, ...]};
    "error" in place of the rest where a spec is not valid; with --derive also "class", "reason",
    "forms", "kernels": [{"form", "kernel", "gradient", "why", "text"}, ...].
    """
    code, found = 0, []
    read = [(source, _read(source)) for given in specs for source in _of(given)]
    many = [spec for _, spec in read if isinstance(spec, Spec)]
    if len(many) > 1:
        with progress("deriving") as told:
            find_ahead(many, told)
    for source, spec in read:
        try:
            if not isinstance(spec, Spec):
                raise spec
            entry = _checked(source, spec, derive)
            if not as_json:
                _show(entry)
        except MnemicError as error:
            entry = {"source": source, "valid": False, "error": error.to_json()}
            code = max(code, error.exit_code)
            if not as_json:
                tell(error)
        found.append(entry)
    if as_json:
        print_json({"specs": found})
    if code:
        raise typer.Exit(code)


def _of(given: str) -> Iterable[str]:
    """Return the specs of an argument: of a folder, all files in it that end in .yaml or .yml."""
    if given in names() or not Path(given).is_dir():
        return (given,)
    found = sorted(str(x) for x in Path(given).rglob("*") if x.suffix in (".yaml", ".yml"))
    if not found:
        raise UsageError(f"{given}: no file there ends in .yaml or .yml")
    return found


def _read(source: str) -> Spec | MnemicError:
    """Load a spec; return it, or the error that says what is wrong with it."""
    try:
        return load(source, beside=(published.issues,))
    except MnemicError as error:
        return error


def _checked(source: str, spec: Spec, derive: bool) -> dict[str, Any]:
    with pipeline.placed(spec, source):
        told = _derived(spec, derive)
        warnings = [*warned(spec)]
    reasons = uncompiled(spec, source)
    known = {"source": source, "valid": True, "compiles": not reasons, **summary(spec), **told}
    return {**known, "refused": reasons, "warnings": warnings}


def summary(spec: Spec) -> dict[str, Any]:
    """Return what a spec says, in its short form: name, title, hash, axes."""
    said = short(spec)
    axes = {axis: said.get(axis, _plain(spec, axis)) for axis in AXES}
    return {
        "name": spec.name,
        "title": spec.title,
        "hash": spec_hash(spec),
        "axes": {axis: value for axis, value in axes.items() if value is not None},
    }


def _plain(spec: Spec, axis: str) -> Any:
    """Return the word for one of the seven axes where a spec leaves it out; None for others."""
    if axis not in SEVEN:
        return None
    entry = getattr(spec, axis)
    entry = getattr(entry, "local", entry)
    return getattr(entry, "method", None) or (entry.word() if hasattr(entry, "word") else entry)


def _derived(spec: Spec, wanted: bool) -> dict[str, Any]:
    if not wanted:
        return {}
    structure = pipeline.derive(spec).structure
    return {
        "class": structure.kind,
        "reason": structure.reason,
        "forms": list(structure.forms),
        "kernels": kernels(spec),
    }


def _show(entry: dict[str, Any]) -> None:
    title = f" ({entry['title']})" if entry["title"] else ""
    told = "valid" if entry["compiles"] else "valid, but not compiled"
    echo(f"{entry['name']}: {told}{title}, {entry['hash'][:12]}")
    for axis, value in entry["axes"].items():
        echo(f"  {axis:<12} {flow(value)}")
    if "class" in entry:
        echo(f"  {'class':<12} {entry['class']}: {entry['reason']}")
        echo(f"  {'forms':<12} {', '.join(entry['forms']) or 'none yet'}")
        for kernel in entry["kernels"]:
            echo(f"  {'fused kernel':<12} {kernel['text']}")
    for reason in entry["refused"]:
        echo(f"  not compiled: {reason}")
    for warning in entry["warnings"]:
        echo(f"  warning: {warning}")


def flow(value: Any) -> str:
    """Return plain data on one line, as a spec would have it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    return str(value)
