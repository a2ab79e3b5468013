"""flash-linear-attention's gated delta rule through the simulation of generated kernels.

    python benchmarks/by_hand/peers.py -o benchmarks/kernels/peers.md

Every kernel of its chunk form and gradient is compiled for sm_90 in some configurations of its
autotuner (warps, stages, blocks), without a device; for each shape the configuration counts that
has the fewest cycles there, as a tuner would choose. Published times of the same calls, where there
are any, say how far the simulation is off.
"""

import argparse
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from math import prod
from pathlib import Path
from typing import Any, Final

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

BATCH, TOKENS, HEADS = 1, 512, 4
WIDTH = 128
BLOCKS, WARPS, STAGES = (32, 64), (2, 4), (2,)
"""Of kernels with a block of values to choose; of others the first few with such warps."""
FEW = 4

PUBLISHED: Final[Mapping[tuple[str, str], float]] = {
    ("forward", "8 x 4096 x 32, 128"): 1.97,
    ("forward", "1 x 8192 x 8, 128"): 0.234,
    ("forward", "1 x 65536 x 16, 128"): 2.5,
    ("both", "8 x 4096 x 32, 128"): 7.75,
    ("both", "1 x 8192 x 8, 128"): 0.96,
    ("both", "1 x 65536 x 16, 128"): 10.0,
}
"""Milliseconds of version 0.5.1 on an H200, among FlashQLA's published results: not measured here.
An H200 has an H100's multiprocessors and 4.8 TB/s of memory."""


@dataclass(frozen=True)
class Candidate:
    """A kernel in one configuration: its row as a table of cycles has it, how it is launched."""

    row: Mapping[str, str]
    options: str
    whole: bool
    of_rows: float


def compiled() -> tuple[dict[str, list[Candidate]], dict[str, list[Candidate]]]:
    """The kernels of a forward pass, and those of a gradient beside them, by name."""
    import torch
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    from mnemic.kernels.limits import target
    from mnemic.kernels.offline import compiling

    _every_configuration()
    shape = (BATCH, TOKENS, HEADS, WIDTH)
    q, k, v = (torch.zeros(shape, dtype=torch.bfloat16, requires_grad=True) for _ in "qkv")
    g = torch.zeros(shape[:3], requires_grad=True)
    beta = torch.zeros(shape[:3], dtype=torch.bfloat16, requires_grad=True)
    with compiling(target("sm_90"), stalls=True) as log:
        out, _ = chunk_gated_delta_rule(q, k, v, g, beta, output_final_state=True)
        forward = len(log.launches)
        out.sum().backward()
    found = _candidates(log, log.launches[:forward]), _candidates(log, log.launches[forward:])
    return found


def _every_configuration() -> None:
    """An autotuner runs what it tunes in every configuration, and times none."""
    from triton.runtime.autotuner import Autotuner, Config

    def run(self: Any, *given: Any, **options: Any) -> None:
        configurations = [c for c in self.configs if c.num_warps in WARPS][:FEW]
        if any("BV" in c.kwargs for c in self.configs):
            first = self.configs[0].kwargs
            configurations = [
                Config({**first, "BV": block}, num_warps=warps, num_stages=stages)
                for block in BLOCKS for warps in WARPS for stages in STAGES
            ]  # fmt: skip
        for one in configurations:
            self.fn.run(*given, **{**one.all_kwargs(), **options})

    for kind in (Autotuner, *Autotuner.__subclasses__()):
        kind.run = run  # type: ignore[method-assign]


def _candidates(log: Any, launches: list[Any]) -> dict[str, list[Candidate]]:
    found: dict[str, list[Candidate]] = defaultdict(list)
    memories, chunks = BATCH * HEADS, TOKENS // 64
    for launch in {x.key: x for x in launches}.values():
        kernel = log.known[launch.key]
        cycles, rows = kernel.cycles, int(kernel.constants.get("BT", 64))
        programs = prod(launch.grid) / memories
        programs /= chunks if cycles.whole else 1
        row = {
            "kernel": kernel.name, "of a": "program" if cycles.whole else "turn",
            "rows": str(rows), "programs": str(max(1, round(programs))), "inner": "",
            "blocks": str(kernel.blocks), "cycles": str(cycles.full), "alone": str(cycles.alone),
            "sizes": "",
        }  # fmt: skip
        named = {n: x for n, x in kernel.constants.items() if n in ("BV", "BK", "BC")}
        cut = " ".join(f"{n}={x}" for n, x in named.items())
        of_rows = cycles.full / cycles.beside * programs * 64 / rows
        options = f"{cut} {kernel.num_warps} warps, {kernel.num_stages} stages".strip()
        found[kernel.name].append(Candidate(row, options, cycles.whole, of_rows))
    return dict(found)


def table(found: tuple[dict[str, list[Candidate]], ...]) -> Iterator[str]:
    """Each kernel in its best configuration, then calls."""
    yield "| pass | kernel | configuration | of a | blocks | cycles | alone | 64 rows |"
    yield "| --- | --- | --- | --- | ---: | ---: | ---: | ---: |"
    for step, kernels in zip(("forward", "gradient"), found, strict=True):
        for name, candidates in kernels.items():
            best = min(candidates, key=lambda x: x.of_rows)
            cycles, alone = (f"{float(best.row[x]):.0f}" for x in ("cycles", "alone"))
            yield (f"| {step} | {name} | {best.options} | {best.row['of a']} | "
                   f"{best.row['blocks']} | {cycles} | {alone} | {best.of_rows:.0f} |")  # fmt: skip
    yield ""
    yield "| B x T x H, d | pass | ms by cycles | published | cycles / published |"
    yield "| --- | --- | ---: | ---: | ---: |"
    yield from _calls(found)
    yield ""


def _calls(found: tuple[dict[str, list[Candidate]], ...]) -> Iterator[str]:
    from mnemic.kernels.limits import target
    from mnemic.kernels.stalls.shapes import SHAPES, part

    for shape in SHAPES:
        if shape.width != WIDTH:
            continue
        parts = [
            sum(min(part(x.row, shape, target("sm_90")).seconds for x in candidates)
                for candidates in kernels.values())
            for kernels in found
        ]  # fmt: skip
        for step, seconds in (("forward", parts[0]), ("both", sum(parts))):
            told = PUBLISHED.get((step, str(shape)))
            share = "" if told is None else f"{1e3 * seconds / told:.2f}"
            yield f"| {shape} | {step} | {1e3 * seconds:.3g} | {told or ''} | {share} |"


def main() -> None:
    """Compile, simulate and write."""
    parser = argparse.ArgumentParser(description="A peer's kernels through the same simulation.")
    parser.add_argument("-o", "--out", type=Path)
    given = parser.parse_args()
    head = (Path(__file__).parent / "peers.txt").read_text(encoding="utf-8").format(
        triton=version("triton"), peer=version("fla-core")
    )  # fmt: skip
    text = head + "\n" + "\n".join(table(compiled()))
    print(text)
    if given.out:
        given.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
