"""Kernels of users' windows, links and implicit steps against the recurrence, gradients too.

Fewer than 16 tokens take the kernel of tokens, more that of chunks, where there is one; in pieces
of two chunks a gradient goes through several launches.
"""

from pathlib import Path

import pytest
from tiers import first_only

TOKEN = {"rate": "token"}
MOMENTUM = {"method": "momentum", "rate": "token", "momentum": "token"}
LOSS = {"expr": "log(1 + (y - v)**2)"}

SPECS = {
    "a dot loss over four tokens, momentum": {
        "bias": "dot", "window": 4, "weights": "token", "optimizer": MOMENTUM,
        "retention": {"decay": "token"},
    },
    "a user's loss over two tokens, momentum": {
        "bias": LOSS, "window": 2, "optimizer": MOMENTUM, "retention": {"decay": "token"},
    },
    "a squared loss over three tokens, channels": {
        "bias": "l2", "window": 3, "weights": {
            "kind": "window", "gamma": {"from": "input", "activation": "sigmoid(x)/4"},
        },
        "retention": {"decay": "channel", "order": "after"},
    },
    "rows of a kernel that sum to one, under a decay": {
        "bias": "l2", "features": {"kernel": "exp(s)", "normalise": "row"}, "optimizer": TOKEN,
        "retention": {"decay": "token"},
    },
    "a divergence without an inverse": {
        "bias": "l2", "optimizer": TOKEN, "retention": {"local": {"bregman": "exp(w) + w**2"}},
    },
    "a divergence without an inverse, and a jump": {
        "bias": "l2", "optimizer": TOKEN, "retention": {
            "local": {"bregman": "w**4/4 + w**2/2"},
            "global": {"elastic": {"l1": 0.25, "l2": 0.125}},
        },
    },
    "an f-divergence by row": {
        "bias": "l2", "optimizer": TOKEN, "retention": {
            "local": {"f-divergence": "hellinger"},
            "constraint": {"kind": "simplex", "scale": 2, "over": "rows"},
        },
    },
    "an f-divergence with a cut and a pole": {
        "bias": "l2", "optimizer": TOKEN, "retention": {
            "local": {"f-divergence": "sqrt(1+(x-1)**2)-1"},
            "constraint": {"kind": "simplex", "scale": "token"},
        },
    },
    "an f-divergence without an inverse": {
        "bias": "l2", "optimizer": TOKEN,
        "retention": {"local": {"f-divergence": "x*log(x) + (x-1)**2"}},
    },
    "a loss of predictions and values": {
        "bias": {"expr": "softplus(-v*y) + rho*y**2/8"}, "optimizer": TOKEN,
        "coefficients": {"rho": {"from": "input", "per": "value", "activation": "sigmoid"}},
    },
    "a loss that a coefficient only bounds": {
        "bias": {"expr": "where(abs(e) <= rho, e**2/2, abs(e) - 1/2)"}, "optimizer": TOKEN,
        "coefficients": {"rho": "token"},
    },
    "a margin over two tokens": {
        "bias": {"expr": "relu(m - v*y)"}, "window": 2, "optimizer": TOKEN,
        "coefficients": {"m": "token"},
    },
    "a slope of two numbers": {
        "bias": {"expr": "where(e > 0, 0.3*e**2, 0.7*e**2)"}, "optimizer": TOKEN,
        "retention": {"decay": "token"},
    },
    "a step and a number": {"bias": {"expr": "0.3*relu(e) + 0.1*abs(e)"}, "optimizer": TOKEN},
    "an implicit step of two slopes": {
        "bias": {"expr": "where(e > 0, 0.3*e**2, 0.7*e**2) + e**4/16"},
        "optimizer": {"method": "implicit", "rate": "token"},
    },
    "slopes of one size": {"bias": {"expr": "max(2*e, -e)"}, "optimizer": TOKEN},
    "slopes of one size, a fixed rate": {
        "bias": {"expr": "relu(e)"}, "optimizer": {"rate": 0.1},
    },
    "slopes of one size, three tokens": {
        "bias": {"expr": "abs(e)"}, "window": 3, "optimizer": TOKEN,
    },
    "a user's loss behind a kernel": {
        "features": "exponential", "bias": {"expr": "log(cosh(e))"}, "optimizer": TOKEN,
    },
    "a full-batch step of weighed pairs": {
        "bias": "l2", "weights": "token", "retention": {"global": {"l2": 0.3}},
        "optimizer": {"method": "batch", "from": "origin", "rate": "token"},
    },
    "an implicit step": {
        "bias": {"expr": "log(cosh(e))"}, "retention": {"decay": "token"},
        "optimizer": {"method": "implicit", "rate": "token"},
    },
    "a decay of a token's first step": {
        "bias": "l2", "retention": {"decay": "token"},
        "optimizer": {"rate": {"expr": "1 - alpha"}, "inner_steps": 2},
    },
    "two steps behind a kernel": {
        "features": "exponential", "bias": "l2", "retention": {"decay": 0.9},
        "optimizer": {"rate": "token", "inner_steps": 2},
    },
    "an implicit step of single numbers": {
        "bias": {"expr": "e**2/2 + sin(e)/4"}, "memory": "diagonal", "features": "elu",
        "retention": {"decay": 0.9, "order": "before"},
        "optimizer": {"method": "implicit", "rate": "token"},
    },
}  # fmt: skip

