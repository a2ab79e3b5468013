"""The checks of compiled folders in many processes: what each finds is written at once.

A process checks one spec in one dtype, and adds a line to its log for every trial, before and after
it; so what was found is kept where a device's time runs out, and where a fault ends a process its
trial is told and another process goes on behind it.
"""

import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from on_gpu import keys

DTYPES = ("bfloat16", "float32", "float16")
DEAD = 13
"""The exit code of a process whose device no longer answers."""


@dataclass(frozen=True)
class Share:
    """The trials of a spec in a dtype, and where their findings go."""

    folder: Path
    spec: str
    dtype: str

    @property
    def log(self) -> Path:
        """A line of JSON for each trial that has begun, and for each that is done."""
        return self.folder / f"verified-{self.spec}-{self.dtype}.jsonl"

    def lines(self) -> list[dict[str, Any]]:
        """Read the log; nothing where there is none."""
        if not self.log.exists():
            return []
        return [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines()]


def checked(share: Share) -> None:
    """Make the trials of a share that its log does not have, in this process."""
    import torch

    from on_gpu import subject

    keys.shared()
    module = subject.load(share.folder / share.spec)
    verify, cases = (importlib.import_module(f"{module.__name__}.{n}") for n in ("verify", "cases"))
    place = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    begun = {line["trial"] for line in share.lines()}
    with share.log.open("a", encoding="utf-8") as log:

        def tell(**line: Any) -> None:
            log.write(json.dumps(line) + "\n")
            log.flush()

        for trial in verify.trials(module.Layer, *cases.plans(module.rule, place)):
            if not trial.name.startswith(f"{share.dtype},") or trial.name in begun:
                continue
            tell(trial=trial.name)
            began = time.monotonic()
            found = [asdict(x) for x in trial.findings()]
            tell(trial=trial.name, seconds=round(time.monotonic() - began, 2), findings=found)
            try:
                if place.type == "cuda":
                    torch.cuda.synchronize()
            except RuntimeError:
                os._exit(DEAD)


def ended(share: Share) -> None:
    """Write ``verified.json`` of a spec from the logs of its dtypes, where all trials are done."""
    from on_gpu import subject

    module = subject.load(share.folder / share.spec)
    verify = importlib.import_module(f"{module.__name__}.verify")
    listed = [
        verify.Finding(**x)
        for dtype in DTYPES
        for line in Share(share.folder, share.spec, dtype).lines()
        for x in line.get("findings", ())
    ]
    verify.recorded(module.Layer, [verify.Found(tuple(listed), ())])


def run(folder: Path, specs: Iterable[str], dtypes: Iterable[str], processes: int,
        seconds: float, command: Callable[[Share], list[str]]) -> int:  # fmt: skip
    """Check specs in several processes at once, for so many seconds; print what was found.

    Logs of an earlier run, maybe of other code or another device, are taken away first.
    Returns 4 where anything is wrong, or was not done in time.
    """
    late = time.monotonic() + seconds
    shares = [Share(folder, spec, dtype) for dtype in dtypes for spec in specs]
    for share in shares:
        share.log.unlink(missing_ok=True)
    with ThreadPoolExecutor(processes) as threads:
        ends = list(threads.map(lambda share: _until(share, late, command(share)), shares))
    for spec in dict.fromkeys(share.spec for share in shares):
        own = [(x, end) for x, end in zip(shares, ends, strict=True) if x.spec == spec]
        whole = all(end == "done" and not lost(x.lines()) for x, end in own)
        if set(dtypes) == set(DTYPES) and whole:
            ended(Share(folder, spec, ""))
    for share, end in zip(shares, ends, strict=True):
        print(*told(share, end), sep="\n", flush=True)
    right = all(
        end == "done" and not wrong(share, end) for share, end in zip(shares, ends, strict=True)
    )
    return 0 if right else 4


def _until(share: Share, late: float, command: list[str]) -> str:
    """Run processes over a share until it is done or it is late; return which."""
    while (left := late - time.monotonic()) > 0:
        before = len(share.lines())
        try:
            done = subprocess.run(command, check=False, timeout=left, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE, text=True)  # fmt: skip
        except subprocess.TimeoutExpired:
            break
        if done.returncode == 0:
            return "done"
        if len(share.lines()) == before:  # it did not even begin a trial
            return f"ended with {done.returncode}: {done.stderr.strip()[-300:]}"
    return CUT


CUT = "cut short"
"""What is told of a share that there was no time to end: its last trial may be in its midst."""


def lost(lines: list[dict[str, Any]]) -> list[str]:
    """List the trials that no process came back from: nothing is recorded of a spec with one."""
    done = {line["trial"] for line in lines if "findings" in line}
    return [name for name in dict.fromkeys(line["trial"] for line in lines) if name not in done]


def wrong(share: Share, end: str) -> list[str]:
    """List what a share's log says is wrong: an error beyond what is allowed, a run that failed, a
    trial that no process came back from."""
    lines = share.lines()
    begun = lost(lines[:-1] if end == CUT else lines)
    found = [f"{name}: no process came back from it" for name in begun]
    for line in lines:
        for x in line.get("findings", ()):
            beyond = x["allowed"] is not None and not x["error"] <= x["allowed"]
            if x["told"] or beyond:
                why = x["told"] or f"error {x['error']:.1e}, allowed {x['allowed']:.1e}"
                found.append(f"{x['form']}, {x['case']}, {x['part']}: {why}")
    return found


def told(share: Share, end: str) -> list[str]:
    """Say on one line how a share came out, and on more what is wrong."""
    lines = [line for line in share.lines() if "findings" in line]
    faults = wrong(share, end)
    count = sum(x["allowed"] is not None for line in lines for x in line["findings"])
    outcome = "passed" if end == "done" and count and not faults else "FAILED" if faults else end
    seconds = sum(line["seconds"] for line in lines)
    first = f"{share.spec} {share.dtype}: {outcome}, {len(lines)} trials, {count} numbers compared"
    return [f"{first}, {seconds:.0f} s", *(f"  {line[:300]}" for line in faults[:5])]


def command_of(share: Share) -> list[str]:
    """Return the command line of a process for a share."""
    script = str(share.folder / "gpu.py")
    return [sys.executable, script, "verify-spec", share.spec, share.dtype,
            "--folder", str(share.folder)]  # fmt: skip
