"""Rules about retention: which parts may be combined, and for which memory."""

from collections.abc import Iterator

from mnemic.dsl.coefficients import ONE, Coefficient
from mnemic.dsl.memory import Chain, Diagonal, Glu, Linear, LowRank, Mlp
from mnemic.dsl.retention import (
    DIVERGENCES,
    Ball,
    Bregman,
    Elastic,
    FDivergence,
    GlobalL2,
    Lq,
    NoGlobal,
    Simplex,
)
from mnemic.dsl.rules.rule import Rule, keeps_pairs
from mnemic.dsl.spec import Spec
from mnemic.dsl.texts import texts
from mnemic.errors import Issue


def one_decay(spec: Spec) -> Iterator[Issue]:
    """Refuse a decoupled decay beside a global ℓ2, which shrinks the memory twice."""
    term, decay = spec.retention.global_, spec.retention.decay
    if decay == ONE:
        return
    ridge = isinstance(term, GlobalL2)
    if ridge or (isinstance(term, Elastic) and term.elastic.l2.value != 0):
        yield Issue(
            "a decoupled decay beside a global l2 shrinks the memory twice",
            "retention.decay",
            hint='leaky LMS is decay: {expr: "1 - eta*lam"}; or leave one of the two out',
        )


def shrinking_on_a_simplex(spec: Spec) -> Iterator[Issue]:
    """Refuse a global l1 or lq on a simplex, where ‖W‖₁ is fixed."""
    if not isinstance(spec.retention.constraint, Simplex):
        return
    term = spec.retention.global_
    if isinstance(term, Elastic):
        reason = "on a simplex ‖W‖₁ is the sum of the entries, which is fixed: l1 has no effect"
        rest = term.elastic.l2.value != 0
        hint = "write global: {l2: ...} alone" if rest else "leave it out, or use {entropy: ...}"
        yield Issue(reason, "retention.global", hint=hint)
    if isinstance(term, Lq):
        reason = "a squared norm and a simplex both couple the entries, and no link solves for both"
        hint = "use global: {l2: ...} or {entropy: ...}, or no constraint"
        yield Issue(reason, "retention.global", hint=hint)


def one_size(spec: Spec) -> Iterator[Issue]:
    """Refuse a constraint on a memory whose rows or columns are set to given norms."""
    constraint = spec.retention.constraint
    if spec.retention.normalize != "none" and isinstance(constraint, Simplex | Ball):
        reason = f"normalising {spec.retention.normalize} would leave the {constraint.word()}"
        yield Issue(reason, "retention.normalize", hint="use one of the two")


def norms_in_the_dual(spec: Spec) -> Iterator[Issue]:
    """Refuse ½‖W‖_q² in the view learning-retaining: its link is known for the dual alone."""
    if isinstance(spec.retention.global_, Lq) and spec.retention.view == "learning-retaining":
        yield Issue(
            "the norm of lq couples all entries, so it cannot be solved beside a local term",
            "retention.view",
            hint="write view: ftrl",
        )


def link_alone(spec: Spec) -> Iterator[Issue]:
    """Refuse beside a stated link what would determine the link, and views and methods without a
    dual."""
    retention = spec.retention
    if retention.link is None:
        return
    given = {
        "local": retention.local.word() != "l2",
        "global": not isinstance(retention.global_, NoGlobal),
        "constraint": retention.constraint.word() != "none",
        "normalize": retention.normalize != "none",
    }
    for name in (name for name, there in given.items() if there):
        yield Issue(
            "the link follows from the retention, and here it is given as well",
            f"retention.{name}",
            hint="leave out the link, or everything that it would follow from",
        )
    if retention.view == "learning-retaining":
        yield Issue(
            "with a stated link there is no retention to compute the dual from W",
            "retention.view",
            hint="write view: ftrl, where the dual itself is kept",
        )
    if spec.optimizer.method in ("exact", "batch"):
        yield Issue(
            f"the method '{spec.optimizer.method}' finds the memory itself, without a dual",
            "retention.link",
            hint="use a stepping method such as gd",
        )


def names_of_a_link(spec: Spec) -> Iterator[Issue]:
    """Refuse coefficients called a or nu beside a link, in which these mean dual and norm."""
    if spec.retention.link is not None:
        yield from _taken(spec, "retention.link", {"a", "nu"}, "the link")


def names_of_a_generator(spec: Spec) -> Iterator[Issue]:
    """Refuse a coefficient with the name of a generator's symbol: w, or x of an f-divergence."""
    local = spec.retention.local
    if isinstance(local, Bregman):
        yield from _taken(spec, "retention.local.bregman", {"w"}, "the generator")
    if isinstance(local, FDivergence) and local.f not in DIVERGENCES:
        yield from _taken(spec, "retention.local.f-divergence", {"x"}, "the generator")


