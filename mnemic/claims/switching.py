"""The switching autoregressive process, predicted by memories that nobody has trained."""

from dataclasses import dataclass, field
from typing import Any, Final

from mnemic.claims.claim import Told
from mnemic.claims.numbers import mean, shown, spread
from mnemic.claims.outcome import Curve, Outcome, Panel, Part
from mnemic.dsl.spec import Spec
from mnemic.pipeline import compile, read

SEQUENCES = 16
EDGE, SETTLED, POINTS = 0.25, 0.5, 32
"""When the process switches, from when on a method has had its time, and points of a curve."""


@dataclass(frozen=True)
class Method:
    """A curve's label, a packaged spec, and what it is run with.

    ``unit`` scales its answers to the values' norm, as the paper did for linear attention;
    ``tuned`` lets its constants be chosen on the train stream, ``local`` the factor b of its
    similarity exp(b k·q) on unit keys, which the paper does not print.
    """

    label: str
    spec: str
    unit: bool = False
    tuned: bool = False
    local: bool = False
    constants: dict[str, float] = field(default_factory=dict)


METHODS: Final = (
    Method("linear attention", "linear-attention", unit=True),
    Method("gated linear attention", "mamba2", unit=True, tuned=True),
    Method("delta rule", "deltanet", tuned=True),
    Method("RLS", "rls"),
    Method("RLS, decaying weights", "rls-geometric", constants={"log_gamma": -0.05}),
    Method("softmax attention", "softmax-attention", local=True),
    Method("local linear attention", "local-linear-attention", local=True,
           constants={"ridge": 0.05}),
)  # fmt: skip
FACTORS: Final = (1, 4, 16, 64)
"""Factors b of the similarity exp(b k·q) that are tried."""


def run(seeds: int, quick: bool, told: Told) -> Outcome:
    """Predict the process with every method, and compare the errors before and after the switch."""
    from mnemic.search.tasks import find

    task: Any = find("switching").configure({}, "tiny" if quick else "published")
    sequences = 2 if quick else SEQUENCES
    curves, late, whole = list[Curve](), dict[str, list[float]](), dict[str, list[float]]()
    for method in METHODS:
        told(method.label)
        found = [_outcome(method, task, sequences, seed, quick) for seed in range(seeds)]
        late[method.label] = [one.between(SETTLED, 1) for one in found]
        whole[method.label] = [one.score for one in found]
        curves.append(_curve(method.label, [one.errors.tolist() for one in found]))
    panel = Panel("relative error", "position t", "|y − v|² / |v|²", tuple(curves), "y")
    sizes = {"T": task.length, "d": task.dim, "sequences": sequences, "seeds": seeds,
             "switch": task.length // 4}  # fmt: skip
    rows = tuple({"method": m.label, "mean": mean(whole[m.label]), "late": mean(late[m.label])}
                 for m in METHODS)  # fmt: skip
    return Outcome("switching", _parts(whole, late), (panel,), sizes, rows=rows)


def _outcome(method: Method, task: Any, sequences: int, seed: int, quick: bool) -> Any:
    """Evaluate a method on one seed's sequences."""
    from mnemic.search.tasks import evaluate, tuned

    sizes: dict[str, Any] = {"sequences": sequences, "seed": seed, "unit": method.unit}
    if method.tuned:
        return tuned(compile(method.spec), task, draws=4 if quick else 16, **sizes)
    if not method.local:
        return evaluate(compile(method.spec), task, method.constants, **sizes)
    memories = [compile(_local(method.spec, b)) for b in FACTORS[: 2 if quick else None]]

    def run(memory: Any, split: Any) -> Any:
        return evaluate(memory, task, method.constants, **sizes, split=split, unit_keys=True)

    return run(min(memories, key=lambda memory: run(memory, "train").score), "test")


def _local(name: str, factor: int) -> Spec:
    """Return a packaged local fit with similarity exp(b k·q), its equations solved to the end."""
    spec = read(name)
    memory = spec.memory.model_copy(update={"similarity": f"exp({factor}*s)"})
    changes: dict[str, Any] = {"memory": memory}
    if spec.optimizer.solver is not None:
        solver = spec.optimizer.solver.model_copy(update={"iterations": 400})
        changes["optimizer"] = spec.optimizer.model_copy(update={"solver": solver})
    return spec.model_copy(update=changes)


def _parts(whole: dict[str, list[float]], late: dict[str, list[float]]) -> tuple[Part, ...]:
    linear, rls, softmax, local = (
        "linear attention", "RLS", "softmax attention", "local linear attention",
    )  # fmt: skip
    four = (linear, rls, softmax, local)
    worst, best = max(four, key=lambda m: mean(whole[m])), min(four, key=lambda m: mean(late[m]))
    return (
        Part("linear attention is worst of the four methods", worst == linear, _seen(whole, four)),
        Part("after the switch least squares is stuck: softmax attention does better",
             mean(late[softmax]) < mean(late[rls]), _seen(late, (rls, softmax)),
             "after the switch the keys grow, from a standard deviation of 0.05 to several times "
             "that, so that later pairs outweigh earlier ones in the sum of squares; the ridge of "
             "1/2 is ours, the paper tells none"),
        Part("after the switch local linear attention does best", best == local,
             _seen(late, four)),
        Part("decaying weights let least squares adapt",
             mean(late["RLS, decaying weights"]) < mean(late[rls]),
             _seen(late, (rls, "RLS, decaying weights"))),
    )  # fmt: skip


def _seen(errors: dict[str, list[float]], names: tuple[str, ...]) -> str:
    return ", ".join(f"{name} {shown(errors[name])}" for name in names)


def _curve(label: str, errors: list[list[float]]) -> Curve:
    """Average the errors by position over as many blocks as `POINTS`."""
    size = max(1, len(errors[0]) // POINTS)
    starts = range(0, len(errors[0]) - size + 1, size)
    blocks = [[mean(run[i : i + size]) for run in errors] for i in starts]
    return Curve(label, tuple(float(i + size / 2) for i in starts), tuple(map(mean, blocks)),
                 tuple(map(spread, blocks)))  # fmt: skip
