"""Which forms of a rule have fused kernels, and why others have none, without writing them."""

from dataclasses import dataclass

from mnemic.codegen import module, slots
from mnemic.codegen.own_names import rename_own_coefficients
from mnemic.compiler.rule import Rule


@dataclass(frozen=True)
class Fused:
    """A form's kernel, and its gradient's: ``None`` where there is one, else why there is none."""

    form: str
    missing: str | None
    no_gradient: str | None

    @property
    def text(self) -> str:
        """The form, and whether it has a kernel and a gradient or why not, in words."""
        if self.missing is not None:
            return f"{self.form}: none ({self.missing})"
        if self.no_gradient is not None:
            return f"{self.form}, without gradient ({self.no_gradient})"
        return f"{self.form}, with gradient"


def fused(rule: Rule) -> tuple[Fused, ...]:
    """Return what kernels a rule has for chunks and for single tokens, and why it lacks others."""
    if rule.structure.refused:
        return _none("the rule is not compiled")
    if slots.slots_of(rule) > 0:
        return _none("slots join two operators, which have no kernels yet")
    rule = rename_own_coefficients(rule)
    missing = module.fused_kernels(rule, module.plans(rule), {}).missing
    return tuple(
        Fused(form, missing.get(form), missing.get(form) or missing.get(f"{form} gradient"))
        for form in ("chunk", "token")
    )


def _none(why: str) -> tuple[Fused, ...]:
    return tuple(Fused(form, why, why) for form in ("chunk", "token"))
