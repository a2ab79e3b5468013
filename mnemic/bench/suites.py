"""Measurements of any specs, resumable: `forms`, `decode`, `long`, `learn`, `recall`."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mnemic.bench import Told
from mnemic.bench.report import Figure, Report
from mnemic.bench.store import Store, versions
from mnemic.dsl.catalogue import names
from mnemic.dsl.hashing import spec_hash
from mnemic.errors import InvalidSpec
from mnemic.pipeline import Compiled, compile, read

Result = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """What a suite is asked for: ``length`` in tokens, in steps where it learns, or in chunks.

    ``again`` measures anew what the file ``out`` holds.
    """

    specs: tuple[str, ...] = ()
    length: int | None = None
    out: Path | None = None
    again: bool = False


@dataclass(frozen=True)
class Suite:
    """One measurement: its default length, what it does to a spec, and how that is told.

    ``counts`` names what the length counts.
    """

    length: int
    measure: Callable[[Compiled, int], Result]
    figures: Callable[[str, Result], Iterator[Figure]]
    sizes: str
    counts: str = "length"


def run(suite: str, asked: Asked, told: Told = lambda what: None) -> Report:
    """Measure the specs (all that compile, if none is named).

    Raises:
        UsageError: no such spec, or a file that holds something else.
        InvalidSpec: a named spec that does not compile.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _run(suite, asked, told)
    finally:
        torch.set_num_threads(before)


def _run(suite: str, asked: Asked, told: Told) -> Report:
    chosen = SUITES[suite]
    length = asked.length or chosen.length
    sizes = {chosen.counts: length, "sizes": chosen.sizes}
    known = Store(asked.out, f"mnemic bench {suite}", {**versions(), **sizes})
    figures, notes = list[Figure](), list[str]()
    specs = asked.specs or names()
    for index, name in enumerate(specs):
        told(f"{name} ({index + 1} of {len(specs)})")
        try:
            figures += chosen.figures(name, _result(chosen, name, length, known, asked.again))
        except InvalidSpec as refusal:
            if asked.specs:
                raise
            notes.append(f"{name}: {'; '.join(issue.message for issue in refusal.issues)}")
    return Report(tuple(figures), tuple(notes))


def _result(suite: Suite, name: str, length: int, store: Store, again: bool) -> Result:
    spec = read(name)
    key = spec_hash(spec)
    kept = None if again else store.known(name, key)
    if kept is not None:
        return kept
    found = suite.measure(compile(spec), length)
    store.keep(name, key, found)
    return found


def setting(suite: str, length: int | None = None) -> str:
    """Return the versions and sizes on one line."""
    told = versions()
    chosen = SUITES[suite]
    count = f"{chosen.counts} {length or chosen.length}"
    return (
        f"{told['machine']}, torch {told['torch']}, python {told['python']}; "
        f"{count}, {chosen.sizes}"
    )


# -- forms -------------------------------------------------------------------------------------


def _forms(compiled: Compiled, length: int) -> Result:
    from mnemic.bench import forms

    return forms.measured(compiled, length)


def _forms_figures(name: str, found: Mapping[str, Any]) -> Iterator[Figure]:
    from mnemic.bench import forms

    yield from forms.compare_times(name, found)


# -- decoding -----------------------------------------------------------------------------------


def _decode(compiled: Compiled, length: int) -> Result:
    from mnemic.bench import decode

    # a tree's levels hold so many tokens, the timed ones among them
    most = compiled.operator.signature.at_most(length + decode.STEPS) - decode.STEPS
    contexts = (64, *(c for c in decode.CONTEXTS[1:] if c < length), length)
    kept = dict.fromkeys(max(0, min(c, most)) for c in contexts)
    found = decode.run(compiled, tuple(kept)).to_json()
    return {**found, **{n: {str(k): v for k, v in found[n].items()} for n in ("bytes", "seconds")}}


def _decode_figures(name: str, found: Mapping[str, Any]) -> Iterator[Figure]:
    from mnemic.bench.decode import FLAT

    sizes, times = list(found["bytes"].values()), list(found["seconds"].values())
    kind = f"{sizes[0]} bytes" if found["fixed"] else f"growing, {sizes[0]} to {sizes[-1]} bytes"
    spent = ", ".join(f"{t * 1e3:.3f}" for t in times)
    detail = f"{kind}; ms a token at {', '.join(found['bytes'])}: {spent}"
    goal = FLAT if found["fixed"] else None
    yield Figure(f"{name}, a token late over early", found["ratio"], "x", detail, most=goal)


# -- the long run -------------------------------------------------------------------------------


def _long(compiled: Compiled, length: int) -> Result:
    from mnemic.bench import long

    return long.run(compiled, length).to_json()


def _long_figures(name: str, found: Mapping[str, Any]) -> Iterator[Figure]:
    from mnemic.bench.long import ALLOWED

    for kind, p in found["precisions"].items():
        worst = p["worst"] if p["finite"] and p["worst"] is not None else math.nan
        detail = (
            f"last {_number(p['last']):.1e}; {found['form']}, {found['place']} the bound, "
            f"T={found['length']}, {found['seconds']:.0f} s"
        )
        yield Figure(f"{name}, {kind}, worst error", worst, "", detail, most=ALLOWED[kind])


# -- learning -----------------------------------------------------------------------------------


def _learn(compiled: Compiled, length: int) -> Result:
    from mnemic.bench import learn

    return learn.run(compiled, length)


def _learn_figures(name: str, found: Mapping[str, Any]) -> Iterator[Figure]:
    from mnemic.bench.learn import FALLEN, TASKS

    for task in TASKS:
        first, last = (_number(found[task][end]) for end in ("first", "last"))
        detail = f"{first:.3f} to {last:.3f} nats, {found[task]['seconds']:.0f} s"
        yield Figure(f"{name}, {task}, loss last over first", last / first, "x", detail,
                     most=FALLEN)  # fmt: skip


# -- recall, chunk by chunk ----------------------------------------------------------------------


def _recall(compiled: Compiled, length: int) -> Result:
    from mnemic.bench import recall

    return recall.run(compiled, length).to_json()


def _recall_figures(name: str, found: Mapping[str, Any]) -> Iterator[Figure]:
    from mnemic.bench.recall import KEPT

    cosines = " ".join(f"{_number(cosine):.2f}" for cosine in found["cosines"])
    detail = f"chunks of {found['tokens']}: {cosines}"
    yield Figure(f"{name}, recall of late chunks over the first", _number(found["share"]), "x",
                 detail, least=KEPT)  # fmt: skip


def _number(kept: float | None) -> float:
    """Return a kept number; null in a file stands for NaN."""
    return math.nan if kept is None else kept


SUITES: Final[dict[str, Suite]] = {
    "forms": Suite(1024, _forms, _forms_figures, "B=1 H=4 d=64, float32"),
    "decode": Suite(16_384, _decode, _decode_figures, "B=1 H=4 d=16, float32"),
    "long": Suite(65_536, _long, _long_figures, "B=1 H=1 d=16, float32 and bfloat16"),
    "learn": Suite(
        200,
        _learn,
        _learn_figures,
        "one block of 32 channels in four heads, batches of 16; two pairs in T=32, bytes T=64",
        "steps",
    ),
    "recall": Suite(
        16, _recall, _recall_figures, "B=1 H=1 d=32, float64; chunks of 16 or more", "chunks"
    ),
}
