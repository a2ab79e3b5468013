"""Training on text: what is learned from, how it is scored, and runs that do not end well."""

from __future__ import annotations

import json
import math
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from small_models import one_of_each, small, tokens
from tokenizers import Tokenizer
from torch.nn import functional as F
from transformers import AutoTokenizer, PreTrainedTokenizerFast, Trainer, TrainingArguments

from mnemic.errors import CheckFailed, UsageError
from mnemic.hf import folder
from mnemic.hf.build import make_config, make_model
from mnemic.hf.follow import METRIC
from mnemic.hf.modeling_mnemic import MnemicForCausalLM
from mnemic.hf.packing import pack, together
from mnemic.hf.shape import Shape
from mnemic.hf.text_options import TextOptions
from mnemic.hf.texts import Texts
from mnemic.hf.tokenizer import get_tokenizer
from mnemic.hf.train import Outcome, TextTrainer, last_checkpoint, train
from mnemic.models.progress import Silent

LINES = tuple(f"line {i} of a text that repeats itself, {i} times" for i in range(30))
TEXTS = Texts(LINES, ("a line of a text, held out", "another, ünïcode"))
BYTES = get_tokenizer("bytes", ())
SMALL = TextOptions(steps=6, batch=2, length=16, eval_every=2, warmup=2)


class Killed(BaseException):
    """What no handler sees coming."""


class Told(Silent):
    """A progress that keeps the losses, and ends the run after a step."""

    def __init__(self, last: int | None = None) -> None:
        self.losses: dict[int, float] = {}
        self.last = last

    def step(self, done: int, loss: float) -> None:
        self.losses[done] = loss
        if done == self.last:
            self.end_it()

    def end_it(self) -> None:
        raise Killed


class Pressed(Told):
    """A progress during which Ctrl-C is pressed."""

    def end_it(self) -> None:
        signal.raise_signal(signal.SIGINT)


def fresh(seed: int = 0) -> MnemicForCausalLM:
    config = make_config(["gated-deltanet", "swa"], Shape(2, 16, vocabulary=len(BYTES)))
    return make_model(config, seed)


def ran(run: Path, progress: Told, existing: Any = "refuse", **options: Any) -> Outcome:
    told = TextOptions(**{**vars(SMALL), **options})
    return train(fresh(), BYTES, TEXTS, told, run, progress, existing)


def log(run: Path) -> list[dict[str, Any]]:
    last = last_checkpoint(run)
    assert last is not None
    history = json.loads((last / "trainer_state.json").read_text())["log_history"]
    return [{k: x for k, x in entry.items() if k != "seconds"} for entry in history]


@pytest.mark.full
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_run_that_was_killed_ends_as_one_that_was_not(tmp_path: Path, optimizer: str) -> None:
    whole = Told()
    expected = ran(tmp_path / "whole", whole, optimizer=optimizer)
    first, second = Told(5), Told()
    with pytest.raises(Killed):
        ran(tmp_path / "cut", first, optimizer=optimizer)
    half = tmp_path / "cut" / "checkpoint-6"  # killed again while it was written
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"half")
    assert ran(tmp_path / "cut", second, "resume", optimizer=optimizer) == expected
    assert min(second.losses) == 5
    assert {**first.losses, **second.losses} == whole.losses
    assert log(tmp_path / "cut") == log(tmp_path / "whole")
    was, now = (folder.load(tmp_path / run / "model").state_dict() for run in ("whole", "cut"))
    assert [name for name in was if not was[name].equal(now[name])] == []


