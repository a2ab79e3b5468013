"""``mnemic search``: find specs that are good at what the user cares for."""

import signal
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from mnemic.cli.arguments import AsJson
from mnemic.cli.output import console, echo, going_on, print_json, to_stderr
from mnemic.cli.overrides import BlockOption, Budget, CompileSteps, Device, overridden
from mnemic.cli.search_progress import followed
from mnemic.errors import Issue, UsageError, format_issue, nearest

if TYPE_CHECKING:
    from mnemic.search.report.ranking import Ranked
    from mnemic.search.space.preview import Preview
    from mnemic.search.space.space import Space
    from mnemic.search.study.search import Search
    from mnemic.search.study.worker import Done

SpacePath = Annotated[
    str, typer.Argument(metavar="SPACE", help="A YAML file: a spec with choices.")
]
Preview_ = Annotated[bool, typer.Option("--preview", help="Sample the space; train nothing.")]
Samples = Annotated[int, typer.Option(help="Points of a preview.", min=1)]
Run = Annotated[
    Path | None,
    typer.Option("--run", help="Folder of the search.", show_default="runs/NAME", metavar="DIR"),
]
Storage = Annotated[
    str | None,
    typer.Option(
        "--storage", metavar="URL", show_default="SQLite in the run's folder",
        help="Where trials are kept: postgresql://user@host/database for several machines.",
    ),
]  # fmt: skip
Trials = Annotated[int | None, typer.Option(help="Trials in all, over every worker.", min=1)]
Sampler = Annotated[str | None, typer.Option(help="tpe, gp, nsga2, nsga3, random or grid.")]
Jobs = Annotated[int, typer.Option(help="Trials, or specs to confirm, at a time.", min=1)]
Report = Annotated[bool, typer.Option("--report", help="Only write the report and best/ anew.")]
Again = Annotated[bool, typer.Option("--again", help="First try once more what failed or crashed.")]
Confirm = Annotated[
    bool, typer.Option("--confirm", help="After the search, train the best on fresh seeds.")
]
Heartbeat = Annotated[int, typer.Option(help="Seconds between a worker's signs of life.", min=1)]
Grace = Annotated[
    int, typer.Option(help="Seconds without a sign of life until its trial is retried.", min=2)
]
Launch = Annotated[
    str | None, typer.Option("--launch", metavar="CLUSTER", help="slurm, or local to try it.")
]
Workers = Annotated[int, typer.Option(help="Jobs to submit to the cluster.", min=1)]
Hours = Annotated[float, typer.Option(help="Hours of wall time for each job.", min=0.02)]
Partition = Annotated[str | None, typer.Option(help="The cluster's partition for the jobs.")]


