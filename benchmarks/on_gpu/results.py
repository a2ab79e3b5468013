"""Results on disk, and the table that the docs show of them."""

import datetime
import json
import os
import platform
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

HEADINGS = ("row", "B × T × H × d", "pass", "runner", "eager ms", "graph ms", "of the floor",
            "against fla", "note")  # fmt: skip

PEAKS = {"H100": 3.35e12, "H200": 4.8e12, "A100": 2.039e12, "B200": 8.0e12}
"""Bytes a second of device memory, from the maker's data sheets."""
PRODUCTS = {"H100": 989e12, "H200": 989e12, "A100": 312e12, "B200": 2250e12}
"""Operations a second of dense bf16 products, from the same."""

COMPILED = 5.0
"""How many times faster than torch.compile of the chunk form is asked for, where that is timed."""
DECODED = 0.85
"""The share of the memory's bandwidth that decoding should reach."""
MULTIPLIED = 0.25
"""The share of the products' peak, of rows that name their products."""


def versions() -> dict[str, str | None]:
    """Of everything that times depend on."""
    found: dict[str, str | None] = {"python": platform.python_version(), "torch": torch.__version__}
    for name in ("triton", "flash-linear-attention", "fla-core", "mnemic"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return {**found, "cuda": torch.version.cuda}


def device(name: str) -> dict[str, Any]:
    """The device in words."""
    if name != "cuda":
        return {"name": f"{platform.machine()} CPU", "threads": torch.get_num_threads()}
    told = torch.cuda.get_device_properties(0)
    return {"name": told.name, "capability": [told.major, told.minor],
            "memory": told.total_memory, "processors": told.multi_processor_count}  # fmt: skip


def begun(name: str, dry: bool, dtype: torch.dtype) -> dict[str, Any]:
    """A document of results without rows."""
    return {
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "device": device(name), "versions": versions(), "dry": dry,
        "dtype": str(dtype).removeprefix("torch."), "rows": [],
    }  # fmt: skip


def save(found: Mapping[str, Any], path: Path) -> None:
    """Write the document whole; called after each row, so that an end in between loses one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, beside = tempfile.mkstemp(prefix=".results.", dir=path.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(json.dumps(found, indent=1) + "\n")
    os.replace(beside, path)


def table(found: Mapping[str, Any]) -> str:
    """The results as Markdown."""
    told = ", ".join(f"{n} {v}" for n, v in found["versions"].items() if v)
    dry = " A dry run: the times mean nothing." if found["dry"] else ""
    head = f"{found['device']['name']}, {found['dtype']}, {found['date']}; {told}.{dry}"
    lines = [_line(HEADINGS), _line("---" for _ in HEADINGS)]
    lines += [_line(cells) for one in found["rows"] for cells in _cells(one, found)]
    failed = [f"- {one['row']['name']}: {name}: {why}"
              for one in found["rows"] for name, why in one["failed"].items()]  # fmt: skip
    return "\n".join(
        [head, "", *lines, *(["", "Not measured:", "", *failed] if failed else []), ""]
    )


def failures(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield what failed of our own forms, a line each; peers may be missing."""
    for one in found["rows"]:
        for name, why in one["failed"].items():
            if name.startswith("mnemic"):
                yield f"{one['row']['name']}: {name}: {why}"


def _cells(one: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    row = one["row"]
    size = f"{row['batch']} × {row['tokens']} × {row['heads']} × {row['width']}"
    for way, runners in one["ways"].items():
        theirs = _best(runners.get("fla", {}))
        for name, times in runners.items():
            best = _best(times)
            if best is None:
                continue
            against = f"{theirs / best:.2f}×" if theirs and name.startswith("mnemic") else ""
            yield (
                row["name"], size, way, name, _ms(times.get("eager")), _ms(times.get("graph")),
                _of_floor(one, way, name, best, found), against, _note(one, name),
            )  # fmt: skip


def _best(times: Mapping[str, Any]) -> float | None:
    known = [times[n] for n in ("graph", "eager") if n in times]
    return min(known) if known else None


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.3f}"


def _of_floor(one: Mapping[str, Any], way: str, name: str, best: float,
              found: Mapping[str, Any]) -> str:  # fmt: skip
    share = _bandwidth(one, way, name, best, found)
    return "" if share is None else f"{share:.0%}"


def _bandwidth(one: Mapping[str, Any], way: str, name: str, best: float,
               found: Mapping[str, Any]) -> float | None:  # fmt: skip
    """The least time that the memory allows, as a share of the time taken."""
    peak = _peak(PEAKS, found)
    told = one["runners"].get(name, {}).get("bytes")
    if peak is None or told is None:
        return None
    least: float = told["forward" if way == "forward" else "both"] / peak
    return least / best


def _peak(peaks: Mapping[str, float], found: Mapping[str, Any]) -> float | None:
    """Of the device that was measured, if it is known."""
    device = found["device"]["name"]
    return next((peak for word, peak in peaks.items() if word in device), None)


def _note(one: Mapping[str, Any], name: str) -> str:
    told = one["runners"].get(name, {})
    same = "" if told.get("same", True) else "; computes something else"
    apart = f"; apart {told['apart']:.0e}" if "apart" in told else ""
    return f"{told.get('what', '')}{same}{apart}"


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


# -- goals -------------------------------------------------------------------------------------


def goals(found: Mapping[str, Any]) -> Iterator[str]:
    """The goals that the rows name, and whether they are met."""
    for one in found["rows"]:
        for way, runners in one["ways"].items():
            mine = _best(runners.get(OURS, {}))
            if mine:
                for text, met in _against(one, way, runners, mine, found):
                    verdict = "met   " if met else "MISSED"
                    yield f"{verdict} {one['row']['name']}, {way}: {text}"


OURS = "mnemic triton"


def _against(one: Mapping[str, Any], way: str, runners: Mapping[str, Any], mine: float,
             found: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:  # fmt: skip
    """What a time of ours is held against."""
    row = one["row"]
    for name, least in (("fla", row["goal"]), ("compiled chunk", COMPILED)):
        theirs = _best(runners.get(name, {}))
        if theirs:
            yield f"{theirs / mine:.2f}× {name}, {least:g}× asked for", theirs / mine >= least
    if row["own"]:
        other, most = row["own"]
        beside = _beside(other, way, found)
        if beside:
            yield (
                f"{mine / beside:.2f}× the time of '{other}', {most:g}× allowed",
                (mine / beside <= most),
            )
    share = _bandwidth(one, way, OURS, mine, found)
    if row["decode"] and share is not None:
        yield f"{share:.0%} of the bandwidth, {DECODED:.0%} asked for", share >= DECODED
    peak = _peak(PRODUCTS, found)
    if row["products"] and peak and way == "forward":
        share = row["products"] * row["batch"] * row["tokens"] * row["heads"] / mine / peak
        yield f"{share:.0%} of the products' peak, {MULTIPLIED:.0%} asked for", share >= MULTIPLIED


def _beside(name: str, way: str, found: Mapping[str, Any]) -> float | None:
    """The time of another row of ours."""
    by_name = {one["row"]["name"]: one for one in found["rows"]}
    ways = by_name.get(name, {}).get("ways", {})
    return _best(ways.get(way, {}).get(OURS, {}))
