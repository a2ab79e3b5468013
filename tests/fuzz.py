"""Specs drawn at random, for as long as one likes: forms, and with ``--kernels`` fused kernels.

    python tests/fuzz.py --specs 500 --seed 7
    python tests/fuzz.py --specs 50 --seed 7 --kernels

Every spec is compiled or refused with a message. Its forms are compared with each other and with
the rule's own interpreter, its kernels (in Triton's interpreter) with the recurrence, both in
float64 with states and every gradient. What fails is printed as a spec; the exit code is 1.
"""

import argparse
import json
import os
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent / "codegen")]

Spec = dict[str, Any]

COORDINATES = (
    "{a}*log(cosh({b}*e))", "{a}*sqrt(1+({b}*e)**2)", "{a}*abs(e)**2.5", "{a}*e**2/2",
    "{a}*(1-exp(-{b}*e**2))", "{a}*(softplus({b}*e)+softplus(-{b}*e))", "{a}*e*atan({b}*e)",
    "{a}*e**2/(1+e**2)", "{a}*y**2/4", "-{a}*v*tanh(y)", "{a}*sin({b}*e)/8", "-{a}*y*v",
    "{a}*where(abs(e)<={b}, e**2/2, {b}*(abs(e)-{b}/2))", "{a}*log(1+exp({b}*y))",
)  # fmt: skip
NORMS = (
    "{a}*log(1+{b}*n**2)",
    "{a}*max(n-{b}, 0)**2/2",
    "{a}*(sqrt(1+{b}*n**2)-1)",
    "{a}*n**2/2",
    "{a}*n**3/3",
    "{a}*(1-exp(-{b}*n**2))",
)
"""Terms of losses, which are one of these or the sum of two."""

ACTIVATIONS = ("sigmoid", "softplus(x)/2", "x**2/(1+x**2)", "(1+tanh(x))/2", "exp(-x**2)")
AT_ONCE = 10
"""Specs of one drawing: later ones of a long drawing resemble earlier ones."""

WILD = 1e5
"""Beyond this a rule has left its stability bound, and nothing is compared."""


@st.composite
def losses(draw: st.DrawFn) -> Spec:
    """A loss that nobody listed."""
    numbers = st.sampled_from(["0.3", "1", "1.7", "2"])
    terms = st.sampled_from(draw(st.sampled_from([COORDINATES, COORDINATES, NORMS])))
    found = draw(st.lists(terms, min_size=1, max_size=2, unique=True))
    return {"expr": " + ".join(t.format(a=draw(numbers), b=draw(numbers)) for t in found)}


@st.composite
def drawn(draw: st.DrawFn) -> Spec:
    """A point of the design space, half of them with a loss or a gate of their own."""
    from test_own_expressions import specs

    found: Spec = draw(specs())
    if draw(st.booleans()):
        found["bias"] = draw(losses())
    if draw(st.integers(0, 3)):  # most retentions beside a decay suit few losses
        found["retention"] = {n: found["retention"][n] for n in ("decay", "order")}
        if found["retention"]["decay"] not in (1.0, 0.9, "token", "channel", "learned"):
            found["retention"]["decay"] = "token"
    if draw(st.integers(0, 3)) == 0 and found["optimizer"]["rate"] == "token":
        gate = {"from": "input", "activation": draw(st.sampled_from(ACTIVATIONS))}
        found["optimizer"] = {**found["optimizer"], "rate": gate}
    if draw(st.integers(0, 4)) == 0 and found["optimizer"].get("method", "gd") == "gd":
        found["optimizer"] = {"method": "implicit", "rate": "token"}
    return found if draw(st.integers(0, 9)) == 0 else coherent(found)


def coherent(spec: Spec) -> Spec:
    """The spec without entries that contradict others, for which most would be refused."""
    optimizer, retention, readout = spec["optimizer"], spec["retention"], spec["readout"]
    if optimizer.get("method", "gd") in ("flow", "implicit") or "normalized" in optimizer["rate"]:
        several = ("window", "weights", "keys", "coefficients")  # keys a step
        spec = {n: x for n, x in spec.items() if n not in several}
        several = ("anchor", "inner_steps", "micro_steps")
        optimizer = {n: x for n, x in optimizer.items() if n not in several}
    if "anchor" in optimizer:
        optimizer = {n: x for n, x in optimizer.items() if n != "inner_steps"}
        retention = {**retention, "order": "after"}
    elif readout["memory"] == "anchor":
        readout = {**readout, "memory": "after"}
    return {**spec, "optimizer": optimizer, "retention": retention, "readout": readout}


def forms(spec: Spec) -> str:
    """Compare the PyTorch forms; what there was to compare."""
    from test_own_expressions import conforms

    conforms(spec)
    return "forms agree"


def kernels(spec: Spec) -> str:
    """Compare the kernels with the recurrence; what there was to compare."""
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


def tried(spec: Mapping[str, Any], check: Callable[[Spec], str], kept: Path) -> str:
    """What came of a spec; what is wrong is printed and kept."""
    from mnemic.errors import InvalidSpec

    try:
        return check(dict(spec))
    except InvalidSpec as refusal:
        return "refused" if len(str(refusal)) > 20 else "refused without a word"
    except Exception as error:
        text = json.dumps(spec)
        with kept.open("a", encoding="utf-8") as file:
            file.write(text + "\n")
        print(f"{text}\n  {type(error).__name__}: {error}", flush=True)
        frame = traceback.extract_tb(error.__traceback__)[-1]
        print(f"  at {frame.filename}:{frame.lineno}", flush=True)
        return "FAILED"


def main() -> int:
    """Draw and try as many specs as were asked for, or those of a file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--specs", type=int, default=100, help="how many are drawn")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kernels", action="store_true", help="fused kernels, interpreted")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop drawing after")
    parser.add_argument("--again", type=Path, help="specs of a file, one JSON mapping a line")
    parser.add_argument("--kept", type=Path, default=Path("runs/fuzz.jsonl"), help="what failed")
    asked = parser.parse_args()
    if asked.kernels:
        os.environ["TRITON_INTERPRET"] = "1"
    asked.kept.parent.mkdir(parents=True, exist_ok=True)
    check, came, end = (kernels if asked.kernels else forms), Counter[str](), time.monotonic()
    end += 60 * asked.minutes

    seen = set[str]()

    def one(spec: Spec) -> None:
        text = json.dumps(spec)
        if time.monotonic() < end and text not in seen:
            seen.add(text)
            came[tried(spec, check, asked.kept)] += 1

    if asked.again is not None:
        for line in asked.again.read_text(encoding="utf-8").splitlines():
            one(json.loads(line))
    else:
        drawing = settings(
            max_examples=AT_ONCE, deadline=None, database=None, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        for part in range(-(-asked.specs // AT_ONCE)):
            seed(f"{asked.seed} {part}")(drawing(given(drawn())(one)))()
    print(f"seed {asked.seed}: " + ", ".join(f"{n} {what}" for what, n in came.most_common()))
    return 1 if any(what.startswith(("FAILED", "refused w")) for what in came) else 0


if __name__ == "__main__":
    sys.exit(main())
