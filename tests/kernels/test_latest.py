"""The last product of a chunk: which may wait, and that with it warps share the columns."""

import re
from importlib import import_module

import pytest
import torch

from mnemic import pipeline
from mnemic.codegen.module import plans
from mnemic.codegen.plan import Fused, Map, Plan, Product
from mnemic.codegen.tiled.latest import latest, memory_first, split_sum
from mnemic.kernels.jobs import Subject
from mnemic.kernels.limits import target
from mnemic.kernels.offline import compiling


def of_chunk(name: str) -> Plan:
    found = plans(pipeline.derive(name)).chunk
    assert found is not None
    return found


@pytest.mark.parametrize("name", ["linear-attention", "gated-deltanet", "gla"])
def test_a_memory_is_read_before_rows_are_added(name: str) -> None:
    plan = of_chunk(name)
    assert latest(plan, (plan.output,)) == ()  # its memory would be read last
    found = memory_first(plan)
    assert latest(found, (found.output,)) == (found.output,)
    assert latest(plan, (plan.output,)) == ()  # and the plan itself is as it was


def test_what_follows_from_a_product_waits_with_it() -> None:
    plan = memory_first(of_chunk("mlstm"))
    product, *after = latest(plan, (plan.output,))
    assert after == [plan.output]
    assert isinstance(plan[product].op, Fused)


def test_what_other_ends_need_does_not_wait() -> None:
    plan = small()
    assert latest(plan, ("d_v", "d_k")) == ("rows", "d_k")
    plan.following["S"] = "d_k"
    assert latest(plan, ("d_v", "d_k")) == ()


def small() -> Plan:
    """d_v = memory, d_k = memory + rows + memory: products of a memory S and of rows."""
    import sympy as sp

    from mnemic.codegen.plan import Read

    plan = Plan()
    for name in "qk":
        plan.given(name, ("t", "k"))
    plan.given("S", ("k", "k"), state=True)
    plan.add("square", ("t", "s"), Product("q", "k", flip_right=True))
    plan.add("d_v", ("t", "k"), Product("q", "S"))
    plan.add("other", ("t", "k"), Product("k", "S"))
    plan.add("rows", ("t", "k"), Product("square", "k"))
    a, b, c = sp.symbols("a b c", real=True)
    reads = tuple(
        Read(s, n, ("t", "k")) for s, n in zip("abc", ("d_v", "rows", "other"), strict=True)
    )
    plan.add("d_k", ("t", "k"), Map(a - b + c, reads))
    plan.results.update({"k": "d_k", "v": "d_v"})
    return plan


def test_a_sum_is_parted_so_that_the_rest_is_done_before() -> None:
    plan = small()
    split_sum(plan, latest(plan, ("d_v", "d_k")))
    assert plan["d_k"].op == Fused("d_k_before", Product("square", "k"), -1)
    assert set(plan["d_k_before"].reads()) == {"d_v", "other"}
    assert latest(plan, ("d_v", "d_k")) == ("d_k",)


def layouts(
    name: str, rows: int, block: int = 64, form: str = "chunk"
) -> dict[str, list[str]]:  # fmt: skip
    """How warps lie on the products of a training step's kernels, for so many rows a chunk."""
    from mnemic.kernels import offline

    module = pipeline.compile(name).module
    tuned, configuration = (
        import_module(f"{module.__name__}.support.{part}") for part in ("tuned", "configuration")
    )
    subject = Subject.of(module, 64, torch.bfloat16)
    found: dict[str, list[str]] = {}
    plain = offline._kernel

    def noted(function, compiled, *others):  # type: ignore[no-untyped-def]
        shapes = re.findall(r"versionMajor = 2.*?warpsPerCTA = (\[.*?\])", compiled.asm["ttgir"])
        found.setdefault(function.fn.__name__, []).extend(shapes)
        return plain(function, compiled, *others)

    offline._kernel = noted
    tuned._forced[form, True] = configuration.Configuration(rows, block, 8)
    try:
        with compiling(target("sm_80")):
            subject.backward()
    finally:
        offline._kernel = plain
        tuned._forced.clear()
    return found


@pytest.mark.full
def test_few_rows_leave_the_columns_to_the_warps(compiler) -> None:
    for rows, warps in ((16, "[1, 8]"), (64, "[8, 1]")):
        found = compiler(layouts, name="linear-attention", rows=rows)
        assert set(found) == {"chunk_forward", "chunk_backward"}
        other = "[1, 8]" if warps == "[8, 1]" else "[8, 1]"
        for kernel in found.values():
            assert warps in kernel
            assert other not in kernel, "memories lie in a body of their own, as they lie best"


def test_over_kept_pairs_too(compiler) -> None:
    found = compiler(layouts, name="path", rows=16, block=16, form="pairs")
    assert "[1, 8]" in found["chunk_backward"]
    assert "[8, 1]" not in found["chunk_backward"]


def wide_errors(name: str) -> dict[str, float]:
    """Outputs, states and gradients of chunks with more columns than rows, against the tokens'."""
    from conformance import Sizes, compiled, error, inputs, weighed

    rule = pipeline.compile(name).operator
    arguments = inputs(compiled(name), 20, sizes=Sizes(1, 20, 1, 20, 20))

    def run(form: str) -> dict[str, torch.Tensor]:
        leaves = {n: x.clone().requires_grad_() for n, x in arguments.items()}
        out, final = rule(**leaves, form=form, chunk_size=16, output_final_state=True)
        floats = {n: x for n, x in final.items() if x.is_floating_point()}
        loss = weighed(out) + sum(weighed(x) for x in floats.values())
        grads = torch.autograd.grad(loss, tuple(leaves.values()))
        return {"out": out, **floats, **dict(zip(leaves, grads, strict=True))}

    expected = run("recurrent")
    return {n: error(x.double(), expected[n].double()) for n, x in run("triton").items()}


@pytest.mark.parametrize("name", ["gated-deltanet", "mlstm", "deltanet-momentum", "swla"])
def test_what_waits_is_right(interpreter, name: str) -> None:
    text = (pipeline.compile(name).folder / "kernels.py").read_text("utf-8")
    chunk = text[: text.index("CHUNK = Kernel(")]
    assert (
        len(re.findall(r"^        if C < B[VK]:", chunk, re.M)) == 2
    )  # the form's, the gradient's
    found = interpreter(wide_errors, name=name)
    assert max(found.values()) < 1e-9, found
