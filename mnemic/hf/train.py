"""Training on text with transformers' Trainer: one run per folder, which can always be resumed."""

import json
import math
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader, RandomSampler
from transformers import PrinterCallback, Trainer, TrainingArguments

from mnemic.distributed import shifted
from mnemic.dsl.hashing import LABELS, canonical
from mnemic.errors import CheckFailed, EnvironmentFailed, UsageError
from mnemic.hf import folder as folders
from mnemic.hf.follow import METRIC, Follow, points
from mnemic.hf.modeling_mnemic import MnemicForCausalLM
from mnemic.hf.muon import make_optimizer
from mnemic.hf.packing import NOT_SCORED, Share, pack, together
from mnemic.hf.refusals import one_line_of
from mnemic.hf.text_options import TextOptions
from mnemic.hf.texts import Texts
from mnemic.hf.tokenizer import digest_of
from mnemic.models import curve
from mnemic.models.differences import find_differences
from mnemic.models.files import EARLIER, claim, write_json
from mnemic.models.interrupt import deferred
from mnemic.models.progress import Progress
from mnemic.pipeline import read

KIND = "text run"
MODEL = "model"
"""Where a run leaves its model, in its folder."""

STATE = "trainer_state.json"
"""What the Trainer writes last into a checkpoint: where it is whole, the checkpoint is."""

Existing = Literal["refuse", "resume", "replace"]


@dataclass(frozen=True)
class Outcome:
    """The result of a run.

    Args:
        bits: a byte of the held-out documents, at the last evaluation.
        loss: in nats a token, the mean since the evaluation before it.
        steps: done.
        stopped: ``steps``, ``time`` or ``interrupted``.
        parameters: of the model, tied ones once.
    """

    bits: float
    loss: float
    steps: int
    stopped: str
    parameters: int


def train(
    model: MnemicForCausalLM,
    tokenizer: Any,
    texts: Texts,
    options: TextOptions,
    run: Path,
    progress: Progress,
    existing: Existing = "refuse",
) -> Outcome:
    """Train a model on texts, and leave it in ``run/model`` with its tokenizer.

    The run's folder gets a checkpoint at every evaluation (the last two are kept), curve.csv,
    curve.png and result.json. Resumed after a kill at any moment, it ends as if it had never
    stopped, bit for bit.

    Raises:
        UsageError: a foreign folder; an earlier run that may not be, or cannot be, continued.
        CheckFailed: the loss or its gradient is no longer finite; the last checkpoint is kept.
        EnvironmentFailed: there is not enough memory.
        KeyboardInterrupt: Ctrl-C, after the step was finished and saved.
    """
    rows = pack(texts.train, tokenizer, options.length)
    held_out = pack(texts.held_out, tokenizer, options.length, rest=True, name="held-out text")
    torch.set_num_threads(options.threads)
    args = _arguments(run, options)
    kind = _kind(model, args, options)
    with args.main_process_first(local=False):
        if args.process_index == 0:
            _prepare(run, existing, _identity(model, tokenizer, texts, options))
        last = last_checkpoint(run)
    with deferred() as pressed, _explain_memory(run), one_line_of(run):
        follow = Follow(progress, options.time_limit, pressed)
        trainer = kind(
            model=model,
            args=args,
            train_dataset=rows,
            eval_dataset=held_out,
            data_collator=together,
            callbacks=[follow],
            optimizers=(
                make_optimizer(model, options.optimizer, options.lr, options.weight_decay),
                None,
            ),
        )
        if options.sequence_parallel > 1:
            trainer.read_parts(options.sequence_parallel)
        trainer.remove_callback(PrinterCallback)
        trainer.follow = follow
        trainer.nats_to_bits = len(held_out.tokens) / texts.held_out_bytes / math.log(2)
        trainer.train(resume_from_checkpoint=None if last is None else str(last))
    outcome, weights = _outcome(trainer, follow.stopped), trainer.weights()
    if trainer.is_world_process_zero():
        with one_line_of(run):
            _finish(trainer, tokenizer, run, outcome, weights)
    return outcome


