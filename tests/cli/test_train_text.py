"""`mnemic train --data`: a spec's model, or a folder's, on text."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.convert_slow_tokenizer import bytes_to_unicode

import mnemic.hf  # registers the classes  # noqa: F401

TINY = ("--dim", "16", "--layers", "1", "--length", "16", "--batch", "2", "--steps", "3")


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "books").mkdir()
    for i in range(30):
        (tmp_path / "books" / f"{i}.txt").write_text(f"book {i} is a short one " * 3)


def test_a_spec_is_trained_and_its_model_trained_on(mnemic, tmp_path):
    done = mnemic("train", "deltanet", "--data", "books", *TINY)
    assert done.code == 0
    assert "bits a byte (8 by guessing) after 3 steps: all steps" in done.out
    assert done.err.startswith("step 3: loss ")
    assert " tokens/s, 0 s left" in done.err
    place = tmp_path / "runs" / "deltanet-books-0"
    assert {"curve.csv", "curve.png", "result.json", "model"} <= {p.name for p in place.iterdir()}
    model = AutoModelForCausalLM.from_pretrained(place / "model")
    tokens = AutoTokenizer.from_pretrained(place / "model")
    found = model.generate(**tokens("book", return_tensors="pt"), max_new_tokens=4, min_length=8)
    assert found.shape[1] == 8
    again = mnemic("train", place / "model", "--data", "books", "--steps", "1", "--length", "16",
                   "--run", "on", "--json")  # fmt: skip
    assert (again.code, again.json["steps"], again.json["run"]) == (0, 1, "on")


def test_a_model_as_drawn_learns_the_end_of_its_tokenizers_documents(mnemic, tmp_path):
    made = ("model", "deltanet", "--blocks", "1", "--dim", "16", "--no-check")
    assert mnemic(*made, "--vocabulary", "256", "-o", "few").code == 0
    few = mnemic("train", "few", "--data", "books", "--steps", "1", "--length", "16")
    assert few.err == (
        "mnemic: few: the model has 256 tokens, the tokenizer 257: give --tokenizer one with no "
        "more, or make the model with --vocabulary 257\n"
    )
    assert mnemic(*made, "--vocabulary", "257", "-o", "m").code == 0
    told = ("train", "m", "--data", "books", "--steps", "1", "--length", "16", "--run", "r")
    assert mnemic(*told).code == 0
    model = AutoModelForCausalLM.from_pretrained("r/model")
    tokens = AutoTokenizer.from_pretrained("r/model")
    for config in (model.config, model.generation_config):
        assert (config.eos_token_id, config.pad_token_id) == (256, 256)
    padded = tokens(["book", "a short book"], return_tensors="pt", padding=True)
    alone = tokens("book", return_tensors="pt")
    with torch.no_grad():
        torch.testing.assert_close(model(**padded).logits[0, -4:], model(**alone).logits[0])


def test_a_folders_own_tokenizer_is_taken_whatever_its_files_unless_another_is_told(
    mnemic, tmp_path
):
    made = ("model", "deltanet", "--blocks", "1", "--dim", "16", "--no-check")
    assert mnemic(*made, "--vocabulary", "257", "-o", "m").code == 0
    turned = {letter: 255 - byte for byte, letter in bytes_to_unicode().items()}
    own = {
        "vocab.json": json.dumps({**turned, "<|endoftext|>": 256}),
        "merges.txt": "#version: 0.2\n",
        "tokenizer_config.json": json.dumps({"tokenizer_class": "GPT2Tokenizer"}),
    }
    for name, content in own.items():
        (tmp_path / "m" / name).write_text(content)
    told = ("train", "m", "--data", "books", "--steps", "1", "--length", "16", "--batch", "2")
    assert mnemic(*told, "--run", "own").code == 0
    assert mnemic(*told, "--run", "told", "--tokenizer", "bytes").code == 0
    own, other = (AutoTokenizer.from_pretrained(f"{run}/model") for run in ("own", "told"))
    assert own("ab")["input_ids"] == [255 - byte for byte in b"ab"]
    assert other("ab")["input_ids"] == [*b"ab"]
    assert mnemic("eval", "m", "--data", "books", "--length", "32", "--distance", "0").code == 0


@pytest.mark.full
def test_a_run_goes_on_and_a_tokenizer_is_trained(mnemic, tmp_path):
    told = ("train", "deltanet", "--data", "books", *TINY, "--tokenizer", "bpe:280", "--run", "r")
    assert mnemic(*told).code == 0
    config = json.loads((tmp_path / "r" / "model" / "config.json").read_text())
    assert 257 < config["vocab_size"] <= 280
    assert "holds an earlier run: --resume goes on with it" in mnemic(*told).err
    assert mnemic(*told, "--resume").code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("deltanet",), "give exactly one of --task and --data"),
        (
            ("deltanet", "--data", "books", "--task", "mqar"),
            "give exactly one of --task and --data",
        ),
        (("deltanet", "--data", "nowhere"), "--data: nowhere: no such file or folder"),
        (("deltanet", "--data", "books", "--precision", "half"), "precision: read 'half', allowed"),
        (("deltanet", "--data", "books", "--length", "9999"), "at least --length 9999 are needed"),
    ],
)
def test_what_is_refused(mnemic, tmp_path, arguments, message):
    done = mnemic("train", *arguments)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert not (tmp_path / "runs").exists()


def test_a_model_is_evaluated(mnemic, tmp_path):
    assert mnemic("train", "deltanet", "--data", "books", *TINY, "--run", "r").code == 0
    told = ("eval", "r/model", "--data", "books", "--length", "64")
    done = mnemic(*told, "--picture", "seen.png")
    assert done.code == 0
    assert done.out.splitlines()[:2][0] == "position     bits a token"
    assert (tmp_path / "seen.png").read_bytes().startswith(b"\x89PNG")
    found = mnemic(*told, "--distance", "8", "--json").json
    assert [span["last"] for span in found["positions"]] == [1, 3, 7, 15, 31, 63]
    assert [copied["distance"] for copied in found["distances"]] == [8]
    (tmp_path / "one.txt").write_text("x" * 64)
    assert mnemic("eval", "r/model", "--data", "one.txt", *told[-2:], "--distance", "8").code == 0
    assert "the longest document has 69 tokens" in mnemic(*told[:-1], "70").err
