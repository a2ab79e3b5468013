"""The code in a model's folder: transformers finds all of it, and it runs where mnemic is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from small_models import small, tokens
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
import torch
from transformers import AutoModelForCausalLM

place, rows = sys.argv[1], torch.load(sys.argv[1] + "/rows.pt")
for path in (place, place + "/again"):
    model = AutoModelForCausalLM.from_pretrained(path, trust_remote_code=True).eval()
    told = model.generate(rows, max_new_tokens=4, do_sample=False)
    assert told.equal(model.generate(rows, max_new_tokens=4, do_sample=False, use_cache=False))
    model.save_pretrained(place + "/again")
model.train()(rows, labels=rows).loss.backward()
torch.save(model(rows).logits.detach(), place + "/logits.pt")
"""


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
    torch.save(tokens(), place / "rows.pt")
    environment = {"PATH": "", "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(place)],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    torch.testing.assert_close(torch.load(place / "logits.pt"), made(tokens()).logits.detach())


def test_transformers_finds_every_file_and_asks_for_no_more_than_itself(tmp_path: Path) -> None:
    config = small("gated-deltanet", "titans-mac", "swdt", blocks=3).config
    for name, text in model_code(config).items():
        (tmp_path / name).write_text(text)
    first = tmp_path / "modeling_mnemic.py"
    reached = transformers_modules.get_relative_import_files(first)
    assert {first, *map(Path, reached)} == set(tmp_path.iterdir())
    asked = {name for path in tmp_path.iterdir() for name in transformers_modules.get_imports(path)}
    assert asked - set(sys.stdlib_module_names) == {"numpy", "torch", "transformers"}
