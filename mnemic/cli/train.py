"""``mnemic train``: train a small language model of a spec's layers on a task."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from mnemic import pipeline
from mnemic.cli.arguments import AsJson, SpecArgument, complete_task
from mnemic.cli.output import echo, print_json
from mnemic.cli.train_progress import shown
from mnemic.dsl.hashing import spec_hash
from mnemic.dsl.writing import short
from mnemic.errors import Issue, UsageError, format_issue

if TYPE_CHECKING:
    from mnemic.models.language_model import LanguageModel
    from mnemic.models.result import Result
    from mnemic.models.train import Existing
    from mnemic.models.train_options import TrainOptions
    from mnemic.pipeline import Compiled
    from mnemic.search.tasks import Task

DEFAULTS: Final[dict[str, dict[str, Any]]] = {
    "mqar": {"time_limit": 180.0, "stop_at": 0.995},
    "bytes": {"time_limit": 180.0, "batch": 16},
}
"""Options of a task that differ from those of `mnemic.models.train_options.TrainOptions`."""

TaskName = Annotated[
    str,
    typer.Option(
        "--task", help="What to learn: a name, or a Python file.", autocompletion=complete_task
    ),
]
Steps = Annotated[int | None, typer.Option(help="Batches to learn from.", show_default="1000")]
Dim = Annotated[int, typer.Option(help="Size of the model's stream.")]
Layers = Annotated[int, typer.Option(help="Blocks of the model.")]
Size = Annotated[int | None, typer.Option("--batch", help="Sequences a batch.", show_default="64")]
Rate = Annotated[float | None, typer.Option("--lr", help="Learning rate.", show_default="0.003")]
Seed = Annotated[int, typer.Option(help="Of the model's parameters and of the batches.")]
Run = Annotated[
    Path | None,
    typer.Option(
        "--run", help="Folder of the run.", show_default="runs/SPEC-TASK-SEED", metavar="DIR"
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on where the run's folder left off.")]
Replace = Annotated[bool, typer.Option("--replace", help="Forget the folder's earlier run.")]
TimeLimit = Annotated[
    float | None,
    typer.Option("--time-limit", help="Seconds, 0 for no limit.", show_default="180"),
]
StopAt = Annotated[
    float | None,
    typer.Option(help="Held-out score at which to stop.", show_default="0.995 for mqar"),
]
Threads = Annotated[int, typer.Option(help="Threads of torch.")]
Rung = Annotated[
    str | None, typer.Option("--rung", help="How hard: a rung of the task (mnemic tasks NAME).")
]
TaskOptions = Annotated[
    list[str] | None,
    typer.Option("--task-option", metavar="NAME=VALUE", help="An option of the task; repeatable."),
]


def train(
    spec: SpecArgument,
    task: TaskName,
    steps: Steps = None,
    dim: Dim = 64,
    layers: Layers = 2,
    batch: Size = None,
    lr: Rate = None,
    seed: Seed = 0,
    run: Run = None,
    resume: Resume = False,
    replace: Replace = False,
    time_limit: TimeLimit = None,
    stop_at: StopAt = None,
    threads: Threads = 1,
    rung: Rung = None,
    task_option: TaskOptions = None,
    as_json: AsJson = False,
) -> None:
    """Train a language model of the spec's layers on a task (mnemic tasks lists them).

    Options of the task that are given override those of the rung.

    The run's folder gets checkpoint.pt, curve.csv, curve.png and result.json; Ctrl-C saves first,
    and --resume goes on from there bit by bit.

    JSON: as result.json (metric, score, chance, ceiling, loss, steps, seconds, stopped, ...), and
    "run", its folder.
    """
    if resume and replace:
        raise UsageError("--resume and --replace exclude one another")
    learned = configured(task, task_option or [], rung)
    chosen = {"steps": steps, "batch": batch, "lr": lr, "stop_at": stop_at}
    options = _options(task, {**chosen, "time_limit": time_limit, "seed": seed, "threads": threads})
    compiled = pipeline.compile(spec)
    folder = run or Path("runs") / f"{compiled.spec.name}-{learned.name}-{seed}"
    model = _model(compiled, learned, dim, layers, seed)
    existing: Existing = "resume" if resume else "replace" if replace else "refuse"
    result = _train(compiled, model, learned, options, folder, existing)
    _tell(result, folder, as_json)


def configured(name: str, options: list[str], rung: str | None = None) -> "Task[Any]":
    """The task with its options, given as NAME=VALUE."""
    from mnemic.search import tasks

    return tasks.get(name).configure(dict(map(pair, options)), rung)


def pair(text: str) -> tuple[str, object]:
    """A name and its value, a number where it reads as one."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise UsageError(format_issue(Issue("needs NAME=VALUE", "--task-option", read=text)))
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, value


def _options(task: str, given: dict[str, Any]) -> "TrainOptions":
    """Training options: the given ones, else the task's, else the general ones."""
    from mnemic.models.train_options import TrainOptions

    told = {name: value for name, value in given.items() if value is not None}
    merged = {**DEFAULTS.get(task, {}), **told}
    if merged.get("time_limit") == 0:
        merged["time_limit"] = None
    return TrainOptions(**merged)


def _model(
    compiled: "Compiled", task: "Task[Any]", dim: int, layers: int, seed: int
) -> "LanguageModel":
    from mnemic.models.language_model import ModelOptions, build

    kernel = compiled.spec.block.feed_forward
    options = ModelOptions(task.vocabulary, dim=dim, layers=layers, feed_forward=kernel)
    return build(options, lambda dim, index: compiled.layer(dim), seed)


def _train(
    compiled: "Compiled", model: "LanguageModel", task: "Task[Any]", options: "TrainOptions",
    folder: Path, existing: "Existing",
) -> "Result":  # fmt: skip
    from mnemic.models.train import train as run

    metadata = {
        "spec": short(compiled.spec),
        "hash": spec_hash(compiled.spec),
        "model": asdict(model.options),
    }
    with shown(f"{compiled.spec.name} on {task.name}", task.metric) as progress:
        return run(model, task, options, folder, progress, metadata=metadata, existing=existing)


def _tell(result: "Result", folder: Path, as_json: bool) -> None:
    if as_json:
        print_json({**asdict(result), "run": str(folder)})
        return
    reasons = {"target": "the score was reached", "time": "the time is over", "steps": "all steps"}
    score = "none" if result.score is None else f"{result.score:.4g}"
    echo(
        f"{result.metric} {score} (chance {result.chance:.3g}, best {result.ceiling:.3g}) after "
        f"{result.steps} steps, {result.seconds:.0f} s: {reasons[result.stopped]}"
    )
    echo(f"{result.parameters:,} parameters; result, curve and checkpoint in {folder}")
