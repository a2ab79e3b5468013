"""Rules about memories: chains, sizes, features, keys, the read-out and the block."""

from collections.abc import Iterator
from itertools import pairwise

from mnemic.dsl.features import (
    Cosine,
    Dpfp,
    Exponential,
    Kernel,
    Polynomial,
    Random,
    Taylor,
)
from mnemic.dsl.memory import Chain, Diagonal, Interpolation, Linear, Nonparametric
from mnemic.dsl.methods import ELEMENTWISE, listed
from mnemic.dsl.rules.rule import Rule, adds_its_input, deep, keeps_pairs, steps_plainly
from mnemic.dsl.spec import Spec
from mnemic.dsl.texts import memories, texts
from mnemic.errors import Issue

_RESIZING = (Cosine, Dpfp, Exponential, Kernel, Polynomial, Random, Taylor)
THROUGH_O = ("muon", *ELEMENTWISE)
"""Methods whose step is not the gradient times a rate."""
STEPPING = (
    f"not through {listed(THROUGH_O, 'or')}, at intervals (every) or between norms (normalize)"
)
"""What the read-outs of a plain memory do not go with."""
_LINEAR_ROLES = ("predict", "erase", "write")


def chains(spec: Spec) -> Iterator[Issue]:
    """Require one interval per memory of a chain, each a multiple of the shorter ones; refuse
    nested chains."""
    for where, chain in memories(spec.memory):
        if not isinstance(chain, Chain):
            continue
        if len(chain.chain) != len(chain.every):
            reason = f"{len(chain.chain)} memories need as many intervals, not {len(chain.every)}"
            yield Issue(reason, f"{where}.every")
        if min(chain.every) < 1:
            yield Issue("an interval is at least 1 token", f"{where}.every")
        elif any(b % a for a, b in pairwise(sorted(chain.every))):
            reason = "intervals must be multiples of one another, so that chunks nest"
            yield Issue(reason, f"{where}.every", hint="for example every: [1, 4, 16]")
        if any(isinstance(link, Chain) for link in chain.chain):
            reason = "a chain in a chain is one chain"
            yield Issue(reason, f"{where}.chain", hint="write the memories one after another")


def parameters_in_a_chain(spec: Spec) -> Iterator[Issue]:
    """Refuse kept pairs in a chain, each memory of which has parameters to learn."""
    if not isinstance(spec.memory, Chain):
        return
    for i, link in enumerate(spec.memory.chain):
        if link.word() in ("nonparametric", "interpolation"):
            reason = "a memory of kept pairs has no parameters for a chain to update"
            yield Issue(reason, f"memory.chain[{i}]", link.word(), hint="use linear, mlp or glu")


def one_size(spec: Spec) -> Iterator[Issue]:
    """Refuse keys and values of different sizes for a residual or a diagonal memory."""
    sizes = (spec.block.key_dim, spec.block.value_dim)
    key, value = sizes
    if key is None or value is None:
        return
    if isinstance(spec.memory, Diagonal) and spec.retention.phase is not None:
        if value != 2 * key:
            reason = f"a complex value has two parts a key channel, not {key} and {value}"
            yield Issue(reason, "memory", hint="leave out one of key_dim and value_dim")
        return
    if key == value:
        return
    for where, memory in memories(spec.memory):
        if adds_its_input(memory) or isinstance(memory, Diagonal):
            name = "a residual" if adds_its_input(memory) else "a diagonal memory"
            reason = f"{name} needs keys and values of one size, not {sizes[0]} and {sizes[1]}"
            yield Issue(reason, where, hint="leave out key_dim and value_dim, or make them equal")


def diagonal_features(spec: Spec) -> Iterator[Issue]:
    """Refuse features that change the size under a diagonal memory, W ∘ φ(k)."""
    if isinstance(spec.memory, Diagonal) and isinstance(spec.features, _RESIZING):
        reason = "a diagonal memory multiplies features elementwise, and these change the size"
        hint = "use elementwise features such as elu, relu or {expr: ...}"
        yield Issue(reason, "features", spec.features.word(), hint=hint)