@pytest.mark.parametrize(
    "options", [{}, {"steps": 5, "precision": "bfloat16"}], ids=["evaluated", "not evaluated"]
)
def test_a_run_with_all_its_steps_trains_no_more_when_resumed(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while its model was written, and resumed again when it was finished."""
    expected = ran(tmp_path / "whole", Told(), **options)
    with monkeypatch.context() as cut:
        cut.setattr(folder, "save", lambda *_, **__: Told().end_it())
        with pytest.raises(Killed):
            ran(tmp_path / "cut", Told(), **options)
    kept = sorted(path.name for path in (tmp_path / "cut").glob("checkpoint-*"))
    for _ in range(2):
        again = Told()
        assert ran(tmp_path / "cut", again, "resume", **options) == expected
        assert again.losses == {}
        assert sorted(path.name for path in (tmp_path / "cut").glob("checkpoint-*")) == kept
        models = (tmp_path / run / "model" / "model.safetensors" for run in ("whole", "cut"))
        was, now = (path.read_bytes() for path in models)
        assert was == now


def test_a_run_without_matplotlib_lacks_its_picture_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    assert ran(tmp_path / "r", Told()).stopped == "steps"
    left = {path.name for path in (tmp_path / "r").iterdir()}
    assert {"curve.csv", "result.json", "model"} <= left
    assert "curve.png" not in left


def test_a_run_leaves_a_model_with_its_tokenizer(tmp_path: Path) -> None:
    before = fresh().state_dict()
    outcome = ran(tmp_path / "r", Told())
    assert (outcome.steps, outcome.stopped) == (6, "steps")
    assert json.loads((tmp_path / "r" / "result.json").read_text())["bits"] == outcome.bits
    table = (tmp_path / "r" / "curve.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in table] == ["step", "2", "4", "6"]
    found, tokenizer = folder.load(tmp_path / "r" / "model"), AutoTokenizer.from_pretrained(
        tmp_path / "r" / "model"
    )  # fmt: skip
    same = [name for name, x in found.state_dict().items() if x.equal(before[name])]
    assert same == []
    assert tokenizer("é")["input_ids"] == list("é".encode())
    card = (tmp_path / "r" / "model" / "README.md").read_text()
    assert f"held-out text takes {outcome.bits:.4f} bits a byte" in card.replace("\n", " ")


def test_the_card_tells_all_rows_of_a_step(tmp_path: Path) -> None:
    ran(tmp_path / "r", Told(), steps=1, accumulate=3)
    card = (tmp_path / "r" / "model" / "README.md").read_text()
    assert "Trained for 1 steps of 6 rows;" in card


@pytest.mark.full
def test_bits_a_byte_are_of_all_held_out_bytes(tmp_path: Path) -> None:
    ran(tmp_path / "r", Told())
    model = folder.load(tmp_path / "r" / "model").eval()
    rows = together(list(pack(TEXTS.held_out, BYTES, 16, rest=True)))  # type: ignore[call-overload]
    with torch.no_grad():
        logits = model(rows["input_ids"], position_ids=rows["position_ids"]).logits
    nats = F.cross_entropy(logits[:, :-1].flatten(0, 1), rows["labels"][:, 1:].flatten())
    size = sum(len(text.encode()) for text in TEXTS.held_out)
    expected = nats.item() / math.log(2) * (size + len(TEXTS.held_out)) / size
    found = [entry[f"eval_{METRIC}"] for entry in log(tmp_path / "r") if "eval_loss" in entry]
    assert found[-1] == pytest.approx(expected, rel=1e-5)


@pytest.mark.full
def test_an_interrupted_run_is_saved_and_goes_on(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        ran(tmp_path / "r", Pressed(2))
    assert last_checkpoint(tmp_path / "r") == tmp_path / "r" / "checkpoint-3"
    assert ran(tmp_path / "r", Told(), "resume") == ran(tmp_path / "whole", Told())


@pytest.mark.full
def test_a_limit_of_time_ends_after_a_step_with_a_checkpoint(tmp_path: Path) -> None:
    outcome = ran(tmp_path / "r", Told(), time_limit=1e-6)
    assert (outcome.steps, outcome.stopped) == (1, "time")
    assert last_checkpoint(tmp_path / "r") == tmp_path / "r" / "checkpoint-1"


def test_numbers_that_are_not_finite_end_a_run_and_keep_the_last_checkpoint(tmp_path: Path) -> None:
    class Spoil(Told):
        def step(self, done: int, loss: float) -> None:
            if done == 3:
                with torch.no_grad():
                    model.lm_head.weight.fill_(math.nan)

    model = fresh()
    with pytest.raises(CheckFailed, match=r"^training: at step 4 the loss is nan"):
        train(model, BYTES, TEXTS, SMALL, tmp_path / "r", Spoil())
    assert last_checkpoint(tmp_path / "r") == tmp_path / "r" / "checkpoint-2"


@pytest.mark.full
def test_what_may_not_be_continued(tmp_path: Path) -> None:
    ran(tmp_path / "r", Told(), steps=2)
    with pytest.raises(UsageError, match=r"r: holds an earlier run: --resume goes on with it"):
        ran(tmp_path / "r", Told(), steps=2)
    with pytest.raises(
        UsageError,
        match=r"r: cannot resume, the run there differs in options\.lr \(0.003 there, 1.0 here\)",
    ):
        ran(tmp_path / "r", Told(), "resume", lr=1.0, steps=2)
    assert ran(tmp_path / "r", Told(), "replace", lr=1e-4, steps=2).steps == 2
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.txt").write_text("a")
    with pytest.raises(UsageError, match=r"mine: holds files that mnemic did not write"):
        ran(tmp_path / "mine", Told(), "replace")


def test_another_spec_or_tokenizer_of_the_same_shapes_is_not_continued(tmp_path: Path) -> None:
    def begun(model: MnemicForCausalLM, tokenizer: Any) -> None:
        told = TextOptions(**{**vars(SMALL), "steps": 1})
        train(model, tokenizer, TEXTS, told, tmp_path / "r", Told(), "resume")

    def of(spec: dict[str, Any], eps: float = 1e-6) -> MnemicForCausalLM:
        config = make_config([{"mnemic": 1, **spec}], Shape(1, 16, vocabulary=len(BYTES)))
        config.rms_norm_eps = eps
        return make_model(config)

    rule = {"name": "mine", "bias": "l2", "retention": {"decay": "token", "order": "before"}}
    after = {**rule, "retention": {"decay": "token", "order": "after"}}
    begun(of(rule), BYTES)
    begun(of({**rule, "name": "renamed", "title": "Another title"}), BYTES)
    same = r"^.*r: cannot resume, the run there differs in "
    told = r"blocks\.1\.spec\.retention\.order \(before there, after here\)$"
    with pytest.raises(UsageError, match=same + told):
        begun(of(after), BYTES)
    with pytest.raises(UsageError, match=same + r"rms_norm_eps \(1e-06 there, 0.001 here\)$"):
        begun(of(rule, 1e-3), BYTES)
    turned = {name: (i + 1) % 256 for name, i in BYTES.get_vocab().items() if i < 256}
    inner = json.loads(BYTES.backend_tokenizer.to_str())
    inner["model"]["vocab"] = turned
    other = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(inner)), eos_token=BYTES.eos_token
    )
    assert len(other) == len(BYTES)
    with pytest.raises(UsageError, match=same + r"tokenizer \(\w{16} there, \w{16} here\)$"):
        begun(of(rule), other)


@pytest.mark.parametrize("accumulate", [2, 60])
def test_every_step_has_all_its_rows(
    accumulate: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of an epoch too, and of a text with fewer rows than a step."""
    seen: list[int] = []
    step = TextTrainer.training_step

    def counted(self: TextTrainer, model: Any, inputs: Any, *given: Any) -> Any:
        seen.append(len(inputs["input_ids"]))
        return step(self, model, inputs, *given)

    monkeypatch.setattr(TextTrainer, "training_step", counted)
    rows = len(pack(LINES, BYTES, 64))
    assert rows < 60 * 2
    assert rows % 4
    steps = rows // 4 + 2 if accumulate == 2 else 2
    ran(tmp_path / "r", Told(), length=64, accumulate=accumulate, steps=steps, eval_every=steps)
    assert seen == [2] * accumulate * steps


@pytest.mark.full
def test_sixteen_bits_checkpointing_and_accumulation_learn_the_same(tmp_path: Path) -> None:
    expected = ran(tmp_path / "a", Told())
    again = ran(tmp_path / "b", Told(), checkpointing=True)
    assert again.bits == pytest.approx(expected.bits, rel=1e-5)
    summed = ran(tmp_path / "c", Told(), batch=1, accumulate=2)
    assert summed.bits == pytest.approx(expected.bits, rel=1e-4)
    assert ran(tmp_path / "d", Told(), precision="bfloat16").bits == pytest.approx(
        expected.bits, rel=0.02
    )


def test_options_out_of_range_are_all_named() -> None:
    with pytest.raises(UsageError) as error:
        TextOptions(steps=0, lr=math.nan, optimizer="adam")
    assert str(error.value).splitlines() == [
        "steps: must be finite and at least 1: read '0'",
        "lr: must be finite and above 0: read 'nan'",
        "optimizer: read 'adam', allowed: adamw, muon; did you mean 'adamw'?",
    ]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name == "titans-mac" else pytest.mark.full)
        for name in one_of_each()
    ],
)
def test_a_step_of_the_plain_trainer(name: str, tmp_path: Path) -> None:
    model = small(name).float()
    before = {n: x.clone() for n, x in model.state_dict().items()}
    rows = [{"input_ids": row, "labels": row} for row in tokens(4)]
    told = TrainingArguments(
        output_dir=str(tmp_path), max_steps=1, per_device_train_batch_size=4, report_to=[],
        disable_tqdm=True, dataloader_pin_memory=False, save_strategy="no", learning_rate=1e-2,
    )  # fmt: skip
    found = Trainer(model=model, args=told, train_dataset=rows).train()
    assert math.isfinite(found.training_loss)
    after = model.state_dict()
    assert all(x.isfinite().all() for x in after.values())
    assert [n for n in before if not before[n].equal(after[n])]


def test_documents_are_packed_with_their_ends() -> None:
    rows = pack(["abc", "", "de"], BYTES, 4)
    assert len(rows) == 2
    end = BYTES.eos_token_id
    assert rows[0]["input_ids"].tolist() == [*b"abc", end]
    assert rows[0]["position_ids"].tolist() == [0, 1, 2, 3]
    assert rows[1]["input_ids"].tolist() == [end, *b"de", end]
    assert rows[1]["position_ids"].tolist() == [0, 0, 1, 2]
    assert rows[1]["labels"].tolist() == [-100, -100, *b"e", end]
    rest = pack(["abcde"], BYTES, 4, rest=True)[1]
    assert rest["input_ids"].tolist() == [*b"e", end, 0, 0]
    assert rest["position_ids"].tolist() == [0, 1, 2, 3]
    assert rest["labels"].tolist() == [-100, end, -100, -100]
    with pytest.raises(UsageError, match=r"^--data: 3 tokens, at least --length 4 are needed$"):
        pack(["ab"], BYTES, 4)