class TextTrainer(Trainer):
    """A Trainer whose evaluation is exact: nats over all scored tokens, as bits a byte."""

    nats_to_bits: float
    """Tokens a byte of the held-out documents, divided by ln 2."""
    follow: Follow
    control: Any

    @property
    def share(self) -> tuple[int, int]:
        """Which share of the rows this process reads: its index, and the number of shares."""
        return self.args.process_index, self.args.world_size

    @property
    def step_rows(self) -> int:
        """The rows of a step: of all passes and all processes."""
        args = self.args
        rows: int = args.train_batch_size * args.gradient_accumulation_steps * self.share[1]
        return rows

    def read_parts(self, processes: int) -> None:
        """Read parts of rows from now on, each row split over so many processes."""
        raise NotImplementedError

    def weights(self) -> dict[str, Tensor]:
        """Return the whole weights, by name."""
        found: dict[str, Tensor] = self.model.state_dict()
        return found

    def _get_train_sampler(self, train_dataset: Any = None) -> RandomSampler:
        """Return rows in random order, as many as whole steps take.

        Each epoch leaves out other rows, fewer than a step has; a text with fewer rows than a step
        has gives some of them again.
        """
        rows = self.train_dataset if train_dataset is None else train_dataset
        steps = max(1, len(rows) // self.step_rows)
        return RandomSampler(rows, num_samples=steps * self.step_rows)

    def _run_epoch(self, **told: Any) -> None:
        """Train for an epoch; a resumed run that has all its steps ends here, untouched.

        The loop of transformers looks whether it is done only behind a step.
        """
        if self.state.global_step >= self.args.max_steps:
            self.control.should_training_stop = True
        else:
            super()._run_epoch(**told)

    def evaluate(self, *args: Any, **options: Any) -> dict[str, float]:
        """Score the held-out documents, and log it."""
        nats, count = 0.0, 0
        self.model.eval()
        for batch in self._own_rows():
            told = self._prepare_inputs(batch)
            labels = told.pop("labels")
            scored = told.pop("shift_labels", shifted(labels)).flatten()
            with torch.no_grad(), self.compute_loss_context_manager():
                logits = self.model(**told, use_cache=False).logits.flatten(0, 1)
            nats += F.cross_entropy(logits.float(), scored, reduction="sum").item()
            count += int((scored != NOT_SCORED).sum())
        if self.args.world_size > 1:
            total = torch.tensor([nats, count], dtype=torch.float64, device=self.args.device)
            nats, count = self.accelerator.reduce(total).tolist()
        loss = nats / count
        found = {"eval_loss": loss, f"eval_{METRIC}": loss * self.nats_to_bits}
        self.log({**found, "seconds": self.follow.total})
        if not math.isfinite(loss):
            raise CheckFailed(f"training: the held-out loss is {loss} at {self.state.global_step}")
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, found)
        return found

    def _own_rows(self) -> DataLoader[dict[str, Tensor]]:
        """Return this process's share of the held-out rows."""
        own = Share(self.eval_dataset, *self.share)
        return DataLoader(own, self.args.eval_batch_size, collate_fn=self.data_collator)


def _kind(
    model: MnemicForCausalLM, args: TrainingArguments, options: TextOptions
) -> type[TextTrainer]:
    """Return the trainer that the options ask for, and prepare the model for it, in place."""
    kind: type[TextTrainer] = TextTrainer
    if options.sequence_parallel > 1:
        from mnemic.hf.cut_rows import CutTrainer, ShardedCutTrainer, cut_rows

        cut_rows(model, args, options)
        kind = ShardedCutTrainer if options.sharded else CutTrainer
    if options.sharded:
        from mnemic.hf.sharded import ShardedTrainer, shard

        shard(model, args)
        kind = ShardedTrainer if kind is TextTrainer else kind
    return kind


def _arguments(run: Path, options: TextOptions) -> TrainingArguments:
    return TrainingArguments(
        output_dir=str(run),
        max_steps=options.steps,
        per_device_train_batch_size=options.batch,
        per_device_eval_batch_size=options.batch,
        gradient_accumulation_steps=options.accumulate,
        learning_rate=options.lr,
        lr_scheduler_type="cosine_with_min_lr",
        lr_scheduler_kwargs={"min_lr_rate": 0.1},
        warmup_steps=options.warmup,
        max_grad_norm=options.clip,
        use_cpu=not torch.accelerator.is_available(),
        bf16=options.precision == "bfloat16",
        activation_checkpointing=options.checkpointing,
        torch_compile=options.compiled,
        eval_strategy="steps",
        eval_steps=options.eval_every,
        save_strategy="steps",
        save_steps=options.eval_every,
        save_total_limit=2,
        logging_steps=1,
        logging_nan_inf_filter=False,
        report_to=["tensorboard"] if options.tensorboard else [],
        disable_tqdm=True,
        dataloader_pin_memory=torch.cuda.is_available(),
        remove_unused_columns=False,
        ddp_find_unused_parameters=False,  # every parameter has a gradient
        seed=options.seed,
        data_seed=options.seed,
    )


