"""The page of whole models beside a transformer, of what `curves`, `training`, `decoding` kept."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from mnemic.bench.models import decoding, training
from mnemic.bench.models.decoding import STATIC
from mnemic.bench.models.pictures import Line, draw
from mnemic.bench.models.subjects import EACH, NAMED_AFTER, TRANSFORMER
from mnemic.bench.models.suites import OVERHEAD, SUITES, Asked
from mnemic.bench.store import Kept, load
from mnemic.errors import UsageError
from mnemic.models.files import replacing

Results = Mapping[str, Mapping[str, Any]]

HEAD: Final = """# Models beside a transformer

Whole models of two million parameters, in float32 on one thread of a CPU. The transformer is the
Llama of the package transformers with PyTorch's attention. Its feed-forward is wide enough to give
it as many parameters as the gated DeltaNet, and its matrices are drawn from N(0, 1/channels), as
ours are. `mnemic bench page benchmarks/results -o docs/beside.md` writes this page; nothing on it
is written by hand.

Times are processor time. They are noisy, since the machine does other work too. A ratio compares
runs that took turns in one process, and takes the shortest of several runs of each.
"""

LEARNING: Final = """## Learning

Bits per byte on held-out modules of Python's standard library: mean ± standard deviation over
seeds, which choose the initial weights and the order of the text. All models train with the same
learning rate, constant after its warm-up and not tuned for any of them. For equal time, every model
has as long as the fastest takes for all its steps. These are the first steps of training, and say
little about where it would end.

![Held-out bits a byte over steps and over seconds](images/{picture})

"""

TRAINING: Final = """## Training

Tokens per second of a forward and backward pass on one sequence; in brackets, the multiple of the
transformer's speed. *Model / parts* is the time of the whole model divided by the sum of the times
of its memory layers, feed-forwards and head, each run forward and backward alone; the goal is
{goal}. The transformer's own row is its fastest run in any process. A length at which a model ran
out of memory is left out.

![Tokens a second over the length](images/{picture})

"""

DECODING: Final = """## Decoding

Tokens per second, generated one at a time after a context of the given length, and the size of the
cache. In brackets, the multiple of the transformer's speed with the cache that `generate()` uses by
default. *Static cache* is the transformer with a cache of its final size, written in place. A
context that takes a model more than two minutes to read is left out.

![Tokens a second over the context](images/{picture})

