"""What is held of a drawn spec, and the process that holds it: a spec a line in, an answer out.

Everything is read off the compiled rule and its layer; nothing here knows a system.
"""

import json
import math
import os
import resource
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent / "codegen")]

Spec = dict[str, Any]

WILD = 1e5
"""Beyond this a rule has left its stability bound, and nothing is compared."""

SLACK = 4
"""Times what is allowed, since the recurrence's own error is one draw of many."""

TOKENS, PERIOD = 128, 8
DIM, HEADS, WIDTH = 32, 2, 8


def forms(spec: Spec) -> str:
    """The forms against the recurrence and the rule's own interpreter, float64, every gradient."""
    from test_own_expressions import conforms

    conforms(spec)
    return "forms agree"


def layers(spec: Spec) -> str:
    """The layer as it starts: numbers in float32, and chunks of 32 and 64 rows as far off as the
    recurrence in float32 is from float64, times what ``mnemic verify`` allows."""
    import torch

    from mnemic.codegen.support import compared
    from mnemic.codegen.support.cases import Case
    from mnemic.compiler.explain import still
    from mnemic.pipeline import compile as compiled
    from mnemic.pipeline import derive

    torch.manual_seed(0)
    made = compiled(spec).layer(DIM, heads=HEADS, key_dim=WIDTH)
    x = sequence()
    with torch.no_grad():
        arguments = {n: a.double() for n, a in made.arguments(x).items()}
    params = {n: p.detach().double() for n, p in made.params().items()}
    case = Case("start", arguments, params, {})

    def run(dtype: torch.dtype, form: str = "recurrent", chunk: int | None = None) -> Any:
        return compared.everything(made.rule, case, form, dtype, torch.float32, chunk)

    exact, own = compared.known(run, torch.float32)
    if not all(float(part.abs().max()) < WILD for part in exact.values() if part.numel()):
        if still.warning(derive(spec)) is not None and not exact["output"].any():
            return "wild"  # no step moves the memory, as `check` tells; slopes of O there overflow
        finite = all(part.isfinite().all() for n, part in exact.items() if n == "output")
        sizes = [float(part.abs().max()) for part in exact.values() if part.numel()]
        assert not (finite and any(map(math.isnan, sizes))), "gradients are no numbers"
        return "wild"
    if "chunk" in made.rule.forms:
        for rows in (32, 64):
            found = run(torch.float32, "chunk", rows)
            for part, wanted in exact.items():
                apart = compared.error(found[part], wanted)
                most = compared.allowed("chunk", torch.float32, own[part], apart)
                assert most is None or apart <= SLACK * most, (
                    f"{rows} rows in float32: {part} is {apart:.2g} off, {most:.2g} allowed"
                )
    _learns(made, x)
    return "layers agree"


def sequence() -> Any:
    """Two sequences: of tokens of their own, and of a few larger ones that repeat."""
    import torch

    generator = torch.Generator().manual_seed(1)
    x = torch.randn(2, TOKENS, DIM, generator=generator)
    few = 2 * torch.randn(PERIOD, DIM, generator=generator)
    x[1] = few.repeat(TOKENS // PERIOD, 1)
    return x


def _learns(made: Any, x: Any) -> None:
    """The gradient of every parameter that has one is a number."""
    y = made(x.requires_grad_())
    assert y.isfinite().all(), "the layer's output is no number"
    y.square().mean().backward()
    for name, parameter in [("x", x), *made.named_parameters()]:
        if parameter.grad is not None:
            assert parameter.grad.isfinite().all(), f"the gradient of {name} is no number"


def inductor(spec: Spec) -> str:
    """The layer compiled by torch.compile against itself, in float64, forward and gradients."""
    import torch
    from conformance import error

    from mnemic.pipeline import compile as compiled

    torch.manual_seed(0)
    made = compiled(spec).layer(DIM, heads=HEADS, key_dim=WIDTH).double()
    x, found = sequence()[:, :40].double(), []
    for call in (made, torch.compile(made)):
        made.zero_grad()
        leaf = x.clone().requires_grad_()
        y = call(leaf)
        y.square().mean().backward()
        slopes = {n: p.grad.clone() for n, p in made.named_parameters() if p.grad is not None}
        found.append({"output": y.detach(), "x": leaf.grad, **slopes})
    eager, fused = found
    assert eager.keys() == fused.keys(), sorted(eager.keys() ^ fused.keys())
    wrong = {n: e for n, e in ((n, error(fused[n], x)) for n, x in eager.items()) if not e < 1e-8}
    assert not wrong or not all(part.isfinite().all() for part in eager.values()), wrong
    return "inductor agrees"


def kernels(spec: Spec) -> str:
    """The fused kernels, interpreted, against the recurrence."""
    import tempfile

    import torch
    from conformance import Sizes, agree, fused, inputs, run

    with tempfile.TemporaryDirectory() as folder:
        case = fused(spec, f"{folder}/drawn")
        if "triton" not in case.generated.forms:
            return "no kernel"
        width = 5 if case.signature.square else 6
        for tokens in (3, 21):
            arguments = inputs(case, tokens, sizes=Sizes(1, tokens, 2, 5, width))
            expected = run(case, arguments, "recurrent")
            if not all(float(x.abs().max()) < WILD for _, x in expected.parts() if x.numel()):
                return "wild"
            assert all(torch.isfinite(x).all() for _, x in expected.parts())
            agree(run(case, arguments, "triton"), expected, 1e-8)
    return "kernels agree"


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
            return {"came": "FAILED", "why": f"{name}: {type(error).__name__}: {error} ({places})"}
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
