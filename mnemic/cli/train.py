"""``mnemic train``: train a small language model of a spec's layers on a task."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from mnemic import pipeline
from mnemic.cli.arguments import AsJson, complete_name, complete_task
from mnemic.cli.output import echo, print_json
from mnemic.cli.train_progress import shown
from mnemic.dsl.hashing import spec_hash
from mnemic.dsl.plain import plain_spec
from mnemic.errors import Issue, UsageError, format_issue

if TYPE_CHECKING:
    from mnemic.models.language_model import LanguageModel
    from mnemic.models.result import Result
    from mnemic.models.train import Existing
    from mnemic.models.train_options import TrainOptions
    from mnemic.pipeline import Compiled
    from mnemic.search.tasks import Task

DEFAULTS: Final[dict[str, dict[str, Any]]] = {
    "mqar": {"time_limit": 600.0, "stop_at": 0.995},
    "bytes": {"time_limit": 180.0, "batch": 16},
}
"""Options of a task that differ from those of `mnemic.models.train_options.TrainOptions`."""

OF_TASKS, OF_TEXT = "Options with --task alone", "Options with --data alone"
"""What stands over the options, in --help, that go with one of the two."""

Source = Annotated[
    str,
    typer.Argument(
        metavar="SPEC|DIR",
        help="A YAML file, a packaged spec's name, or a model's folder.",
        autocompletion=complete_name,
    ),
]
TaskName = Annotated[
    str | None,
    typer.Option(
        "--task", help="What to learn: a name, or a Python file.", autocompletion=complete_task
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data", help="Text to train on, not a task: a folder, a file, a table.", metavar="PATH"
    ),
]
Steps = Annotated[int | None, typer.Option(help="Batches to learn from.", show_default="1000")]
Dim = Annotated[
    int | None, typer.Option(help="Size of the model's stream.", show_default="64; 256 for text")
]
Layers = Annotated[
    int | None, typer.Option(help="Blocks of the model.", show_default="2; 4 for text")
]
Size = Annotated[
    int | None,
    typer.Option("--batch", help="Sequences a batch.", show_default="64; 16 for bytes; 8 for text"),
]
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
    typer.Option(
        "--time-limit", help="Seconds, 0 for no limit.", show_default="none; mqar 600, bytes 180"
    ),
]
StopAt = Annotated[
    float | None,
    typer.Option(
        help="Held-out score at which to stop.", show_default="0.995 for mqar",
        rich_help_panel=OF_TASKS,
    ),
]  # fmt: skip
Threads = Annotated[int, typer.Option(help="Threads of torch.")]
Device = Annotated[
    str,
    typer.Option(
        "--device", metavar="NAME", help="Torch device: cpu, cuda, cuda:1, ... Text is trained on "
        "whatever device torch finds.", rich_help_panel=OF_TASKS,
    ),
]  # fmt: skip
Rung = Annotated[
    str | None,
    typer.Option(
        "--rung", help="How hard: a rung of the task (mnemic tasks NAME).", rich_help_panel=OF_TASKS
    ),
]
TaskOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--task-option", metavar="NAME=VALUE", help="An option of the task; repeatable.",
        rich_help_panel=OF_TASKS,
    ),
]  # fmt: skip

HeldOut = Annotated[
    Path | None,
    typer.Option(
        "--held-out", help="Text to evaluate on, in place of a share.", metavar="PATH",
        rich_help_panel=OF_TEXT,
    ),
]  # fmt: skip
Column = Annotated[
    str, typer.Option("--column", help="A table's column of text.", rich_help_panel=OF_TEXT)
]
TokenizerName = Annotated[
    str | None,
    typer.Option(
        "--tokenizer", help="bytes, bpe:SIZE to train one, or one that was saved.",
        show_default="a model folder's own, else bytes", rich_help_panel=OF_TEXT,
    ),
]  # fmt: skip
Length = Annotated[int, typer.Option(help="Tokens of a row.", rich_help_panel=OF_TEXT)]
SizeName = Annotated[
    str | None,
    typer.Option(
        "--size", help="Size of the model: 170M, 340M, 760M or 1.3B.", rich_help_panel=OF_TEXT
    ),
]
Heads = Annotated[
    int | None,
    typer.Option(help="Heads of a memory whose spec does not say.", rich_help_panel=OF_TEXT),
]
Warmup = Annotated[int, typer.Option(help="Steps to the full rate.", rich_help_panel=OF_TEXT)]
OptimizerName = Annotated[
    str,
    typer.Option("--optimizer", help="adamw, or muon for matrices.", rich_help_panel=OF_TEXT),
]
Accumulate = Annotated[
    int,
    typer.Option(
        help="Batches whose gradients are added up before each step.", rich_help_panel=OF_TEXT
    ),
]
Precision = Annotated[str, typer.Option(help="float32 or bfloat16.", rich_help_panel=OF_TEXT)]
Checkpointing = Annotated[
    bool,
    typer.Option(
        "--checkpointing", help="Compute activations again to save memory.", rich_help_panel=OF_TEXT
    ),
]
CompileModel = Annotated[
    bool,
    typer.Option("--compile", help="Train under torch.compile: slow to begin, then faster."),
]
EvalEvery = Annotated[int, typer.Option(help="Steps between evaluations.", rich_help_panel=OF_TEXT)]
TensorBoard = Annotated[
    bool,
    typer.Option("--tensorboard", help="Write logs for TensorBoard.", rich_help_panel=OF_TEXT),
]
Shard = Annotated[
    bool,
    typer.Option(
        "--shard", help="Cut weights, gradients and optimizer across torchrun's processes.",
        rich_help_panel=OF_TEXT,
    ),
]  # fmt: skip
SequenceParallel = Annotated[
    int,
    typer.Option(
        "--sequence-parallel", help="How many of torchrun's processes share each row.",
        rich_help_panel=OF_TEXT,
    ),
]  # fmt: skip


def train(
    context: typer.Context,
    spec: Source,
    task: TaskName = None,
    data: Data = None,
    steps: Steps = None,
    dim: Dim = None,
    layers: Layers = None,
    batch: Size = None,
    lr: Rate = None,
    seed: Seed = 0,
    run: Run = None,
    resume: Resume = False,
    replace: Replace = False,
    time_limit: TimeLimit = None,
    stop_at: StopAt = None,
    threads: Threads = 1,
    device: Device = "cpu",
    rung: Rung = None,
    task_option: TaskOptions = None,
    held_out: HeldOut = None,
    column: Column = "text",
    tokenizer: TokenizerName = None,
    length: Length = 256,
    size: SizeName = None,
    heads: Heads = None,
    warmup: Warmup = 50,
    optimizer: OptimizerName = "adamw",
    accumulate: Accumulate = 1,
    precision: Precision = "float32",
    checkpointing: Checkpointing = False,
    compile_model: CompileModel = False,
    eval_every: EvalEvery = 100,
    tensorboard: TensorBoard = False,
    shard: Shard = False,
    sequence_parallel: SequenceParallel = 1,
    as_json: AsJson = False,
) -> None:
    """Train a language model of the spec's layers on a task (mnemic tasks lists them), or on text.

    Options of the task that are given override those of the rung. The run's folder gets
    checkpoint.pt, curve.csv, curve.png and result.json; Ctrl-C and SIGTERM save first, and --resume
    goes on from there, bit for bit as an unbroken run.

    With --data the text is a folder of files, a file, or a table (parquet, JSON lines), documents
    are packed into rows and states reset between them, and a twentieth is held out. The run's
    folder gets a checkpoint at every evaluation, and at the end model/, which transformers loads,
    with its tokenizer. A run that was killed at any moment goes on with --resume.

    JSON: as result.json (metric, score, chance, ceiling, loss, steps, seconds, stopped, ...; for
    text bits, loss, steps, stopped, parameters), and "run", its folder.
    """
    if resume and replace:
        raise UsageError("--resume and --replace exclude one another")
    if (task is None) == (data is None):
        raise UsageError("give exactly one of --task and --data")
    _check_panels(context, OF_TASKS if task is None else OF_TEXT)
    existing: Existing = "resume" if resume else "replace" if replace else "refuse"
    if data is not None:
        from mnemic.cli.train_text import train_text

        options = {"steps": steps, "batch": batch, "lr": lr, "seed": seed, "threads": threads,
                   "length": length, "warmup": warmup, "optimizer": optimizer,
                   "accumulate": accumulate, "precision": precision, "compiled": compile_model,
                   "checkpointing": checkpointing, "eval_every": eval_every,
                   "time_limit": time_limit, "tensorboard": tensorboard,
                   "sharded": shard, "sequence_parallel": sequence_parallel}  # fmt: skip
        shape = {"dim": dim, "blocks": layers, "heads": heads}
        train_text(spec, data, held_out, column, tokenizer, size, shape, options, run, existing,
                   as_json)  # fmt: skip
        return
    from mnemic.models.device import demand_device

    assert task is not None
    if Path(spec).is_dir():
        raise UsageError(f"{spec}: a model's folder, which --data trains further; with --task give "
                         "a spec")  # fmt: skip
    learned = configured(task, task_option or [], rung)
    chosen = {"steps": steps, "batch": batch, "lr": lr, "stop_at": stop_at}
    given = {**chosen, "time_limit": time_limit, "seed": seed, "threads": threads,
             "device": demand_device(device), "compiled": compile_model}  # fmt: skip
    trained = _options(task, given)
    compiled = pipeline.compile(spec)
    folder = run or Path("runs") / f"{compiled.spec.name}-{learned.name}-{seed}"
    model = _model(compiled, learned, dim or 64, layers or 2, seed)
    result = _train(compiled, model, learned, trained, folder, existing)
    _tell(result, folder, as_json)


def _check_panels(context: typer.Context, other: str) -> None:
    """Raise UsageError where options were given that stand under ``other`` in --help."""
    given = [
        option.opts[0]
        for option in context.command.params
        if getattr(option, "rich_help_panel", None) == other
        and (source := context.get_parameter_source(str(option.name))) is not None
        and source.name == "COMMANDLINE"
    ]
    if not given:
        return
    wanted, instead = ("--data", "--task") if other == OF_TEXT else ("--task", "--data")
    hint = " (a task's own options: --task-option NAME=VALUE)" if other == OF_TEXT else ""
    raise UsageError(f"{', '.join(given)}: only with {wanted}, not with {instead}{hint}")


def configured(name: str, options: list[str], rung: str | None = None) -> "Task[Any]":
    """Return the task with its options, given as NAME=VALUE, over those of a rung."""
    from mnemic.search import tasks

    return tasks.get(name).configure(dict(map(pair, options)), rung)


def pair(text: str) -> tuple[str, object]:
    """Split NAME=VALUE into the name and its value, a number where it reads as one."""
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
    """Make training options: the given ones, else the task's, else the general ones."""
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
        "spec": plain_spec(compiled.spec),
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
