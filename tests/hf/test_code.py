"""The code in a model's folder: transformers finds all of it, and it runs where mnemic is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from packaged import available
from small_models import small, tokens
from tiers import first_only
from transformers import dynamic_module_utils as transformers_modules

from mnemic.hf import folder
from mnemic.hf.code import model_code

ALONE = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("mnemic", "triton", "pydantic"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import math
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

rows = torch.load("rows.pt")
told = dict(max_new_tokens=4, do_sample=False)

def stepped(model):
    # a step with the plain Trainer
    args = TrainingArguments(
        output_dir="run", max_steps=1, per_device_train_batch_size=2, report_to=[], use_cpu=True,
        disable_tqdm=True, dataloader_pin_memory=False, save_strategy="no", learning_rate=1e-2,
    )
    before = {name: x.clone() for name, x in model.state_dict().items()}
    data = [{"input_ids": row, "labels": row} for row in rows]
    assert math.isfinite(Trainer(model=model, args=args, train_dataset=data).train().training_loss)
    after = model.state_dict()
    assert all(x.isfinite().all() for x in after.values())
    assert not all(before[name].equal(x) for name, x in after.items())

def whole(place):
    # load, generate, save, load what was saved, and train
    found = []
    for path in (place, place + "/again"):
        model = AutoModelForCausalLM.from_pretrained(path, trust_remote_code=True).eval()
        assert type(model).__module__.startswith("transformers_modules.")
        once = model.generate(rows, **told)
        assert once.equal(model.generate(rows, use_cache=False, **told)), "the cache"
        found.append((model(rows).logits.detach(), model.state_dict()))
        model.save_pretrained(place + "/again")
    (logits, was), (again, now) = found
    assert logits.equal(again)
    assert was.keys() == now.keys() and all(x.equal(now[name]) for name, x in was.items())
    stepped(model.float().train())
    return logits

failed = []
for place in sys.argv[1:]:
    try:
        torch.save(whole(place), place + "/logits.pt")
    except Exception as error:
        failed.append(f"{place}: {type(error).__name__}: {error}")
assert not failed, "; ".join(failed)
"""


def alone(place: Path, *folders: str) -> None:
    """Run folders below a place in a process without mnemic."""
    torch.save(tokens(), place / "rows.pt")
    environment = {"PATH": "", "HF_HOME": str(place / "home"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", ALONE, *folders],
        cwd=place, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "specs",
    [
        ("gated-deltanet", "softmax-attention"),
        pytest.param(("gated-deltanet", "titans-mag", "softmax-attention"), marks=pytest.mark.full),
    ],
    ids=len,
)
def test_a_folder_runs_where_mnemic_is_not(tmp_path: Path, specs: tuple[str, ...]) -> None:
    made = small(*specs, blocks=len(specs))
    place = folder.save(made, tmp_path / "my-model")
    alone(tmp_path, "my-model")
    torch.testing.assert_close(torch.load(place / "logits.pt"), made(tokens()).logits.detach())


TOGETHER = 7
"""Specs of a process, which takes seconds to begin."""


@pytest.mark.full
@pytest.mark.parametrize("first", range(0, len(available()), TOGETHER))
def test_every_folder_does_where_mnemic_is_not(first: int, tmp_path: Path) -> None:
    """Loads, generates alike with and without a cache, is saved and read back, and is trained."""
    names = available()[first : first + TOGETHER]
    expected = {}
    for name in names:
        made = small(name)
        folder.save(made, tmp_path / name)
        expected[name] = made(tokens()).logits.detach()
    alone(tmp_path, *names)
    for name in names:
        torch.testing.assert_close(torch.load(tmp_path / name / "logits.pt"), expected[name])


PLAIN = ("gated-deltanet", "swdt")


@pytest.mark.parametrize("specs", first_only([[*PLAIN], [*PLAIN, "titans-mac"]], [*PLAIN]))
def test_transformers_finds_every_file_and_asks_for_no_more_than_itself(
    specs: list[str], tmp_path: Path
) -> None:
    config = small(*specs, blocks=len(specs)).config
    for name, text in model_code(config).items():
        (tmp_path / name).write_text(text)
    first = tmp_path / "modeling_mnemic.py"
    reached = transformers_modules.get_relative_import_files(first)
    assert {first, *map(Path, reached)} == set(tmp_path.iterdir())
    asked = {name for path in tmp_path.iterdir() for name in transformers_modules.get_imports(path)}
    assert asked - set(sys.stdlib_module_names) == {"numpy", "torch", "transformers"}


def test_models_of_other_code_have_other_configurations() -> None:
    """Else transformers takes the first one's code for folders of one name, as ``runs/*/model``."""
    texts = {name: model_code(small(name).config)["configuration_mnemic.py"]
             for name in ("deltanet", "gated-deltanet")}  # fmt: skip
    assert texts["deltanet"] != texts["gated-deltanet"]
    assert model_code(small("deltanet").config)["configuration_mnemic.py"] == texts["deltanet"]