def search(
    space: SpacePath,
    preview: Preview_ = False,
    samples: Samples = 200,
    run: Run = None,
    storage: Storage = None,
    block: BlockOption = None,
    budget: Budget = None,
    trials: Trials = None,
    sampler: Sampler = None,
    device: Device = None,
    compile_steps: CompileSteps = False,
    jobs: Jobs = 1,
    report: Report = False,
    again: Again = False,
    confirm: Confirm = False,
    heartbeat: Heartbeat = 60,
    grace: Grace = 300,
    launch: Launch = None,
    workers: Workers = 2,
    hours: Hours = 12.0,
    partition: Partition = None,
    as_json: AsJson = False,
) -> None:
    """Search a space of specs: train many points a little, the good ones more.

    A SPACE is a spec in which any value may be {choose: [...]} or {range: [low, high], log: true},
    with an entry search: tasks, objectives, constraints, budget (docs/search.md).

    Each trial runs in a process of its own, within limits of time and memory. The same command
    goes on with what is there; the same command with --storage on other machines helps. The folder
    gets report.html, best/*.yaml, the training runs and, unless --storage tells another, study.db
    (optuna-dashboard opens it).

    JSON: {"study", "folder", "trials", "ends": {end: count}, "reason", "verdict", "best":
    [{"name", "skill", "half", "seeds", "tasks", "costs", "hash", "start"}, ...],
    "confirmed": {name: [mean, half, seeds]}, "elsewhere": {setting: {name: [mean, half, seeds]}},
    "report"}; of a preview {"size", "sampled", "valid", "distinct", "reasons", "options",
    "classes"}.
    """
    from mnemic.models.device import CPU, OF_SPACE, demand_device

    read = _space(space, block, budget, trials, sampler, device, compile_steps)
    if preview:
        _preview(read, samples, as_json)
        return
    folder = run or Path("runs") / read.name
    if launch is not None:
        gpus = int(read.settings.device != CPU)
        memory = (read.settings.limits.memory + PROGRAM) * jobs + PROGRAM
        asked = Cluster(workers, hours, jobs, partition, gpus)
        _launch(launch, folder, storage, asked, memory, as_json)
        return
    import mnemic.search.report.page  # noqa: F401 (what the report needs is missed before training)
    from mnemic.search.study.patience import told_when_lost
    from mnemic.search.study.rivals import demand_names
    from mnemic.search.study.search import open_search
    from mnemic.search.study.storage import Beat

    if confirm:
        demand_names(read)
    if not report or confirm:
        demand_device(read.settings.device, OF_SPACE)
    if grace <= heartbeat:
        raise UsageError(f"--grace: read {grace}, must be above --heartbeat, {heartbeat}")
    beat = Beat(heartbeat, grace)
    with (
        going_on(folder),
        told_when_lost(),
        closing(open_search(read, folder, storage, beat, to_stderr)) as opened,
    ):
        if again and not report:
            _try_again(opened)
        done = None if report else _work(opened, jobs)
        _tell(opened, done, confirm, jobs, as_json)


class Cluster:
    """The options of ``--launch``."""

    def __init__(
        self, workers: int, hours: float, jobs: int, partition: str | None, gpus: int
    ) -> None:  # fmt: skip
        self.workers, self.hours, self.jobs = workers, hours, jobs
        self.partition, self.gpus = partition, gpus


def _space(
    path: str, block: str | None, budget: list[str] | None, trials: int | None,
    sampler: str | None, device: str | None, compile_steps: bool,
) -> "Space":  # fmt: skip
    """Load the space, with what the command overrides."""
    from mnemic.search.space.one_block import with_block
    from mnemic.search.space.settings import SAMPLERS
    from mnemic.search.space.space import load_space

    if sampler is not None and sampler not in SAMPLERS:
        issue = Issue("", "--sampler", sampler, SAMPLERS, nearest(sampler, SAMPLERS))
        raise UsageError(format_issue(issue))
    read = overridden(load_space(path), budget, trials=trials, sampler=sampler, device=device,
                      compile=compile_steps or None)  # fmt: skip
    return read if block is None else with_block(read, block)


def _try_again(opened: "Search") -> None:
    from mnemic.search.study.records import CRASHED, FAILED

    count = opened.try_again(lambda one: one.kind in (FAILED, CRASHED))
    to_stderr(f"{count} trials that failed or crashed are tried once more")


def _work(opened: "Search", jobs: int) -> "Done":
    from mnemic.search.study.worker import work_on

    _stoppable()
    with followed(opened):
        return work_on(opened, jobs)


STOP: Final = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGUSR2") if hasattr(signal, name)
)
"""What a cluster ends a search with; Windows has no SIGUSR2."""


def _stoppable() -> None:
    """Let a cluster's signals end what runs as Ctrl-C does."""
    with suppress(ValueError):  # not the main thread: no signals there
        for number in STOP:
            signal.signal(number, _stop)


def _stop(number: int, frame: object) -> None:
    """Raise KeyboardInterrupt, as for Ctrl-C, where a cluster's signal says that time is over.

    A second signal does not keep it from saving.
    """
    for one in STOP:
        signal.signal(one, signal.SIG_IGN)
    raise KeyboardInterrupt