def weights_of_degrees(spec: Spec) -> Iterator[Issue]:
    """Require one a_i ≥ 0 per degree of graded features, constant over tokens and not all 0."""
    features, where = spec.features, "features.a"
    if not isinstance(features, Polynomial) or features.a is None:
        return
    if features.mode == "power":
        hint = "leave out mode: power, or a: a graded map with a: [0, …, 1] has the same kernel"
        yield Issue("the self-tensor has one degree and no coefficients", where, hint=hint)
        return
    if len(features.a) != features.degree + 1:
        reason = f"degree {features.degree} has a_0 … a_{features.degree}, "
        reason += f"{features.degree + 1} numbers, not {len(features.a)}"
        yield Issue(reason, where, hint="give each its own, or leave a out: all are learned")
    if all(a.value == 0 for a in features.a):
        yield Issue("one a_i at least is above 0: without any the map is 0", where)
    for i, a in enumerate(features.a):
        if a.origin == "input":
            reason = "a feature map is the same at every token, or keys of the past would not match"
            hint = "use learned, a number, or an expression of these and the head h"
            yield Issue(reason, f"{where}[{i}]", "input", hint=hint)


def one_kernel(spec: Spec) -> Iterator[Issue]:
    """Refuse kernel features for a memory of kept pairs, which has a kernel of its own."""
    if keeps_pairs(spec) and not spec.features.finite:
        reason = "the memory compares keys by a kernel of its own already"
        yield Issue(reason, "features", hint="write the kernel as the memory's, and no features")


def steps_behind_a_kernel(spec: Spec) -> Iterator[Issue]:
    """Refuse methods that need W itself behind a kernel, which gives only keys' weights."""
    method = spec.optimizer.method
    if spec.features.finite or keeps_pairs(spec):
        return
    if method in THROUGH_O:
        reason = f"'{method}' works on the entries of W, and a kernel has no finite map"
        hint = "use gd or momentum, or finite features such as random or polynomial"
        yield Issue(reason, "optimizer.method", method, hint=hint)
    if method == "exact":
        reason = "exact regression behind a kernel keeps the pairs"
        yield Issue(reason, "optimizer.method", method, hint="use memory: interpolation")


def keys_of_a_linear_memory(spec: Spec) -> Iterator[Issue]:
    """Refuse roles of keys without linear steps; behind a kernel, own keys to erase or write."""
    given = [role for role in _LINEAR_ROLES if getattr(spec.keys, role) is not None]
    for role in given:
        if keeps_pairs(spec) or deep(spec):
            reason = "roles of keys are sides of a linear memory's step, and this one has none"
            yield Issue(reason, f"keys.{role}", hint="use memory: linear, or leave the role out")
        elif not spec.features.finite and role != "predict" and getattr(spec.keys, role).own:
            reason = "a kernel keeps one key for each pair, so erasing and writing share it"
            hint = "only predict may differ behind a kernel; a gate is an expression such as b*k"
            yield Issue(reason, f"keys.{role}", "own", hint=hint)


def keys_that_move(spec: Spec) -> Iterator[Issue]:
    """Refuse a carry, which moves kept keys, where memory, method or rate cannot follow."""
    if spec.keys.carry is None:
        return
    where, hint = "keys.carry", "use memory: nonparametric, or leave the carry out"
    if isinstance(spec.memory, Interpolation):
        reason = "an interpolation factors the kernel matrix of its keys, which would have to stay"
        yield Issue(reason, where, hint=hint)
    elif not isinstance(spec.memory, Nonparametric) and spec.features.finite:
        reason = (
            "a carry moves kept keys, and this memory keeps none: its decay and its step move W"
        )
        yield Issue(reason, where, hint=hint)
    elif not isinstance(spec.memory, Nonparametric):
        reason = "a carry moves keys that are compared with queries alone, and a step behind a "
        reason += "kernel compares them with one another"
        yield Issue(reason, where, hint=hint)
    elif spec.optimizer.method == "exact":
        reason = "a carry is a step of its own, whose rate an exact solver has as a weight"
        yield Issue(reason, "optimizer.method", "exact", hint="write method: nonparametric")
    elif spec.optimizer.rate.normalized:
        reason = "a normalised rate bounds the step of a loss on values, and a carry moves keys"
        hint = "leave out normalized; of a unit carry any rate from 0 to 2 is safe"
        yield Issue(reason, "optimizer.rate", hint=hint)


def value_of_its_own(spec: Spec) -> Iterator[Issue]:
    """Refuse ``own`` for the value, which always has its own projection."""
    if spec.keys.value is not None and spec.keys.value.own:
        reason = "the value is a projection of its own already"
        yield Issue(reason, "keys.value", "own", hint="leave it out, or write an expression of v")