def _taken(spec: Spec, place: str, symbols: set[str], what: str) -> Iterator[Issue]:
    """Yield an issue for each coefficient that has the name of an expression's own symbol."""
    for name in sorted(symbols & spec.named_coefficients().keys()):
        reason = f"{name} is a symbol of {what}, and a coefficient has the same name"
        yield Issue(reason, place, hint="give the coefficient another name")


def decay_of_rows(spec: Spec) -> Iterator[Issue]:
    """Refuse a decay of value channels without the outer decay of keys that it belongs to."""
    if spec.retention.row_decay is None:
        return
    named = spec.named_coefficients()
    used = [text.names for text in texts(spec) if text.where == "retention.decay"]
    behind = [spec.retention.decay, *(named[n] for names in used for n in names if n in named)]
    if not any(coefficient.per == "outer" for coefficient in behind):
        yield Issue(
            "a row decay is one half of an outer decay, and the decay is not outer",
            "retention.row_decay",
            hint="write decay: outer; for value channels alone, decay: {from: input, per: value}",
        )


def phase_of_a_state(spec: Spec) -> Iterator[Issue]:
    """Refuse a phase, a complex decay, for a memory that is not linear or diagonal."""
    if spec.retention.phase is not None and not isinstance(spec.memory, Linear | Diagonal):
        yield Issue(
            "a phase is a complex decay of a linear or diagonal memory",
            "retention.phase",
            hint="for positions use block: {rotary: true}",
        )


def rows_of_a_matrix(spec: Spec) -> Iterator[Issue]:
    """Refuse norms and simplices by row or column for a diagonal memory, which is a vector."""
    if not isinstance(spec.memory, Diagonal):
        return
    constraint, reason = spec.retention.constraint, "a diagonal memory is a vector without rows"
    if spec.retention.normalize != "none":
        yield Issue(reason, "retention.normalize", hint="use constraint: ball")
    if isinstance(constraint, Simplex) and constraint.over != "all":
        yield Issue(reason, "retention.constraint.over", constraint.over, hint="write over: all")


def retention_of_kept_pairs(spec: Spec) -> Iterator[Issue]:
    """Refuse retentions other than a decay per head for kept pairs, which are no parameters."""
    if not keeps_pairs(spec):
        return
    retention, hint = spec.retention, "leave it out; a decay may weigh the pairs"
    given = {
        "local": retention.local.word() != "l2",
        "global": not isinstance(retention.global_, NoGlobal),
        "constraint": retention.constraint.word() != "none",
        "normalize": retention.normalize != "none",
        "link": retention.link is not None,
    }
    for name in (name for name, there in given.items() if there):
        reason = "a memory of kept pairs has no parameters to keep near anything"
        yield Issue(reason, f"retention.{name}", hint=hint)
    if _by_channel(retention.decay):
        reason = "pairs are kept whole, so their decay is one number a head"
        yield Issue(reason, "retention.decay", retention.decay.per, ("head",))


def _has_layers(spec: Spec) -> bool:
    """Return whether matrices beside the one behind a kernel have entries for norms to act on."""
    memory = spec.memory
    return isinstance(memory, Glu | LowRank | Chain) or (
        isinstance(memory, Mlp) and memory.depth > 1
    )


def retention_of_a_kernel(spec: Spec) -> Iterator[Issue]:
    """Refuse what acts on entries of W behind a kernel, where W has infinitely many columns."""
    if spec.features.finite or keeps_pairs(spec):
        return
    retention = spec.retention
    given = {
        "local": retention.local.word() != "l2",
        "global": not isinstance(retention.global_, NoGlobal | GlobalL2),
        "constraint": retention.constraint.word() != "none",
        "normalize": retention.normalize != "none" and not _has_layers(spec),
        "link": retention.link is not None,
        "decay": _by_channel(retention.decay),
    }
    for name in (name for name, there in given.items() if there):
        yield Issue(
            "a kernel has no finite map, so this cannot act on single entries of the memory",
            f"retention.{name}",
            hint="use l2 and a decay a head, or finite features such as random or polynomial",
        )


def _by_channel(decay: Coefficient) -> bool:
    return decay.per in ("key", "outer")


RULES: tuple[Rule, ...] = (
    one_decay,
    shrinking_on_a_simplex,
    one_size,
    norms_in_the_dual,
    link_alone,
    names_of_a_link,
    names_of_a_generator,
    decay_of_rows,
    phase_of_a_state,
    rows_of_a_matrix,
    retention_of_kept_pairs,
    retention_of_a_kernel,
)
