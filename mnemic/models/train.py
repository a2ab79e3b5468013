"""Training: AdamW on a stream of batches, with checkpoints that resume bit for bit."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mnemic.codegen.support.seeded import reseed, seeded
from mnemic.errors import CheckFailed, UsageError
from mnemic.models import curve, result
from mnemic.models.checkpoint import Checkpoint
from mnemic.models.compiled import Hidden, compiled_hidden, told_where_it_fails
from mnemic.models.contract import IGNORED, Batch, Task
from mnemic.models.device import demand_device
from mnemic.models.differences import find_differences
from mnemic.models.files import EARLIER, claim
from mnemic.models.interrupt import deferred
from mnemic.models.language_model import LanguageModel
from mnemic.models.progress import Progress, Silent
from mnemic.models.result import Result
from mnemic.models.train_options import TrainOptions

CHECKPOINT = "checkpoint.pt"
_OWN_FILES = (CHECKPOINT, result.NAME, "curve.csv", "curve.png")
_TEST_SEED = 0

Existing = Literal["refuse", "resume", "replace"]


def train(
    model: LanguageModel,
    task: Task,
    options: TrainOptions,
    run_dir: Path,
    progress: Progress | None = None,
    *,
    metadata: Mapping[str, Any] | None = None,
    existing: Existing = "refuse",
    picture: bool = True,
) -> Result:
    """Train a model in place and leave its checkpoint, curve and result in a folder.

    The loss is the mean cross-entropy of the scored positions. Every ``eval_every`` steps the
    model is scored on the same held-out sequences and saved; where the task has levels, training
    moves to the next level once one is mastered. A resumed run continues from the last checkpoint:
    bit for bit, or up to rounding if its device, ``threads`` or ``compiled`` differ; changed
    ``steps`` change the rest of the schedule. The task's decoder is set as the model's, unless the
    model has one already.

    Args:
        model: with the initial parameters, on the CPU or the device.
        task: what to learn; its vocabulary must be the model's.
        options: how.
        run_dir: a new or empty folder, or one that an earlier run made.
        progress: told of every step; None tells nobody.
        metadata: plain data to keep with the result: the spec's hash, say.
        existing: what to do with an earlier run in the folder.
        picture: whether to draw the curve, which takes some tenths of a second.

    Returns:
        What was also written as ``result.json``.

    Raises:
        UsageError: a foreign folder; an earlier run that may not be, or cannot be, continued; no
            such device.
        EnvironmentFailed: the device is not on this machine.
        CheckFailed: the loss or its gradient is no longer finite; the last checkpoint is kept.
        KeyboardInterrupt: Ctrl-C, after the checkpoint was written.
        SystemExit: SIGTERM, likewise, where the process's handler of it raises that.
    """
    if task.vocabulary != model.options.vocabulary:
        raise UsageError(
            f"the model has a vocabulary of {model.options.vocabulary}, task {task.name!r} one of "
            f"{task.vocabulary}: they must be equal"
        )
    demand_device(options.device)
    _prepare(run_dir, existing)
    with _threads(options.threads), seeded(options.seed, options.device):
        told = result.plain(metadata)
        run = _Run(model, task, options, run_dir, progress or Silent(), told, picture)
        return run.to_the_end()


class _Run:
    """A run in progress."""

    def __init__(
        self,
        model: LanguageModel,
        task: Task,
        options: TrainOptions,
        folder: Path,
        progress: Progress,
        metadata: dict[str, Any],
        picture: bool,
    ) -> None:
        decoder = task.decoder(model.options.dim)
        model.decoder = None if decoder is None else model.decoder or decoder
        self.model = model.to(options.device)
        self.task, self.options, self.folder = task, options, folder
        self.progress, self.metadata, self.picture = progress, metadata, picture
        self.levels, self.level = task.levels, 0
        self.optimizer = _optimizer(model, options)
        self.batches = task.generator(options.seed, "train")
        self.hidden = compiled_hidden(model, options) if options.compiled else model.hidden
        self.step = 0
        self.whole = True  # false within a step, when nothing may be saved
        self.losses: list[float] = []
        self.points: list[curve.Point] = []
        self.seconds_before = 0.0
        reseed(options.seed, options.device)
        if (folder / CHECKPOINT).exists():
            self.restore(Checkpoint.load(folder / CHECKPOINT))
        self.began = time.monotonic()

    def to_the_end(self) -> Result:
        """Step until something ends the run; return its result."""
        self.progress.start(self.options.steps, self.step)
        try:
            with deferred(terminate=True) as deliver_interrupt:
                if self.step and self.due():  # an interrupt came before it
                    self.evaluate()
                while (stopped := self.reason_to_stop()) is None:
                    self.advance()
                    self.progress.step(self.step, self.losses[-1])
                    deliver_interrupt()
                    if self.due():
                        self.evaluate()
        except (KeyboardInterrupt, SystemExit):
            if self.whole:
                self.save()
                self.finish("interrupted")
            raise
        if not self.scored():
            self.evaluate()
        return self.finish(stopped)

    def scored(self) -> bool:
        """Whether the model was evaluated at this step."""
        return bool(self.points) and self.points[-1].step == self.step

    def due(self) -> bool:
        """Whether an evaluation is due at this step and has not been done."""
        return self.step % self.options.eval_every == 0 and not self.scored()

    def reason_to_stop(self) -> str | None:
        """Return why the run is over: ``target``, ``steps`` or ``time``; None where it is not."""
        if self.scored() and self.reached(self.points[-1].score):
            return "target"
        if self.step >= self.options.steps:
            return "steps"
        limit = self.options.time_limit
        return "time" if limit is not None and self.seconds() >= limit else None

    def advance(self) -> None:
        """Take one step of AdamW on one batch."""
        self.whole = False
        self.model.train()
        batch = self.levels[self.level].batch(self.batches, self.options.batch, "train")
        with told_where_it_fails():
            logits, targets = self.answers(batch, self.hidden)
            loss = F.cross_entropy(logits, targets)
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
        norm = nn.utils.clip_grad_norm_(
            self.model.parameters(), self.options.clip or math.inf, foreach=True
        )
        self.demand_finite(loss=loss.item(), gradient=norm.item())
        for group in self.optimizer.param_groups:
            group["lr"] = self.options.rate(self.step)
        self.optimizer.step()
        self.losses.append(loss.item())
        self.step += 1
        self.whole = True

    def answers(self, batch: Batch, hidden: Hidden) -> tuple[Tensor, Tensor]:
        """Return logits [N, vocabulary] and targets [N] of a batch's scored positions alone."""
        inputs, targets = (x.to(self.options.device) for x in (batch.inputs, batch.targets))
        scored = targets != IGNORED
        found, _ = hidden(inputs)
        decoded = found if self.model.decoder is None else self.model.decoder(found)
        return self.model.head(decoded[scored]), targets[scored]

    @torch.no_grad()
    def score(self, task: Task) -> float:
        """Return a task's metric on the held-out sequences."""
        self.model.eval()
        generator = task.generator(_TEST_SEED, "test")
        total, count, left = 0.0, 0, self.options.eval_size
        while left > 0:
            size = min(left, self.options.batch)
            logits, targets = self.answers(task.batch(generator, size, "test"), self.model.hidden)
            total += task.score(logits, targets) * len(targets)
            count, left = count + len(targets), left - size
        return total / count

    def evaluate(self) -> None:
        """Score the model, add a point to the curve, save."""
        score = self.score(self.task)
        self.demand_finite(score=score)
        self.go_on()
        loss = math.fsum(self.losses) / max(1, len(self.losses))
        rate = self.options.rate(self.step - 1)
        self.points.append(curve.Point(self.step, self.seconds(), loss, score, rate))
        self.losses = []
        self.save()
        curve.write_table(self.folder / "curve.csv", self.points)
        self.progress.evaluated(self.points[-1])

    def go_on(self) -> None:
        """Move to the first level that is not mastered yet, or the last one."""
        while self.level + 1 < len(self.levels):
            present = self.levels[self.level]
            if not present.mastered(self.score(present)):
                return
            self.level += 1

    def finish(self, stopped: str) -> Result:
        """Write the curve's picture, where there is matplotlib to draw it, and the result."""
        task, last = self.task, self.points[-1] if self.points else None
        if last and self.picture and curve.drawable():
            title = f"{task.name}, {self.step} steps"
            picture = self.folder / "curve.png"
            curve.draw(picture, self.points, task.metric, task.chance, title)
        outcome = Result(
            metric=task.metric,
            score=last.score if last else None,
            chance=task.chance,
            ceiling=task.ceiling,
            loss=last.loss if last else None,
            steps=self.step,
            seconds=self.seconds(),
            stopped=stopped,
            parameters=sum(p.numel() for p in self.model.parameters()),
            task=result.described(task),
            options=self.options,
            metadata=self.metadata,
            versions=result.versions(),
        )
        outcome.write(self.folder)
        self.progress.end(stopped)
        return outcome

    def save(self) -> None:
        """Write the checkpoint."""
        Checkpoint(
            step=self.step,
            seconds=self.seconds(),
            identity=self.identity(),
            model=self.model.state_dict(),
            optimizer=self.optimizer.state_dict(),
            batches=self.batches.get_state(),
            random=torch.get_rng_state(),
            losses=self.losses,
            points=self.points,
            level=self.level,
        ).save(self.folder / CHECKPOINT)

    def restore(self, saved: Checkpoint) -> None:
        """Restore the run as a checkpoint has it. Raises UsageError where it is another run's."""
        told = list(find_differences(_anywhere(saved.identity), _anywhere(self.identity())))
        if told:
            raise UsageError(
                f"{self.folder}: cannot resume, the run there differs in {', '.join(told)}"
            )
        self.model.load_state_dict(saved.model)
        self.optimizer.load_state_dict(saved.optimizer)
        self.batches.set_state(saved.batches)
        torch.set_rng_state(saved.random)
        self.step, self.seconds_before = saved.step, saved.seconds
        self.losses, self.points = saved.losses, saved.points
        self.level = saved.level

    def identity(self) -> dict[str, Any]:
        """Return what must be the same to continue a run."""
        shapes = {name: list(p.shape) for name, p in self.model.named_parameters()}
        task, metadata = result.described(self.task), self.metadata
        return {**self.options.identity(), "task": task, "model": shapes, "metadata": metadata}

    def reached(self, score: float) -> bool:
        """Return whether a score passes ``stop_at``; False where none is set."""
        target = self.options.stop_at
        if target is None:
            return False
        return score >= target if self.task.higher_is_better else score <= target

    def seconds(self) -> float:
        """Return the wall time of all parts of the run, in seconds."""
        return self.seconds_before + time.monotonic() - self.began

    def demand_finite(self, **values: float) -> None:
        """Raise CheckFailed, before anything is spoiled, where a value is NaN or infinite."""
        wrong = [f"{name} is {value}" for name, value in values.items() if not math.isfinite(value)]
        if not wrong:
            return
        saved = self.folder / CHECKPOINT
        kept = f"the last good checkpoint is {saved}" if saved.exists() else "no checkpoint yet"
        raise CheckFailed(
            f"training on {self.task.name!r}: at step {self.step + 1} the {' and the '.join(wrong)}"
            f" ({kept}; a smaller lr may help)"
        )


