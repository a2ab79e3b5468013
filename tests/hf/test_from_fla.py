"""Checkpoints of flash-linear-attention: its own models in Triton's interpreter, against ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from planted import plant
from safetensors.torch import load_file, save_file
from tiers import first_only

from mnemic.errors import UsageError
from mnemic.hf.folder import load, save
from mnemic.hf.from_fla import read_checkpoint, tokenizer_files

SMALL = {
    "hidden_size": 32, "num_hidden_layers": 1, "vocab_size": 30, "intermediate_size": 48,
    "fuse_swiglu": False, "fuse_cross_entropy": False,
}  # fmt: skip

CONFIGS = {
    "gated_deltanet": {"num_heads": 2, "head_dim": 16, "expand_v": 1},
    "gated_deltanet, values in more heads": {
        "num_heads": 1, "num_v_heads": 2, "head_dim": 16, "expand_v": 2, "norm_eps": 1e-3,
        "allow_neg_eigval": True, "output_gate_activation": "sigmoid",
    },
    "delta_net": {"num_heads": 2},
    "delta_net, gated": {"num_heads": 2, "use_gate": True, "allow_neg_eigval": True},
    "gla": {"num_heads": 2, "hidden_size": 64},
    "gla, in groups": {
        "num_heads": 2, "num_kv_heads": 1, "hidden_size": 64, "use_short_conv": True,
        "norm_eps": 1e-3, "elementwise_affine": False,
    },
    "retnet": {"num_heads": 2, "tie_word_embeddings": True},
}  # fmt: skip
"""By model_type, and what is tried of it."""

FIRST = ("gated_deltanet, values in more heads", "gla")
"""Those of the first tier, written by one process: fla's model takes seconds in the interpreter."""

WRITE = """
import json, sys, torch
from triton.runtime.autotuner import Autotuner
Autotuner._bench = lambda self, *args, config, **options: [0.0, 0.0, 0.0]  # nothing to time here
import fla.models
from transformers import AutoConfig, AutoModelForCausalLM
for kind, options, folder in json.loads(sys.argv[1]):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **options)).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.normal_(1, 0.2) if p.ndim == 1 and "norm" in name else None
            p.normal_(0, p.shape[-1] ** -0.5) if p.ndim > 1 else None
        tokens = torch.randint(30, (1, 7))
        logits = model(tokens, use_cache=False).logits
    model.save_pretrained(folder)
    torch.save((tokens, logits), folder + "/told.pt")
"""


def write(folder: Path, *names: str) -> list[Path]:
    """Let fla save models and what they compute."""
    pytest.importorskip("fla.models", reason="fla cannot be imported without Triton")
    folders = [folder / str(number) for number in range(len(names))]
    told = [(name.partition(",")[0], SMALL | CONFIGS[name], str(place))
            for name, place in zip(names, folders, strict=True)]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WRITE, json.dumps(told)],
        env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, timeout=900,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return folders


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The checkpoints of the first tier."""
    return dict(zip(FIRST, write(tmp_path_factory.mktemp("fla"), *FIRST), strict=True))


@pytest.fixture(scope="module")
def checkpoint(written: dict[str, Path]) -> Path:
    return written["gla"]


@pytest.mark.some(1)
@pytest.mark.parametrize("name", first_only(CONFIGS, *FIRST))
def test_a_checkpoint_computes_the_same(
    name: str, written: dict[str, Path], tmp_path: Path
) -> None:
    folder = written[name] if name in written else write(tmp_path, name)[0]
    tokens, logits = torch.load(folder / "told.pt")
    model = read_checkpoint(folder).eval()
    assert logits.std() > 0.5
    torch.testing.assert_close(model(tokens).logits, logits, rtol=0, atol=2e-5)


def test_it_is_saved_with_its_tokenizer(checkpoint: Path, tmp_path: Path) -> None:
    (checkpoint / "tokenizer.json").write_text("{}", encoding="utf-8")
    model = read_checkpoint(checkpoint).eval()
    folder = save(model, tmp_path / "ours", also=tokenizer_files(checkpoint))
    assert (folder / "tokenizer.json").read_text(encoding="utf-8") == "{}"
    tokens, logits = torch.load(checkpoint / "told.pt")
    torch.testing.assert_close(load(folder).eval()(tokens).logits, logits, rtol=0, atol=2e-5)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"model_type": "mamba2"}, "its norm spans all heads, behind the gate; one key"),
        ({"model_type": "rwkv7"}, "its own mix of a token and the one before; the first layer's"),
        ({"model_type": "glaa"}, "did you mean 'gla'"),
        ({"feature_map": "relu"}, "feature_map: read 'relu', allowed: None"),
        ({"attn": {"layers": [0]}}, "attn: read"),
        ({"num_heads": 4}, "weights that do not fit config.json"),
        ({"num_hidden_layers": 2}, "no weights named 'model.layers.1"),
        ({"use_output_gate": False}, "weights that do not fit config.json"),
    ],
)
def test_what_our_block_has_no_part_for_is_refused(
    changed: dict[str, object], told: str, checkpoint: Path, tmp_path: Path
) -> None:
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8")) | changed
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (tmp_path / "model.safetensors").symlink_to(checkpoint / "model.safetensors")
    with pytest.raises(UsageError, match=told):
        read_checkpoint(tmp_path)


def test_weights_without_a_place_are_told(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").symlink_to(checkpoint / "config.json")
    weights = load_file(checkpoint / "model.safetensors")
    save_file(weights | {"model.layers.0.attn.D": torch.ones(2)}, tmp_path / "model.safetensors")
    with pytest.raises(UsageError, match=r"without a place: model\.layers\.0\.attn\.D"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize("archive", [True, False])
def test_weights_with_code_are_refused_and_nothing_runs(
    checkpoint: Path, tmp_path: Path, archive: bool
) -> None:
    (tmp_path / "config.json").symlink_to(checkpoint / "config.json")
    plant(tmp_path / "pytorch_model.bin", tmp_path / "sign", archive=archive)
    with pytest.raises(UsageError) as caught:
        read_checkpoint(tmp_path)
    assert str(caught.value) == f"{tmp_path}: weights that cannot be read: they hold code"
    assert not (tmp_path / "sign").exists()


def test_a_folder_without_a_checkpoint_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no config\.json that can be read: No such file"):
        read_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "mnemic"}', encoding="utf-8")
    with pytest.raises(UsageError, match="read 'mnemic', allowed: delta_net"):
        read_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "gla"}', encoding="utf-8")
    with pytest.raises(UsageError, match="no hidden_size"):
        read_checkpoint(tmp_path)
