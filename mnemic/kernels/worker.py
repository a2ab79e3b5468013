"""A long-lived process that calls functions which need an environment of their own.

Triton decides when it is imported whether it interprets or compiles, and a kernel that reads out of
bounds kills its process. So both run in a separate process, which is kept alive since importing
torch takes seconds. Requests and answers are JSON, one a line.
"""

import importlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from mnemic.errors import CheckFailed, EnvironmentFailed

INTERPRETING: Mapping[str, str] = {"TRITON_INTERPRET": "1", "MNEMIC_DEBUG": "1"}
COMPILING: Mapping[str, str] = {"TRITON_INTERPRET": "0", "TRITON_DEFAULT_FP_FUSION": "1"}
"""Environments of the two kinds; contracted products are what Triton does unless told."""

LONGEST = 600.0
"""Seconds that one call may take."""


class Worker:
    """A process that is started at the first call, and again after a crash."""

    def __init__(self, environment: Mapping[str, str], paths: tuple[Path, ...] = ()) -> None:
        self.environment, self.paths = environment, paths
        self.process: subprocess.Popen[str] | None = None

    def call(self, place: str | Path, function: str, /, timeout: float = LONGEST,
             **arguments: Any) -> Any:  # fmt: skip
        """Call ``function(**arguments)`` of a module, by its name or its file; both ways as JSON.

        Raises ``CheckFailed`` with what the function raised, ``EnvironmentFailed`` where the
        process ended or the time was up.
        """
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        request = {"place": str(place), "function": function, "arguments": arguments}
        late = threading.Timer(min(timeout, threading.TIMEOUT_MAX), process.kill)
        late.daemon = True
        late.start()
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            late.cancel()
        if not line:
            code = process.wait()
            self._drop()
            told = f"ended with {code} (time was up)" if code == -9 else f"ended with {code}"
            raise EnvironmentFailed(f"{function}: the process {told}")
        answer = json.loads(line)
        if "raised" in answer:
            raise CheckFailed(f"{function}: {answer['raised']}")
        return answer["value"]

    def _running(self) -> "subprocess.Popen[str]":
        if self.process is None or self.process.poll() is not None:
            found = (str(Path(__file__).parents[2]), *map(str, self.paths))
            known = os.environ.get("PYTHONPATH", "")
            paths = os.pathsep.join([*found, *([known] if known else [])])
            given = {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": paths, **self.environment}
            self.process = subprocess.Popen(
                [sys.executable, "-m", "mnemic.kernels.worker"], env=given, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip
        return self.process

    def close(self) -> None:
        """End the process."""
        if self.process is not None:
            self._drop()

    def _drop(self) -> None:
        process, self.process = self.process, None
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
        process.wait()
        process.stdout.close()


@contextmanager
def worker(environment: Mapping[str, str], *paths: Path) -> Iterator[Worker]:
    """Yield a worker, and end it afterwards."""
    found = Worker(environment, paths)
    try:
        yield found
    finally:
        found.close()


# -- in the process ----------------------------------------------------------------------------


def serve() -> None:
    """Answer requests until they end; what functions print goes to standard error.

    Ctrl-C, which every process of a terminal receives, ends it silently: the process that asks
    reports it.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(_answer(request)), file=answers, flush=True)


def _answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Call what a request names; tell its value, or what was raised, whatever it was."""
    try:
        function: Callable[..., Any] = getattr(_module(request["place"]), request["function"])
        return {"value": function(**request["arguments"])}
    except Exception as error:
        return {"raised": f"{type(error).__name__}: {error}\n{traceback.format_exc()}"}


def _module(place: str) -> ModuleType:
    """Import a module by its name, or by its file."""
    if not place.endswith(".py"):
        return importlib.import_module(place)
    name = f"called_{Path(place).stem}"
    if name in sys.modules:
        return sys.modules[name]
    found = importlib.util.spec_from_file_location(name, place)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    found.loader.exec_module(module)
    return module


if __name__ == "__main__":
    serve()