def load_weights(model: LanguageModel, run_dir: Path) -> None:
    """Give a model the parameters of a run's last checkpoint.

    Where the run's task has a decoder, the model's must be set first.

    Raises:
        UsageError: there is none, or it is of another model.
    """
    path = run_dir / CHECKPOINT
    if not path.is_file():
        raise UsageError(f"{run_dir}: no checkpoint of a training run")
    try:
        model.load_state_dict(Checkpoint.load(path).model)
    except RuntimeError as error:
        raise UsageError(f"{path}: the checkpoint of another model: {error}") from error


def _anywhere(identity: dict[str, Any]) -> dict[str, Any]:
    """Return an identity without the device, on which a resumed run may differ."""
    return {name: value for name, value in identity.items() if name != "device"}


def _prepare(folder: Path, existing: Existing) -> None:
    """Claim the folder of a run; keep, remove or refuse an earlier run in it."""
    if not claim(folder) or existing == "resume":
        return
    found = [folder / name for name in _OWN_FILES if (folder / name).exists()]
    if found and existing == "refuse":
        raise UsageError(f"{folder}: {EARLIER}")
    for path in found:
        path.unlink()


def _optimizer(model: LanguageModel, options: TrainOptions) -> torch.optim.AdamW:
    """Make AdamW, with weight decay on parameters of two axes or more."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": options.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=options.lr, betas=(0.9, 0.95), fused=True)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Run torch on that many threads until the end of the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