"""


def write(folder: Path, page: Path) -> list[Path]:
    """Write the page and its pictures; return what was written.

    Raises:
        UsageError: the folder has no such results.
    """
    parts, written = [HEAD], []
    for suite, tell in TOLD.items():
        path = folder / f"{suite}.json"
        if not path.is_file():
            continue
        kept = load(path)
        told = f"`{kept.command} -o {path.name}`, {_dates(kept)}: {_setting(kept)}."
        if absent := _absent(suite, kept.results):
            told += f"\n\nNot measured yet: {', '.join(absent)}."
        picture = page.parent / "images" / f"models_{suite}.png"
        parts.append(f"{tell(kept.results, picture)}\n{told}\n")
        written.append(picture)
    if not written:
        raise UsageError(f"{folder}: no {', '.join(f'{suite}.json' for suite in SUITES)}")
    with replacing(page) as beside:
        beside.write_text("\n".join(parts), encoding="utf-8")
    return [page, *written]


def _absent(suite: str, results: Results) -> list[str]:
    """Return what the command would still measure, run without specs."""
    _, jobs = SUITES[suite].jobs((TRANSFORMER, *EACH), Asked())
    return [job.name for job in jobs if job.name not in results]


def _dates(kept: Kept) -> str:
    dates = sorted({result["date"] for result in kept.results.values()})
    return " to ".join(dict.fromkeys((dates[0], dates[-1])))


def _setting(kept: Kept) -> str:
    told = ", ".join(f"{key} {x}" for key, x in kept.setting.items() if key != "sizes")
    return f"{told}; {kept.setting['sizes']}"


def _rows(heading: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [heading, ("---", *("---:" for _ in heading[1:])), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


# -- learning ------------------------------------------------------------------------------------


def _curves(results: Results, picture: Path) -> str:
    """Draw and tabulate bits a byte after equal steps and in equal time."""
    runs: dict[str, list[Mapping[str, Any]]] = {}
    for name, one in results.items():
        runs.setdefault(name.rpartition(" seed ")[0], []).append(one)
    runs = {TRANSFORMER: runs.pop(TRANSFORMER), **runs}
    steps = runs[TRANSFORMER][0]["steps"]
    mean = {name: [_mean(x) for x in zip(*(r["bits"] for r in of), strict=True)]
            for name, of in runs.items()}  # fmt: skip
    time = {name: [_mean(x) for x in zip(*(r["seconds"] for r in of), strict=True)]
            for name, of in runs.items()}  # fmt: skip
    shortest = min(spent[-1] for spent in time.values())
    panels: dict[str, dict[str, Line]] = {
        "equal steps": {name: (steps[1:], bits[1:]) for name, bits in mean.items()},
        "equal time": {name: (time[name][1:], bits[1:]) for name, bits in mean.items()},
    }
    y = {"ylabel": "held-out bits a byte"}
    draw(picture, panels, ({"xlabel": "step", **y}, {"xlabel": "seconds", "xscale": "log", **y}))

    def rows() -> Iterator[tuple[str, ...]]:
        for name, of in sorted(runs.items(), key=lambda item: mean[item[0]][-1]):
            then = [at(run["seconds"], run["bits"], shortest) for run in of]
            yield (name, f"{of[0]['parameters']:,}", str(len(of)),
                   _spread([run["bits"][-1] for run in of]), _spread(then),
                   f"{time[name][-1]:.0f}")  # fmt: skip

    heading = ("model", "parameters", "seeds", f"after {steps[-1]} steps",
               f"after {shortest:.0f} s", "seconds of all steps")  # fmt: skip
    return LEARNING.format(picture=picture.name) + _rows(heading, rows())


def at(seconds: list[float], bits: list[float], moment: float) -> float:
    """Return the bits at a moment, on the line between the two evaluations around it."""
    for i in range(1, len(seconds)):
        if seconds[i] >= moment:
            part = (moment - seconds[i - 1]) / (seconds[i] - seconds[i - 1])
            return bits[i - 1] + part * (bits[i] - bits[i - 1])
    return bits[-1]


def _mean(numbers: Any) -> float:
    return statistics.fmean(numbers)


def _spread(numbers: list[float]) -> str:
    if len(numbers) == 1:
        return f"{numbers[0]:.3f}"
    return f"{_mean(numbers):.3f} ± {statistics.stdev(numbers):.3f}"


# -- speed ---------------------------------------------------------------------------------------


def _training(results: Results, picture: Path) -> str:
    """Draw and tabulate tokens a second in training, beside the transformer in the same process."""
    lengths = max((list(one["seconds"]) for one in results.values()), key=len)
    least = _least(results, TRANSFORMER)
    _draw_speed(picture, results, least, "tokens in the sequence", lambda at, s: int(at) / s)

    def rows() -> Iterator[tuple[str, ...]]:
        yield (TRANSFORMER, *(f"{int(n) / least[n]:,.0f}" for n in lengths), "")
        for name, one in results.items():
            cells = (_cell(one["seconds"].get(n), int(n)) for n in lengths)
            yield (name, *cells, f"{one['parts']['model'] / one['parts']['parts']:.2f}")

    heading = ("model", *(f"T = {int(n):,}" for n in lengths), "model / parts")
    told = TRAINING.format(picture=picture.name, goal=f"{OVERHEAD:g}")
    return told + _rows(heading, rows()) + _goal(results, training.OVERTAKES)


def _decoding(results: Results, picture: Path) -> str:
    """Draw and tabulate tokens a second, and the bytes of the cache, by context."""
    contexts = max((list(one["seconds"]) for one in results.values()), key=len)
    least = {kind: _least(results, kind) for kind in (TRANSFORMER, STATIC)}
    _draw_speed(picture, results, least[TRANSFORMER], "tokens of context", lambda at, s: 1 / s)
    kept: dict[str, int] = {}
    for one in results.values():
        kept |= {n: x[TRANSFORMER] for n, x in one["bytes"].items()}

    def rows() -> Iterator[tuple[str, ...]]:
        for kind, seconds in least.items():
            bytes_ = (f"{kept[n] / 2**20:.1f}" for n in contexts)
            yield (kind, *(f"{1 / seconds[n]:,.0f}" for n in contexts), *bytes_)
        for name, one in results.items():
            cells = (_cell(one["seconds"].get(n), 1) for n in contexts)
            sizes = (_size(one["bytes"].get(n)) for n in contexts)
            yield (name, *cells, *sizes)

    heading = ("model", *(f"after {int(n):,}" for n in contexts),
               *(f"MiB at {int(n):,}" for n in contexts))  # fmt: skip
    told = DECODING.format(picture=picture.name)
    return told + _rows(heading, rows()) + _goal(results, decoding.OVERTAKES)


def _goal(results: Results, least: int) -> str:
    """Say whether the model that has a goal is as fast as the transformer from so many tokens."""
    if NAMED_AFTER not in results:
        return ""
    seconds = results[NAMED_AFTER]["seconds"]
    slower = [n for n, s in seconds.items() if int(n) >= least and s["model"] > s[TRANSFORMER]]
    missed = f"missed at {', '.join(f'{int(n):,}' for n in slower)}" if slower else "met"
    goal = f"{NAMED_AFTER} is as fast as the transformer from {least:,} tokens on"
    return f"\nGoal: {goal}; {missed}.\n"


def _least(results: Results, kind: str) -> dict[str, float]:
    """Return the least seconds of a kind in any process, by length."""
    found: dict[str, float] = {}
    for one in results.values():
        for n, seconds in one["seconds"].items():
            found[n] = min(found.get(n, float("inf")), seconds[kind])
    return found


def _cell(seconds: Mapping[str, float] | None, tokens: int) -> str:
    if seconds is None:
        return "–"
    return f"{tokens / seconds['model']:,.0f} ({seconds[TRANSFORMER] / seconds['model']:.2f})"


def _size(kept: Mapping[str, int] | None) -> str:
    return "–" if kept is None else f"{kept['model'] / 2**20:.1f}"


def _draw_speed(
    picture: Path,
    results: Results,
    least: Mapping[str, float],
    label: str,
    speed: Callable[[str, float], float],
) -> None:
    first = {n: {"model": x} for n, x in least.items()}
    told = {TRANSFORMER: first, **{name: one["seconds"] for name, one in results.items()}}
    lines: dict[str, Line] = {
        name: ([int(n) for n in by], [speed(n, s["model"]) for n, s in by.items()])
        for name, by in told.items()
    }
    shares: dict[str, Line] = {TRANSFORMER: ([int(n) for n in least], [1.0 for _ in least])}
    for name, one in results.items():
        by = one["seconds"]
        shares[name] = (
            [int(n) for n in by],
            [s[TRANSFORMER] / s["model"] for s in by.values()],
        )
    x = {"xlabel": label, "xscale": "log"}
    draw(picture, {"tokens a second": lines, "over the transformer": shares},
         ({**x, "yscale": "log"}, {**x, "yscale": "log"}))  # fmt: skip


TOLD: Final[dict[str, Callable[[Results, Path], str]]] = {
    "curves": _curves,
    "training": _training,
    "decoding": _decoding,
}
"""By suite, the function that writes its section of the page."""
