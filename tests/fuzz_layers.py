"""What is held of a drawn spec's layer as it starts: in float32, and under torch.compile."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

Spec = dict[str, Any]

WILD = 1e5
"""Beyond this a rule has left its stability bound, and nothing is compared."""

GROWN = 1e3
"""Beyond this a memory has grown from inputs near 1, and float32 has lost as many digits."""

SLACK = 4
"""Times what is allowed, since the recurrence's own error is one draw of many."""

DRAWS = 4
"""How often inputs are moved by a rounding, to see what that moves."""

TOKENS, PERIOD = 128, 8
DIM, HEADS, WIDTH = 32, 2, 8


def layers(spec: Spec) -> str:
    """The layer as it starts: numbers in float32, and chunks of 32 and 64 rows as far off as the
    recurrence in float32 is from float64, times what ``mnemic verify`` allows.

    A rule that leaves its stability bound, as the interpreter then has to, is compared over the
    tokens before it does.
    """
    import torch

    from mnemic.codegen.support import compared
    from mnemic.compiler.explain import still
    from mnemic.pipeline import compile as compiled
    from mnemic.pipeline import derive

    torch.manual_seed(0)
    made = compiled(spec).layer(DIM, heads=HEADS, key_dim=WIDTH)
    x, ends = sequence(), {}
    for tokens in (TOKENS, TOKENS // 2, TOKENS // 4, TOKENS // 8, TOKENS // 16):
        run = _runs(made, x[:, :tokens])
        if _refused(run, torch.float32) is not None:
            _chunks_know(made, run)
            continue
        exact, own = compared.known(run, torch.float32)
        ends = {n: part for n, part in exact.items() if not n.startswith("gradient")}
        if all(_below(part, GROWN) for part in ends.values()):
            if all(_below(part) for part in exact.values()):
                _chunks(made, run, exact, own)
                _learns(made, x[:, :tokens])
                return f"layers agree over {tokens} tokens"
            if still.warning(derive(spec)) is not None and not exact["output"].any():
                return "wild"  # no step moves the memory, as `check` tells; slopes of O overflow
            sizes = [float(part.abs().max()) for part in exact.values() if part.numel()]
            assert not any(map(math.isnan, sizes)), "gradients are no numbers"
    assert (
        not ends
        or all(map(_below, ends.values()))
        or _interpreter_leaves(spec, made, x[:, :tokens])
    ), "the recurrence diverges, its interpreter does not"
    return "wild"


def _below(x: Any, bound: float = WILD) -> bool:
    return not x.numel() or bool((x.abs() < bound).all())


def _runs(made: Any, x: Any) -> Callable[..., Any]:
    """Return a function that runs the layer's rule on its own arguments in a dtype and a form."""
    import torch

    from mnemic.codegen.support import compared
    from mnemic.codegen.support.cases import Case

    with torch.no_grad():
        arguments = {n: a.double() for n, a in made.arguments(x).items()}
    params = {n: p.detach().double() for n, p in made.params().items()}
    case = Case("start", arguments, params, {})

    def run(
        dtype: torch.dtype,
        form: str = "recurrent",
        chunk: int | None = None,
        draw: int | None = None,
    ) -> Any:
        seen = case if draw is None else replace(case, arguments=_moved(arguments, draw))
        rounded = torch.float32 if draw is None else dtype
        return compared.everything(made.rule, seen, form, dtype, rounded, chunk)

    return run


def _moved(arguments: dict[str, Any], draw: int) -> dict[str, Any]:
    """Return the vectors as float32 has them, each number as many of its roundings up or down as a
    form may be off by, or where it is."""
    import torch

    from mnemic.codegen.support.compared import FACTORS

    step = 2.0**-24 * FACTORS[torch.float32]
    generator = torch.Generator().manual_seed(draw)
    turns = {n: torch.randint(-1, 2, x.shape, generator=generator) for n, x in arguments.items()}
    return {
        n: x.float().double() * (1 + step * turns[n]) if n in "qkv" else x
        for n, x in arguments.items()
    }


def _refused(run: Callable[..., Any], *how: Any) -> str | None:
    """Return what a run says that refuses its numbers, as regressions do of what they forgot."""
    try:
        run(*how)
    except ValueError as error:
        if type(error).__name__ != "Forgotten":
            raise
        return str(error)
    return None


def _chunks_know(made: Any, run: Callable[..., Any]) -> None:
    """Where the recurrence refuses in float32, chunks do too, or are near it in float64."""
    import torch

    from mnemic.codegen.support import compared

    known = _refused(run, torch.float64) is None
    exact = run(torch.float64)["output"] if known else None
    for rows in (32, 64) if "chunk" in made.rule.forms else ():
        how = (torch.float32, "chunk", rows)
        if _refused(run, *how) is None:
            assert exact is not None, f"the recurrence refuses its numbers, {rows} rows do not"
            apart = compared.error(run(*how)["output"], exact)
            assert apart < compared.HOPELESS, f"{rows} rows in float32 are {apart:.2g} off"


def _chunks(made: Any, run: Callable[..., Any], exact: Any, own: Any) -> None:
    """Chunks of 32 and 64 rows in float32 are as near to float64 as the recurrence is, or as what
    a rounding of its inputs leads to: a rule with steps of one size whatever the gradient, or with
    a kink, may make anything of it.
    """
    import torch

    from mnemic.codegen.support import compared

    for rows in (32, 64) if "chunk" in made.rule.forms else ():
        found = run(torch.float32, "chunk", rows)
        for part, wanted in exact.items():
            apart = compared.error(found[part], wanted)
            most = compared.allowed("chunk", torch.float32, own[part], apart)
            if most is None or apart <= SLACK * most:
                continue
            draws = (run(torch.float64, draw=draw)[part] for draw in range(DRAWS))
            moved = max(compared.error(one, wanted) for one in draws)
            assert moved >= compared.HOPELESS or apart <= SLACK * moved, (
                f"{rows} rows in float32: {part} is {apart:.2g} off, {most:.2g} allowed"
            )


def _interpreter_leaves(spec: Spec, made: Any, x: Any) -> bool:
    """Whether the rule's own interpreter leaves the bound too."""
    import torch

    from mnemic.compiler.oracle.interpret import interpret
    from mnemic.pipeline import derive

    with torch.no_grad():
        rest = {n: a.double() for n, a in made.arguments(x).items()}
        params = {n: p.detach().double() for n, p in made.params().items()}
        vectors = [rest.pop(n) for n in "qkv"]
        out, state = interpret(derive(spec), *vectors, rest, params=params or None)
    return not all(map(_below, (out, *state.values())))


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
    tokens = 40 if "chunk" in made.rule.forms else 12  # each of which a recurrence's graph holds
    x, found = sequence()[:, :tokens].double(), []
    while not _below(made(x)):  # only what stays within its bound can be compared
        x = x[:, : x.shape[1] // 2]
        if not x.shape[1]:
            return "wild"
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
    assert not wrong or not all(map(_below, eager.values())), wrong
    return "inductor agrees"