PROGRAM: Final = 1.0
"""GiB that a program with torch takes before a trial does, asked of a cluster for each process."""


def _launch(
    kind: str, folder: Path, storage: str | None, asked: Cluster, memory: float, as_json: bool
) -> None:
    """Submit this very command without ``--launch``."""
    from mnemic.models.files import claim
    from mnemic.search.study import launch

    if kind == "slurm" and (storage is None or storage.startswith("sqlite")):
        raise UsageError("--launch slurm needs --storage postgresql://...: workers are on machines "
                         "that share no local disk")  # fmt: skip
    cluster = launch.Cluster(kind, asked.workers, asked.hours, asked.jobs, memory,
                             asked.partition, asked.gpus)  # fmt: skip
    claim(folder, "search")
    names = launch.submit(_arguments(sys.argv), folder / "cluster", cluster)
    if as_json:
        print_json({"jobs": names, "folder": str(folder)})
    else:
        echo(f"submitted {len(names)} jobs: {', '.join(names)}; their logs: {folder / 'cluster'}")


def _arguments(argv: list[str]) -> list[str]:
    """Return the arguments after ``search``, without what concerns the cluster."""
    given = argv[argv.index("search") + 1 :]
    ours = ("--launch", "--workers", "--hours", "--partition")
    kept: list[str] = []
    skip = False
    for word in given:
        if skip:
            skip = False
        elif word in ours:
            skip = True
        elif not word.startswith(tuple(f"{name}=" for name in ours)):
            kept.append(word)
    return kept


def _preview(read: "Space", samples: int, as_json: bool) -> None:
    from mnemic.search.space.preview import preview

    with console(stderr=True).status("sampling") as status:
        found = preview(read, samples, told=lambda n: status.update(f"{n} of {samples} points"))
    if as_json:
        print_json(found.to_json())
        return
    size = "infinitely many" if found.size == float("inf") else f"{found.size:,.0f}"
    points, rules = ("s" if number != 1 else "" for number in (found.size, found.distinct))
    echo(f"{read.name}: {size} point{points}; of {found.sampled} drawn {found.valid} are valid, "
         f"{found.distinct} different rule{rules}")  # fmt: skip
    if found.classes:
        echo("classes: " + ", ".join(f"{kind} {n}" for kind, n in found.classes.items()))
    if found.reasons:
        echo("\nwhy the others are not:")
        for reason, count in found.reasons.items():
            echo(f"  {count:>5}  {reason}")
    _options(found)


def _options(found: "Preview") -> None:
    """Print the options that are valid less than half as often as all points together."""
    share = found.valid / found.sampled
    poor = [
        f"  {name} = {label}: {good} of {seen}"
        for name, counted in found.options.items()
        for label, (seen, good) in counted.items()
        if good < share / 2 * seen
    ]
    if poor:
        echo("\noptions that are seldom valid:\n" + "\n".join(poor))


def _tell(
    opened: "Search", done: "Done | None", confirm: bool, jobs: int, as_json: bool
) -> None:  # fmt: skip
    from mnemic.search.report.write import confirm_best, write

    if confirm:
        _stoppable()
        confirm_best(opened, jobs)
    summary = write(opened)
    if as_json:
        print_json({**summary.to_json(), "reason": done.reason if done else None})
        return
    if done is not None:
        echo(f"{done.trials} trials in {done.seconds:.0f} s here; over, with {done.reason}")
    echo("ends: " + ", ".join(f"{kind} {n}" for kind, n in summary.ends.items()))
    for place, point in enumerate(summary.best[:5], 1):
        echo(_row(place, point))
    echo(summary.verdict)
    echo(f"report: {summary.report}")


def _row(place: int, point: "Ranked") -> str:
    tasks = ", ".join(f"{task} {skill}" for task, skill in point.tasks.items())
    known = f" ({point.start})" if point.start else ""
    return f"{place}. {point.spec.name}{known}: {point.skill}; {tasks}"
