"""What a rule may ask for that its forms do not compute yet: refused by name, never run wrong."""

from collections.abc import Iterator

from mnemic.compiler.problem import Scalar
from mnemic.compiler.rule import Rule
from mnemic.dsl.features import Cosine, Dpfp, Polynomial, Random, Taylor
from mnemic.errors import InvalidSpec, Issue

LATER = "{what} is derived but not compiled yet"

RESIZING = (Cosine, Dpfp, Polynomial, Random, Taylor)
"""Features that are not as many as the key's channels."""


def refuse(rule: Rule) -> None:
    """Raise ``InvalidSpec`` with everything of the rule that is not compiled yet."""
    issues = tuple(
        Issue(LATER.format(what=what), where=f"{rule.name} {where}") for where, what in found(rule)
    )
    if issues:
        raise InvalidSpec(issues)


def found(rule: Rule) -> Iterator[tuple[str, str]]:
    """Each as its place in the spec and its words."""
    spec = rule.problem.spec
    steps = spec.optimizer.micro_steps * spec.optimizer.inner_steps > 1 and rule.moments is None
    if spec.readout.normalizer != "none" and not _sums_weights(rule):
        yield (
            "readout.normalizer",
            "a normaliser of a rule that is no plain sum with one decay a head",
        )
    if spec.readout.bonus is not None and rule.window > 1:
        yield "readout.bonus", "a bonus beside a window"
    if spec.readout.bonus is not None and steps:
        yield "readout.bonus", "a bonus beside several steps"
    if rule.diagonal and rule.error.uses_norm:
        yield "bias", "a loss of the norm on a diagonal memory"
    if rule.diagonal and rule.problem.features is None:
        yield "features", "a diagonal memory of features that are not elementwise"
    if rule.diagonal and rule.retained.link.normaliser != "none":
        yield "retention", "a constraint on a diagonal memory"
    if rule.window > 1 and any(_names(rule, role) for role in rule.problem.keys):
        yield "keys", "a window of keys or values with coefficients"
    if rule.row_decay != 1 and "chunk" in rule.structure.forms and not _rows_alone(rule):
        yield "retention.row_decay", "a row decay beside momentum, a window, a link or a read-out"
    if rule.retained.mode == "dual" and _varies(rule):
        yield "retention", "a link that varies from token to token"
    exponential = any(s.name == "eta" and s.logarithmic for s in rule.scalars)
    if exponential and rule.structure.kind == "additive" and not _plain(rule):
        yield "optimizer.rate", "an exponential rate of a rule with more than one decay a head"
    if rule.phase and isinstance(spec.features, RESIZING):
        yield "retention.phase", "a phase of features that are not as many as the key's channels"
    if rule.window > 1 and steps:
        yield "optimizer.inner_steps", "several steps on one window"
    if rule.window > 1 and (rule.phase or isinstance(spec.features, Cosine)):
        yield "window", "a window of keys that depend on their position"
    if steps and spec.readout.memory == "before":
        yield "readout.memory", "a read-out before several steps"
    if rule.retained.mode == "multiplicative" and rule.anchor > 1:
        yield "optimizer.anchor", "an f-divergence at an anchor"
    if rule.retained.mode == "prox" and rule.anchor > 1 and spec.readout.memory == "before":
        yield "readout.memory", "a read-out before a retention that acts at an anchor"
    if steps and any(_acts_often(rule.problem.scalar(name)) for name in ("alpha", "beta")):
        yield "retention.decay", "a decay that is no argument, under several steps a token,"


def _sums_weights(rule: Rule) -> bool:
    """Whether the normaliser is Σ of decayed rates: what the forms keep as n."""
    additive = rule.structure.kind == "additive" and not rule.diagonal
    return additive and _plain(rule) and rule.problem.spec.readout.memory == "after"


def _plain(rule: Rule) -> bool:
    """Whether each token writes once, under one decay a head."""
    per = {s.symbol: s.per for s in rule.scalars}
    by_channel = any(per.get(s) in ("key", "outer") for s in rule.decay.free_symbols)
    single = rule.window == 1 and rule.momentum is None and rule.rows == 1
    return single and rule.row_decay == 1 and (rule.diagonal or not by_channel)


def _names(rule: Rule, role: str) -> bool:
    """Whether the vector of a role names a coefficient."""
    return bool(rule.problem.keys[role].free_symbols & {s.symbol for s in rule.scalars})


def _rows_alone(rule: Rule) -> bool:
    """Whether a row decay has nothing beside it that the chunk form would have to join it with."""
    per = {s.symbol: s.per for s in rule.scalars}
    by_row = all(per.get(s) == "value" for s in rule.row_decay.free_symbols)
    plain = rule.momentum is None and rule.window == 1 and rule.retained.link.identity
    return by_row and plain and rule.problem.spec.readout.memory == "after"


def _varies(rule: Rule) -> bool:
    """Whether W_{t−1} = link(A_{t−1}) hangs on coefficients of the token before."""
    link = rule.retained.link
    own = {s for part in (link.expr, link.slope) if part is not None for s in part.free_symbols}
    if link.normaliser in ("softmax", "root", "ball"):
        own |= rule.problem.value(str(link.scale), link.scale).free_symbols
    moving = {s.symbol for s in rule.scalars if s.declared.origin == "input"}
    return not link.identity and bool(own & moving)


def _acts_often(decay: Scalar | None) -> bool:
    """Whether a decay would act at every step of a token: only arguments are spread out."""
    return decay is not None and decay.argument is None and decay.expr != 1
