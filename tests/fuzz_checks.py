"""What is held of a drawn spec, and the process that holds it: a spec a line in, an answer out.

Everything is read off the compiled rule and its layer; nothing here knows a system.
"""

import json
import os
import resource
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "codegen"))
sys.path.insert(0, str(Path(__file__).parent))

from fuzz_kernels import kernels
from fuzz_layers import inductor, layers

Spec = dict[str, Any]


def forms(spec: Spec) -> str:
    """The forms against the recurrence and the rule's own interpreter, float64, every gradient."""
    from test_own_expressions import compared

    return "forms agree" if compared(spec) else "wild"


CHECKS: dict[str, Callable[[Spec], str]] = {
    "forms": forms, "layers": layers, "inductor": inductor, "kernels": kernels,
}  # fmt: skip


def tried(spec: Spec, checks: list[str]) -> dict[str, str]:
    """What came of a spec, and where it is wrong the error and its place."""
    from mnemic.errors import InvalidSpec

    came = []
    for name in checks:
        try:
            came.append(CHECKS[name](dict(spec)))
        except InvalidSpec as refusal:
            if came:
                return {"came": "FAILED", "why": f"{name}: refused late: {refusal}"}
            words = str(refusal)
            return {"came": "refused" if len(words) > 20 else "refused without a word",
                    "why": words}  # fmt: skip
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)[-3:]
            places = ", ".join(f"{Path(f.filename).name}:{f.lineno}" for f in frames)
            words = str(error)[:2000]  # a C++ compiler tells more than that
            return {"came": "FAILED", "why": f"{name}: {type(error).__name__}: {words} ({places})"}
    return {"came": "wild" if "wild" in came else "right", "why": ", ".join(came)}


def main() -> None:
    """Answer every line of the input within its seconds of CPU and bytes of memory."""
    import warnings

    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a compiler prints is no answer
    most = int(float(os.environ.get("FUZZ_MEMORY", "3")) * 2**30)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    import torch

    torch.set_num_threads(1)
    for line in sys.stdin:
        asked = json.loads(line)
        spent = resource.getrusage(resource.RUSAGE_SELF)
        seconds = int(spent.ru_utime + spent.ru_stime + asked["seconds"]) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))
        answers.write(json.dumps(tried(asked["spec"], asked["checks"])) + "\n")
        answers.flush()
        torch._dynamo.reset()


if __name__ == "__main__":
    main()