LENGTHS = {name: (4, 17) for name in SPECS} | {
    "rows of a kernel that sum to one, under a decay": (17,),
    "a divergence without an inverse": (4,),
    "an f-divergence by row": (4,),
    "an f-divergence with a cut and a pole": (4,),
    "an f-divergence without an inverse": (4,),
    "an implicit step": (4,),
    "an implicit step of two slopes": (4,),
    "two steps behind a kernel": (4, 9),
    "an implicit step of single numbers": (4,),
}

FIRST = (
    "a dot loss over four tokens, momentum", "a squared loss over three tokens, channels",
    "rows of a kernel that sum to one, under a decay", "an f-divergence by row",
    "a loss that a coefficient only bounds", "slopes of one size",
    "a step and a number", "a user's loss behind a kernel", "a full-batch step of weighed pairs",
    "a decay of a token's first step", "an implicit step of single numbers",
)  # fmt: skip
"""Those of the first tier; the others take the same ways and longer to be interpreted."""

CASES = [pytest.param(*one.values, tokens, marks=one.marks) for one in first_only(SPECS, *FIRST)
         for tokens in LENGTHS[one.values[0]]]  # fmt: skip


def differences(name: str, tokens: int, folder: str) -> dict[str, float]:
    """How far outputs, states and gradients are from the recurrence, by name."""
    import importlib

    import torch
    from conformance import Sizes, fused, inputs

    case = fused({"mnemic": 1, "name": "own", **SPECS[name]}, f"{folder}/own")
    package = case.generated.kernels().__name__.removesuffix(".kernels")
    importlib.import_module(f"{package}.support.fused").PIECE.update({True: 2, False: 3})
    assert "triton" in case.generated.forms
    width = 5 if case.signature.square else 6
    given = inputs(case, tokens, sizes=Sizes(2 if tokens < 8 else 1, tokens, 1, 5, width))
    results = []
    for form in ("recurrent", "triton"):
        own = {n: x.clone().requires_grad_() for n, x in given.items()}
        options = {} if form == "recurrent" else {"chunk_size": 8}
        y, states = case.generated(**own, form=form, output_final_state=True, **options)
        ends = [s for s in states.values() if s.is_floating_point() and s.requires_grad]
        loss = sum((x * torch.cos(torch.arange(x.numel()).double()).view(x.shape)).sum()
                   for x in (y, *ends))  # fmt: skip
        leaves = list(own.values())  # a coefficient that only bounds has no gradient
        grads = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
        results.append({"y": y, **states, **{f"d_{n}": g for n, g in zip(own, grads, strict=True)}})
    one, two = results
    return {n: float((one[n] - two[n]).abs().max() / (1 + one[n].abs().max()))
            for n in one if one[n].numel() and one[n].is_floating_point()}  # fmt: skip