def keys_by_channel(spec: Spec) -> Iterator[Issue]:
    """Refuse numbers by value channel in an expression of a key, and by key channel of a value."""
    if isinstance(spec.memory, Diagonal):
        return
    named = spec.named_coefficients()
    for text in (text for text in texts(spec) if text.where.startswith("keys.")):
        wrong = "key" if text.where == "keys.value" else "value"
        for name in sorted(text.names & named.keys()):
            if named[name].per == wrong:
                own = "a value" if wrong == "key" else "a key"
                reason = f"{name} has one number per {wrong} channel, and this is {own}"
                yield Issue(reason, text.where, text.text)


def normaliser(spec: Spec) -> Iterator[Issue]:
    """Refuse a normaliser where weights of values do not add up, or are normalised already."""
    if spec.readout.normalizer == "none":
        return
    where, word = "readout.normalizer", spec.readout.normalizer
    if deep(spec):
        reason = "a normaliser sums the weights of the values in a linear memory"
        yield Issue(reason, where, word, hint="a deep memory has its norm: true")
    elif keeps_pairs(spec):
        reason = "a memory of kept pairs is normalised as it is"
        yield Issue(reason, where, word, hint="leave the normaliser out")
    elif not steps_plainly(spec):
        reason = f"values carry weights that add up under plain steps only, {STEPPING}"
        yield Issue(reason, where, word, hint="leave the normaliser out")
    elif isinstance(spec.features, Kernel):
        read = spec.features.readout or spec.features
        if read.normalise == "row":
            reason = "the kernel's rows are normalised already"
            yield Issue(reason, where, word, hint="use one of the two")


def pairs_are_read_after(spec: Spec) -> Iterator[Issue]:
    """Refuse to read kept pairs other than after the write: a fit includes its own token's pair."""
    word = spec.readout.memory
    if keeps_pairs(spec) and word != "after":
        reason = "a fit at each query sees the pairs up to its own token"
        yield Issue(reason, "readout.memory", word, hint="write after, or leave it out")


def bonus(spec: Spec) -> Iterator[Issue]:
    """Refuse a bonus v (u ∘ φ(k))·φ(q) unless W is linear in finite features, by plain steps."""
    if spec.readout.bonus is None:
        return
    hint = "leave the bonus out"
    if not isinstance(spec.memory, Linear | Diagonal):
        reason = "a bonus adds the current pair as a linear memory would read it"
        yield Issue(reason, "readout.bonus", hint=hint)
    elif not spec.features.finite:
        reason = "a bonus weighs single features, and a kernel has no finite map"
        yield Issue(reason, "readout.bonus", hint=hint)
    elif not steps_plainly(spec):
        reason = f"a bonus adds the current pair as a plain step would write it, {STEPPING}"
        yield Issue(reason, "readout.bonus", hint=hint)


def chain_or_interval(spec: Spec) -> Iterator[Issue]:
    """Refuse an optimizer's interval for a chain, which has one for each of its memories."""
    if isinstance(spec.memory, Chain) and spec.optimizer.every > 1:
        reason = "a chain has an interval for each of its memories"
        yield Issue(reason, "optimizer.every", hint="write memory: {chain: [...], every: [...]}")


def slots_are_linear(spec: Spec) -> Iterator[Issue]:
    """Refuse slots behind a kernel, or where steps are not plain."""
    slots = getattr(spec.memory, "slots", None)
    if slots is not None and not spec.features.finite:
        reason = "slots are finitely many keys, and a kernel keeps them all"
        yield Issue(reason, "memory.slots", hint="use finite features, or leave the slots out")
    elif slots is not None and not steps_plainly(spec):
        reason = f"the companion memory of the keys is written by plain steps, {STEPPING}"
        yield Issue(reason, "memory.slots", hint="leave the slots out")


RULES: tuple[Rule, ...] = (
    chains,
    parameters_in_a_chain,
    one_size,
    diagonal_features,
    weights_of_degrees,
    one_kernel,
    steps_behind_a_kernel,
    keys_of_a_linear_memory,
    keys_that_move,
    value_of_its_own,
    keys_by_channel,
    normaliser,
    pairs_are_read_after,
    bonus,
    chain_or_interval,
    slots_are_linear,
)