def _identity(
    model: MnemicForCausalLM, tokenizer: Any, texts: Texts, options: TextOptions
) -> dict[str, Any]:
    """Return what a run is of, as ``run.json`` holds it; a resumed run has to have the same."""
    shapes = {name: list(p.shape) for name, p in model.named_parameters()}
    found = {
        "options": options.identity(),
        "texts": texts.digest,
        "tokenizer": digest_of(tokenizer),
        "model": shapes,
        "blocks": {str(i + 1): _block(model, i) for i in range(model.config.num_hidden_layers)},
        "rms_norm_eps": model.config.rms_norm_eps,
    }
    plain: dict[str, Any] = json.loads(json.dumps(found))
    return plain


def _block(model: MnemicForCausalLM, index: int) -> dict[str, Any]:
    """Return what a block's memory is: its whole spec without labels, its sizes and its kernel."""
    told = model.config.memory(index)
    spec = read(told["spec"]).model_dump(by_alias=True, exclude=set(LABELS))
    return {**told, "spec": canonical(spec)}


def _prepare(run: Path, existing: Existing, identity: dict[str, Any]) -> None:
    """Claim the folder, resume, clear or refuse an earlier run in it, and write ``run.json``."""
    known = run / "run.json"
    if claim(run, KIND) and known.is_file():
        if existing == "refuse":
            raise UsageError(f"{run}: {EARLIER}")
        if existing == "replace":
            for path in run.iterdir():
                if path.is_dir():
                    shutil.rmtree(path)
                elif path.name in ("curve.csv", "curve.png", "result.json"):
                    path.unlink()
        else:
            was = json.loads(known.read_text(encoding="utf-8"))
            told = ", ".join(find_differences(was, identity))
            if told:
                raise UsageError(f"{run}: cannot resume, the run there differs in {told}")
    write_json(known, identity)


def last_checkpoint(run: Path) -> Path | None:
    """Return the last complete checkpoint of a run; remove incomplete ones that a kill left."""
    found: dict[int, Path] = {}
    for path in run.glob("checkpoint-*"):
        try:
            step = json.loads((path / STATE).read_text(encoding="utf-8"))["global_step"]
            found[int(step)] = path
        except (OSError, ValueError, KeyError):
            shutil.rmtree(path)
    return found[max(found)] if found else None


@contextmanager
def _explain_memory(run: Path) -> Iterator[None]:
    """Raise EnvironmentFailed, with one message, where the block runs out of memory."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        kept = last_checkpoint(run)
        where = "no checkpoint yet" if kept is None else f"the last checkpoint is {kept}"
        told = "a smaller --batch with more --accumulate, or --checkpointing, takes less"
        raise EnvironmentFailed(f"training: out of memory ({where}; {told})") from error


def _outcome(trainer: TextTrainer, stopped: str) -> Outcome:
    curve_points = points(trainer.state.log_history)
    if not curve_points or curve_points[-1].step < trainer.state.global_step:
        trainer.evaluate()
        curve_points = points(trainer.state.log_history)
    last = curve_points[-1]
    count = sum(p.numel() for p in trainer.model.parameters())
    return Outcome(last.score, last.loss, trainer.state.global_step, stopped, count)


def _finish(
    trainer: TextTrainer, tokenizer: Any, run: Path, outcome: Outcome, weights: dict[str, Tensor]
) -> None:
    """Write the curve, its picture where there is matplotlib to draw it, the result, the model."""
    found = points(trainer.state.log_history)
    curve.write_table(run / "curve.csv", found)
    if curve.drawable():
        curve.draw(run / "curve.png", found, "bits per byte", 8.0, f"text, {outcome.steps} steps")
    write_json(run / "result.json", asdict(outcome))
    told = (
        f"\nTrained for {outcome.steps:,} steps of {trainer.step_rows} rows; held-out "
        f"text takes {outcome.bits:.4f} bits a byte.\n"
        '\nIts tokenizer: `AutoTokenizer.from_pretrained("THIS FOLDER", trust_remote_code=True)`.\n'
    )
    place = folders.save(trainer.model, run / MODEL, trained=told, replace=True, weights=weights)
    tokenizer.save_pretrained(place)
    trainer.follow.progress.end(outcome.stopped)
    if outcome.stopped == "interrupted":
        raise KeyboardInterrupt
