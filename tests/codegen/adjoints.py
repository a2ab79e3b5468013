"""An adjoint run chunk by chunk (or token by token) in reverse, beside autograd of the form."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from conformance import Case, Tensors, beginning, gradients, inputs, start, weighed
from printed_adjoints import parameters, source
from torch import Tensor

from mnemic.codegen import module, slots
from mnemic.codegen.adjoint import Adjoint, adjoint
from mnemic.codegen.own_names import rename_own_coefficients
from mnemic.codegen.plan import Plan
from mnemic.codegen.support import ops
from mnemic.codegen.support.calls import parameters as form_parameters
from mnemic.codegen.support.ops import TINY, norm
from mnemic.compiler.rule import Rule

Closes = Callable[[int, int], bool]


@dataclass(frozen=True)
class Asked:
    """What an operator asks of a form of one of its memories."""

    form: Callable[..., Any]
    memory: int
    arguments: Tensors
    states: Tensors
    closes: Closes

    @property
    def count(self) -> int:
        """Chunks or tokens."""
        return next(iter(self.arguments.values())).shape[0]

    def run(self, arguments: Tensors, states: Tensors, first: int = 0) -> tuple[Tensor, Tensors]:
        """The form on chunks (or tokens) from ``first`` on."""
        out, final = self.form(
            **arguments, **states, closes=lambda i, every: self.closes(first + i, every)
        )
        return out, final


def memories(case: Case) -> tuple[Rule, ...]:
    """The rule, or those of a slotted rule's two memories."""
    rule = case.rule
    return slots.memories(rule) if slots.slots_of(rule) else (rule,)


def plan_of(rule: Rule, form: str) -> Plan:
    """A form's plan, as it is before it is fused."""
    one, many = module._builders(rename_own_coefficients(rule))
    return one() if form == "recurrent" else many()


def adjoint_of(rule: Rule, form: str) -> Adjoint:
    """The adjoint of a form's plan."""
    return adjoint(plan_of(rule, form))


def asked(case: Case, form: str, tokens: int, **options: Any) -> list[Asked]:
    """Every call of a form by the operator, from a state that is not zero."""
    found: list[Asked] = []

    def recorded(operator: Any, memory: int) -> Any:
        plain = getattr(operator, form)
        carried = plan_of(memories(case)[memory], form).states()

        def record(closes: Closes, given: Tensors) -> Any:
            states = {n: x.detach() for n, x in given.items() if n in carried}
            rows = {n: x.detach() for n, x in given.items() if n not in carried}
            found.append(Asked(plain, memory, rows, states, closes))
            return plain(**given, closes=closes)

        return replace(operator, **{form: _like(plain, record)})

    whole = case.generated
    if slots.slots_of(case.rule):
        whole = replace(whole, keys=recorded(whole.keys, 0), values=recorded(whole.values, 1))
    else:
        whole = recorded(whole, 0)
    arguments = inputs(case, tokens, seed=tokens)
    params = beginning(case, arguments["k"], arguments["v"])
    if params:
        options["params"] = params
    whole(**arguments, form=form, initial_state=start(case, arguments), **options)
    return found


def _like(form: Any, record: Any) -> Any:
    """A function with a form's parameters that hands them on."""
    names = [n for n in form_parameters(form) if n != "closes"]
    given = ", ".join(f"{n!r}: {n}" for n in names)
    scope = {"record": record}
    exec(f"def call(*, {', '.join(names)}, closes):\n    return record(closes, {{{given}}})", scope)
    return scope["call"]


def printed(source: str, functions: Mapping[str, str]) -> dict[str, Any]:
    """What a module with this source would define."""
    scope: dict[str, Any] = {
        "torch": torch, "math": math, "F": F, "ops": ops, "TINY": TINY, "norm": norm,
    }  # fmt: skip
    for text in (*functions.values(), source):
        exec(text, scope)
    return scope


def by_autograd(call: Asked) -> Tensors:
    """The gradients of all arguments and initial states, through outputs and final states."""
    rows = {n: _leaf(x) for n, x in call.arguments.items()}
    states = {n: _leaf(x) for n, x in call.states.items()}
    out, final = call.run(rows, states)
    loss = weighed(out)
    for x in final.values():
        loss = loss + weighed(x)
    leaves = {n: x for n, x in {**rows, **states}.items() if x.requires_grad}
    return gradients(loss, leaves)


def _leaf(x: Tensor) -> Tensor:
    return x.clone().requires_grad_() if x.is_floating_point() else x


def by_adjoint(found: Adjoint, call: Asked) -> Tensors:
    """The same by the adjoint, from the last chunk to the first over stored states."""
    text = source(found, {}, "backward", "A chunk's gradients.")
    scope = printed(text, found.plan.functions)
    states, out = [call.states], []
    for i in range(call.count):
        y, following = call.run(_cut(call.arguments, i), states[-1], i)
        states.append(following)
        out.append(y)
    y = torch.cat(out).requires_grad_()
    d_out = gradients(weighed(y), {"y": y})["y"]
    carried = {n: gradients(weighed(z), {"z": z})["z"]
               for n, z in ((n, _leaf(x)) for n, x in states[-1].items())}  # fmt: skip
    parts: list[Tensors] = []
    for i in reversed(range(call.count)):
        given = {n: x[i] for n, x in call.arguments.items()} | states[i] | {"d_out": d_out[i]}
        given |= {d: carried[n] for n, d in found.carried.items()}
        for name in parameters(found):
            if name.startswith("closes_"):
                given[name] = torch.tensor(float(call.closes(i, int(name[7:]))))
        rows, carried = scope["backward"](**{n: given[n] for n in parameters(found)})
        parts.append(rows)
    whole = {n: torch.stack([part[n] for part in reversed(parts)]) for n in parts[0]}
    return {**whole, **carried}


def _cut(rows: Tensors, i: int) -> Tensors:
    return {n: x[i : i + 1] for n, x in rows.items()}


def symmetric(found: Tensors) -> Tensors:
    """Gradients of second moments, of which only the symmetric part has a meaning."""
    return {
        n: (x + x.mT) / 2 if n in ("P", "H") and x.shape[-1] == x.shape[-2] else x
        for n, x in found.items()
    }
