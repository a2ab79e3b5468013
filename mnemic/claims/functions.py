"""Five functions learned from examples as they come: errors over positions, untrained memories."""

from typing import Any, Final

from mnemic.claims.claim import Told
from mnemic.claims.numbers import mean, shown, spread
from mnemic.claims.outcome import Curve, Outcome, Panel, Part
from mnemic.pipeline import compile

TASKS: Final = {
    "low-rank": "low rank", "mlp": "MLP", "attention-mlp": "attention + MLP",
    "attended-inputs": "attention outputs as inputs", "window-mlp": "windowed attention + MLP",
}  # fmt: skip
SPECS: Final = {
    "delta rule": "deltanet", "least squares": "rls", "omega rule, linear": "omega-linear",
    "MLP with momentum": "titans",
}  # fmt: skip
EASY, HARD = ("low-rank", "mlp", "attended-inputs"), ("attention-mlp", "window-mlp")
SEQUENCES, DRAWS, BLOCKS = 4, 8, 16


def run(seeds: int, quick: bool, told: Told) -> Outcome:
    """Learn each function by each memory's own rule, constants chosen on the train stream."""
    from mnemic.search.tasks import find, tuned

    panels, early, late = [], dict[tuple[str, str], float](), dict[tuple[str, str], list[float]]()
    for task_name, title in TASKS.items():
        task: Any = find(task_name).configure({}, "tiny" if quick else "small")
        curves = []
        for label, spec in SPECS.items():
            told(f"{title}: {label}")
            memory = compile(spec)
            found = [
                tuned(memory, task, draws=2 if quick else DRAWS, sequences=SEQUENCES, seed=seed,
                      unit_keys=spec != "rls")
                for seed in range(seeds)
            ]  # fmt: skip
            early[task_name, label] = mean([one.between(0, 0.1) for one in found])
            late[task_name, label] = [one.between(0.9, 1) for one in found]
            curves.append(_curve(label, [one.errors.tolist() for one in found]))
        panels.append(Panel(title, "position", "|y − o|² / |o|²", tuple(curves), "y"))
    sizes = {"rung": "small: T = 256, d = 32", "sequences": SEQUENCES, "draws": DRAWS,
             "seeds": seeds}  # fmt: skip
    return Outcome("functions", _parts(early, late), tuple(panels), sizes)


def _parts(
    early: dict[tuple[str, str], float], late: dict[tuple[str, str], list[float]]
) -> tuple[Part, ...]:
    def best(task: str) -> float:
        return min(mean(late[task, label]) for label in SPECS)

    seen = ", ".join(f"{title} {best(task):.2g}" for task, title in TASKS.items())
    fell = all(best(t) < 0.8 * min(early[t, label] for label in SPECS) for t in EASY)
    return (
        Part("settings 3 and 5, which need earlier pairs, are much harder than 1, 2 and 4",
             min(map(best, HARD)) > 1.5 * max(map(best, EASY)), f"best last errors: {seen}",
             "within 256 examples of 32 numbers an MLP (setting 2) is no more learned than they"),
        Part("the error falls over positions where the function alone is to be learned", fell,
             "; ".join(f"{TASKS[t]}: {shown(late[t, 'least squares'])} by least squares at the end"
                       for t in EASY)),
        Part("the correlated inputs of setting 4 are learned faster than those of setting 2",
             best("attended-inputs") < best("mlp"),
             f"{best('attended-inputs'):.2g} against {best('mlp'):.2g} (the paper: may be)"),
    )  # fmt: skip


def _curve(label: str, errors: list[list[float]]) -> Curve:
    size = max(1, len(errors[0]) // BLOCKS)
    starts = range(0, len(errors[0]) - size + 1, size)
    blocks = [[min(1e3, mean(run[i : i + size])) for run in errors] for i in starts]
    return Curve(label, tuple(float(i + size / 2) for i in starts), tuple(map(mean, blocks)),
                 tuple(map(spread, blocks)))  # fmt: skip
