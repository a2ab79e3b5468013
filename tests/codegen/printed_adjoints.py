"""An adjoint as PyTorch source: the gradients of one chunk, and of the states before it."""

from mnemic.codegen.adjoint.reverse import Adjoint
from mnemic.codegen.emit import block, dictionary
from mnemic.codegen.plan import Given


def source(adjoint: Adjoint, numbers: dict[str, str], name: str, doc: str) -> str:
    """A function of arguments, states, ``d_out`` and the gradients of the states after a chunk.

    It gives the gradients of the arguments, and those of the states before the chunk, by name.
    """
    plan = adjoint.plan
    lines = [f"def {name}({', '.join(parameters(adjoint))}):", f'    """{doc}"""']
    lines += block(plan, plan.ordered(), 4, _with_gradients(numbers))
    before = {state: plan.following[d] for state, d in adjoint.carried.items()}
    lines.append(f"    return {dictionary(adjoint.gradients)}, {dictionary(before)}")
    return "\n".join(lines) + "\n"


def parameters(adjoint: Adjoint) -> tuple[str, ...]:
    """What the function takes, in order of declaration."""
    plan = adjoint.plan
    return tuple(n for n in plan.graph if isinstance(plan[n].op, Given))


def _with_gradients(numbers: dict[str, str]) -> dict[str, str]:
    """The comments of equations, and of their gradients."""
    return {**numbers, **{f"gradient of {n}": f"gradient of {c}" for n, c in numbers.items()}}
