"""A Markdown page of what `decode`, `long`, `learn`, `recall` and `forms` kept as JSON files."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from mnemic.bench.decode import FLAT
from mnemic.bench.learn import BLIND, CONTROL, FALLEN
from mnemic.bench.long import ALLOWED
from mnemic.bench.recall import KEPT, LATE
from mnemic.bench.store import Kept, load
from mnemic.dsl.catalogue import names
from mnemic.dsl.hashing import spec_hash
from mnemic.errors import UsageError
from mnemic.pipeline import read

Result = Mapping[str, Any]
Suites = Mapping[str, Mapping[str, Result]]

FEW: Final = 12
"""Fewer specs than these are named beside their file."""
HEAD: Final = f"""# Measured

Made by `mnemic bench table benchmarks/results`; nothing here is written by hand. Every figure is a
spec's own defaults as a layer starts with them.

- *State* is what decoding keeps, in bytes, for four heads of 16 channels in float32, and *token*
  the time of one token after the longest text over that after the shortest, the least of several
  rounds in turns: 1 is flat. Times are of a machine that others use too.
- *Error* is that of a long run on text that repeats and correlates, the largest relative RMS error
  of any 1,024 tokens against float64 on the same rounded numbers; above {ALLOWED["float32"]:g}
  (bfloat16 {ALLOWED["bfloat16"]:g}) it counts as failed. T is shorter where the state grows
  with T, or the features have a longest text.
  *Bound* is where the coefficients lie by `mnemic derive`; `!` where it warns.
- *Recall* and *bytes* are losses in nats, the first and the last ten steps of a training. The loss
  must fall to {FALLEN:g} of its start. Recall near ln 8 = {BLIND:.2f} knows the values and not
  their keys; a control whose memory forgets each token at once came to 2.09 under the dot loss and
  1.56 under l2 in 200 steps, so only what is well below {CONTROL:g} shows that the memory is used.
  One that forgets within fewer tokens than lie between a pair and its question, or is read at the
  start of a chunk longer than the text, stays above, and so may one after fewer steps.
- *Chunks* is the mean cosine between a random value and what the memory answers to its key at the
  end of their chunk, untrained: of the first chunk, and of all from the {LATE + 1}th on. Values
  of 32 channels stand at keys of length one: a raw key beside the memory hides what is small.
- `*` marks a spec that has changed since it was measured.
"""

COLUMNS: Final = (
    "spec", "state", "token", "T", "float32", "bfloat16", "bound", "recall", "bytes",
    "chunks",
)  # fmt: skip


def page(folder: Path) -> str:
    """Return the page of the results in a folder.

    Raises:
        UsageError: the folder has no results, or a file that is something else.
    """
    paths = sorted(folder.glob("*.json"), key=lambda path: path.stem)
    files = [(path.name, load(path)) for path in paths if not _elsewhere(path)]
    files = [(name, kept) for name, kept in files if _suite(kept) in (*CELLS, "forms")]
    if not any(kept.results for _, kept in files):
        raise UsageError(
            f"{folder}: no results of mnemic bench decode, long, learn, recall or forms"
        )
    suites = _by_suite(files)
    parts = [HEAD, _settings(files), _rows(COLUMNS, _specs(suites))]
    if forms := suites["forms"]:
        heading = ("spec", *FORMS)
        parts += [f"## Chunk over token by token\n\n{_rows(heading, _forms(forms))}"]
    return "\n".join([*parts, _failures(suites)])


def _elsewhere(path: Path) -> bool:
    """Return whether a file says that another program made it, so it is none of these results."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return False
    if not isinstance(found, dict):
        return False
    by = str(found.get("made_by", found.get("command", "")))
    return by.startswith(("benchmarks/", "tests/"))


def _by_suite(files: list[tuple[str, Kept]]) -> Suites:
    """Return the results of each suite; of a spec in several files, those of the first."""
    found: dict[str, dict[str, Result]] = {suite: {} for suite in (*CELLS, "forms")}
    for _, kept in files:
        found[_suite(kept)] = {**kept.results, **found[_suite(kept)]}
    return found


def _suite(kept: Kept) -> str:
    """Return what was measured: the last word of the command."""
    return kept.command.rpartition(" ")[2]


def _settings(files: list[tuple[str, Kept]]) -> str:
    lines = []
    for name, kept in files:
        dates = sorted({result["date"] for result in kept.results.values()})
        said = ", ".join(f"{key} {value}" for key, value in kept.setting.items() if key != "sizes")
        when = " to ".join(dict.fromkeys((dates[0], dates[-1])))
        sizes = kept.setting.get("sizes", "")
        few = f" Of {', '.join(sorted(kept.results))}." if len(kept.results) < FEW else ""
        lines.append(f"- `{kept.command} -o {name}`, {when}: {said}; {sizes}.{few}")
    return "\n".join(lines) + "\n"


