"""Specs drawn at random, for as long as one likes: each ends right, or refused with a reason.

    python tests/fuzz.py --specs 500 --seed 7
    python tests/fuzz.py --specs 50 --seed 7 --kernels
    python tests/fuzz.py --again runs/fuzz/7/12.yaml

A spec's forms are compared with each other and with the rule's own interpreter, in float64 with
states and every gradient; its layer, as it starts, with its own recurrence in float32 at 32 and 64
rows a chunk; every Nth layer under ``torch.compile`` with itself (``--inductor N``); with
``--kernels`` its fused kernels, in Triton's interpreter, with the recurrence, fresh, from carried
states and cut in several ways.

Each is tried in a process that has some seconds of CPU and some memory, beyond which the spec has
failed. What fails is kept as ``FOLDER/SEED/NUMBER.yaml`` with its error; what came of each spec
stands in ``FOLDER/SEED/came.jsonl``, and a run that was cut short goes on from there. The exit code
is 1 if anything failed.
"""

import argparse
import json
import os
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent)]

Spec = dict[str, Any]

CHILD = Path(__file__).with_name("fuzz_checks.py")
PATIENCE = 12
"""How many times its seconds of CPU a spec may take by the clock, on a machine that is busy."""


class Worker:
    """A process that tries specs, begun anew when one of them has ended it."""

    def __init__(self, memory: float, *, interpret: bool) -> None:
        self.environment = {**os.environ, "FUZZ_MEMORY": str(memory), "OMP_NUM_THREADS": "1"}
        if interpret:
            self.environment["TRITON_INTERPRET"] = "1"
        self.process: subprocess.Popen[str] | None = None

    def ask(self, spec: Spec, checks: list[str], seconds: float) -> dict[str, str]:
        """What came of a spec."""
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "ignore", CHILD], stdin=subprocess.PIPE, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=self.environment,
            )  # fmt: skip
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        question = {"spec": spec, "checks": checks, "seconds": seconds}
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], max(60.0, PATIENCE * seconds))
        answer = self.process.stdout.readline() if ready else ""
        if answer:
            found: dict[str, str] = json.loads(answer)
            return found
        code = self.end()
        told = f"no answer in {seconds:g} s, or not enough memory (exit code {code})"
        return {"came": "FAILED", "why": told}

    def end(self) -> int | None:
        """The exit code of the process, which is killed where it has not ended."""
        if self.process is None:
            return None
        process, self.process = self.process, None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.close()
            return process.wait(2)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            process.kill()
            return process.wait()
        finally:
            process.stdout.close()


def specs(asked: argparse.Namespace, known: set[str]) -> Iterator[tuple[str, Spec]]:
    """The specs to try, each with its number (or file): drawn ones that have not been tried."""
    if asked.again is not None:
        for path in sorted(asked.again.glob("*.yaml")) if asked.again.is_dir() else [asked.again]:
            yield from _read(path)
        return
    from fuzz_draw import drawn

    for number in range(asked.start, asked.start + asked.specs):
        if str(number) not in known:
            yield str(number), drawn(asked.seed, number)


def _read(path: Path) -> Iterator[tuple[str, Spec]]:
    """A spec of a YAML file; of a JSON file one a line."""
    import yaml

    text = path.read_text(encoding="utf-8")
    if path.suffix == ".yaml":
        yield path.stem, yaml.safe_load(text)
        return
    for number, line in enumerate(text.splitlines()):
        yield f"{path.stem}-{number}", json.loads(line)


def keep(folder: Path, name: str, spec: Spec, why: str) -> None:
    """A spec that failed, as a file that can be compiled, with its error above."""
    import yaml

    folder.mkdir(parents=True, exist_ok=True)
    told = "".join(f"# {line}\n" for line in why.splitlines())
    text = yaml.safe_dump(spec, sort_keys=False, default_flow_style=None, width=100)
    (folder / f"{name}.yaml").write_text(told + text, encoding="utf-8")


def checks_of(asked: argparse.Namespace, name: str) -> list[str]:
    """What is held of one spec."""
    if asked.kernels:
        return ["kernels"]
    number = int(name) if name.isdigit() else 0
    compiled = asked.inductor > 0 and number % asked.inductor == 0
    return ["forms", "layers"] + (["inductor"] if compiled else [])


def arguments() -> argparse.ArgumentParser:
    """The options of the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--specs", type=int, default=100, help="how many are drawn")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0, help="the number of the first")
    parser.add_argument("--kernels", action="store_true", help="fused kernels, interpreted")
    parser.add_argument("--inductor", type=int, default=0, metavar="N", help="every Nth compiled")
    parser.add_argument("--seconds", type=float, default=60, help="of CPU, for one spec")
    parser.add_argument("--memory", type=float, default=3, help="GiB that a spec may take")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop drawing after")
    parser.add_argument("--again", type=Path, help="a YAML spec, a folder of them, JSON lines")
    parser.add_argument("--folder", type=Path, default=Path("runs/fuzz"), help="what came of it")
    return parser


def main() -> int:
    """Draw and try as many specs as were asked for, or those of a file."""
    asked = arguments().parse_args()
    folder = asked.folder / str(asked.seed)
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "came.jsonl"
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    earlier = [] if asked.again is not None else [json.loads(line) for line in lines]
    came = Counter(entry["came"] for entry in earlier)
    worker, end = Worker(asked.memory, interpret=asked.kernels), time.monotonic()
    end += 60 * asked.minutes
    for name, spec in specs(asked, {entry["number"] for entry in earlier}):
        if time.monotonic() > end:
            break
        checks = checks_of(asked, name)
        seconds = asked.seconds * (4 if {"inductor", "kernels"} & {*checks} else 1)
        found = worker.ask(spec, checks, seconds)
        came[found["came"]] += 1
        if found["came"] not in ("right", "refused", "wild"):
            print(f"{name}: {json.dumps(spec)}\n  {found['why']}", flush=True)
            if asked.again is None:
                keep(folder, name, spec, found["why"])
        if asked.again is None:
            with log.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"number": name, **found}) + "\n")
    worker.end()
    print(f"seed {asked.seed}: " + ", ".join(f"{n} {what}" for what, n in came.most_common()))
    return 1 if any(what not in ("right", "refused", "wild") for what in came) else 0


if __name__ == "__main__":
    sys.exit(main())