@pytest.mark.some(3)
@pytest.mark.few
@pytest.mark.parametrize(("name", "tokens"), CASES)
def test_a_kernel_of_ones_own(interpreter, tmp_path, name: str, tokens: int) -> None:
    found = interpreter(differences, name=name, tokens=tokens, folder=str(tmp_path))
    assert {n: x for n, x in found.items() if not x <= 1e-10} == {}


@pytest.mark.parametrize("name", [n for n in SPECS if n.startswith("an implicit step")])
def test_a_root_is_searched_for_once(name: str) -> None:
    from mnemic.pipeline import compile as made

    text = (made({"mnemic": 1, "name": "own", **SPECS[name]}).folder / "kernels.py").read_text()
    forward, backward = (
        text.split(f"def token_{way}(")[1].split("\n@triton")[0] for way in ("forward", "backward")
    )
    assert forward.count("new_error(") == backward.count("new_error(") == 1


def test_a_jump_of_the_slope_is_told_by_one_function() -> None:
    """The form and its gradient have to agree on it."""
    from mnemic.pipeline import compile as made

    spec = {"mnemic": 1, "name": "own", **SPECS["a divergence without an inverse, and a jump"]}
    text = (made(spec).folder / "kernels.py").read_text()
    calls = text.split("def inverse_link(", 1)[1]
    assert "behind - before" not in calls
    assert calls.count("jumps = at_jump(dual") == 1 + text.count("def inverse_link_back_")


BINARIES = (
    "a loss of predictions and values", "a loss that a coefficient only bounds",
    "a margin over two tokens", "slopes of one size", "a user's loss behind a kernel",
    "an f-divergence by row", "a divergence without an inverse, and a jump",
)  # fmt: skip
"""Those whose kernels are compiled too: the interpreter takes shapes and types that Triton does
not."""


def passes(name: str, target: str) -> dict[str, str]:
    """What went wrong in compiling each pass of a spec of one's own, for a device that is not
    there."""
    from mnemic.kernels.jobs import compile_folder
    from mnemic.pipeline import compile as made

    folder = made({"mnemic": 1, "name": "own", **SPECS[name]}).folder
    job = {"spec": "own", "family": "", "folder": str(folder), "target": target, "width": 32}
    found = compile_folder(job)
    return {n: x["error"] or ("" if x["kernels"] else "none") for n, x in found["passes"].items()}


@pytest.mark.parametrize(
    "name", [BINARIES[0], *(pytest.param(name, marks=pytest.mark.full) for name in BINARIES[1:])]
)
def test_a_kernel_of_ones_own_compiles(compiler, name: str) -> None:
    target = ("sm_80", "sm_90")[BINARIES.index(name) % 2]
    found = compiler(passes, name=name, target=target)
    assert {"forward", "backward", "decode"} <= set(found)
    assert not {n: error for n, error in found.items() if error}


def doubles(spec: dict, folder: str) -> dict[str, int]:
    """How many types of 64 bits each kernel of a training step in bfloat16 has in its PTX."""
    import torch

    from mnemic.codegen.package import load
    from mnemic.kernels import offline
    from mnemic.kernels.jobs import Subject
    from mnemic.kernels.limits import target
    from mnemic.pipeline import compile as made

    made({"mnemic": 1, "name": "own", **spec}, out=f"{folder}/own")
    found: dict[str, int] = {}
    plain = offline._kernel

    def noted(function, compiled, *others):  # type: ignore[no-untyped-def]
        found[function.fn.__name__] = compiled.asm["ptx"].count(".f64")
        return plain(function, compiled, *others)

    offline._kernel = noted
    try:
        with offline.compiling(target("sm_90")):
            Subject.of(load(Path(f"{folder}/own")), 32, torch.bfloat16).backward()
    finally:
        offline._kernel = plain
    return found


NUMBERS = {
    "a slope of two numbers": SPECS["a slope of two numbers"],
    "a step and a number": SPECS["a step and a number"],
    "a ball": {
        "retention": {"constraint": {"kind": "ball", "radius": 0.4}}, "optimizer": TOKEN,
    },
}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_a_spec_are_no_doubles_on_a_device(compiler, tmp_path, name: str) -> None:
    found = compiler(doubles, spec=NUMBERS[name], folder=str(tmp_path))
    assert found
    assert not any(found.values())