def _rows(heading: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [heading, ("---", *("---:" for _ in heading[1:])), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _specs(suites: Suites) -> Iterator[tuple[str, ...]]:
    for name in names():
        found = {suite: suites[suite].get(name) for suite in CELLS}
        if not any(found.values()):
            continue
        cells: list[str] = []
        for suite, (width, told) in CELLS.items():
            result = found.get(suite)
            cells += told(result) if result else ("",) * width
        yield (_marked(name, found), *cells)


def _marked(name: str, found: Mapping[str, Result | None]) -> str:
    key = spec_hash(read(name))
    changed = any(result is not None and result["key"] != key for result in found.values())
    return f"{name} *" if changed else name


def _decode(found: Result) -> tuple[str, ...]:
    sizes = list(found["bytes"].values())
    state = f"{sizes[0]:,}" if found["fixed"] else "grows"
    return state, f"{found['ratio']:.2f}"


def _long(found: Result) -> tuple[str, ...]:
    errors = (_error(found["precisions"][kind]) for kind in ALLOWED)
    place = found["place"] + (" !" if found["warned"] else "")
    return f"{found['length']:,}", *errors, place


def _error(found: Result) -> str:
    return f"{found['worst']:.1e}" if found["finite"] and found["worst"] is not None else "NaN"


def _learn(found: Result) -> tuple[str, ...]:
    return _fall(found["mqar"]), _fall(found["bytes"])


def _fall(found: Result) -> str:
    first, last = (math.nan if found[n] is None else found[n] for n in ("first", "last"))
    return f"{first:.2f} → {last:.2f}"


def _recall(found: Result) -> tuple[str, ...]:
    late = math.nan if found["late"] is None else found["late"]
    return (f"{found['cosines'][0]:.2f} → {late:.2f}",)


CELLS: Final[dict[str, tuple[int, Callable[[Result], tuple[str, ...]]]]] = {
    "decode": (2, _decode),
    "long": (4, _long),
    "learn": (2, _learn),
    "recall": (1, _recall),
}
"""By suite the columns that it fills, and how."""

FORMS: Final = ("forward", "forward+backward")


def _forms(results: Mapping[str, Result]) -> Iterator[tuple[str, ...]]:
    for name, found in results.items():
        yield (_marked(name, {"forms": found}), *(_times(found.get(way)) for way in FORMS))


def _times(found: Result | None) -> str:
    if found is None:
        return "no chunk form"
    chunk, token = found["chunk"], found["recurrent"]
    return f"{token / chunk:.1f} ({token:.2f} s, {chunk:.2f} s)"


def _failures(suites: Suites) -> str:
    """List in words what missed its goal, and what was not measured."""
    said = (
        (
            f"A token late over early above {FLAT:g}, the state being fixed",
            "decode",
            _slower,
        ),
        ("Nothing of what was written left at the end, an error of exactly 0", "long", _faded),
        ("In the long run not finite, or errors that grew", "long", _grew),
        ("A loss that did not fall", "learn", _stayed),
        ("Recall above the control, not shown to need the memory", "learn", _blind),
        (f"Late chunks recalled less than {KEPT:g} of the first", "recall", _early),
    )
    lines = ""
    for what, suite, missed in said:
        specs = sorted(name for name, found in suites[suite].items() if missed(found))
        lines += f"- {what}: {', '.join(specs) or 'none'}.\n"
    for suite in CELLS:
        absent = [name for name in names() if name not in suites[suite]]
        lines += f"- Not measured by `{suite}`: {', '.join(absent) or 'none'}.\n"
    return f"## Missed\n\n{lines}"


def _slower(found: Result) -> bool:
    return bool(found["fixed"]) and found["ratio"] > FLAT


def _faded(found: Result) -> bool:
    return bool(found["precisions"]["float32"]["last"] == 0)


def _grew(found: Result) -> bool:
    return not found["passed"]


def _stayed(found: Result) -> bool:
    return any(
        found[task]["last"] is None or found[task]["last"] > FALLEN * found[task]["first"]
        for task in ("mqar", "bytes")
    )


def _early(found: Result) -> bool:
    return found["share"] is None or found["share"] < KEPT


def _blind(found: Result) -> bool:
    return found["mqar"]["last"] is None or found["mqar"]["last"] > CONTROL
