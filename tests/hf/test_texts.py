"""Documents and tokenizers: any folder, file or table; bytes, trained or loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
from datasets import Dataset

from mnemic.errors import UsageError
from mnemic.hf.packing import pack
from mnemic.hf.texts import Texts, read_texts
from mnemic.hf.tokenizer import END, get_tokenizer, load_tokenizer

DOCUMENTS = [f"document {i}" for i in range(60)]


def test_a_folder_of_files(tmp_path: Path) -> None:
    for i, text in enumerate(DOCUMENTS):
        path = tmp_path / f"{i % 3}" / f"{i}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    (tmp_path / ".hidden").write_text("hidden")
    (tmp_path / "empty.txt").write_text("")
    found = read_texts(tmp_path)
    assert sorted((*found.train, *found.held_out)) == sorted(DOCUMENTS)
    assert 1 <= len(found.held_out) <= 10
    assert read_texts(tmp_path) == found
    (tmp_path / "61.txt").write_text("one more")
    assert set(found.held_out) <= set(read_texts(tmp_path).held_out)


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_a_table(tmp_path: Path, kind: str) -> None:
    table = Dataset.from_dict({"body": DOCUMENTS, "number": list(range(60))})
    path = tmp_path / f"table.{kind}"
    (table.to_parquet if kind == "parquet" else table.to_json)(str(path))
    found = read_texts(path, "body")
    assert sorted((*found.train, *found.held_out)) == sorted(DOCUMENTS)
    with pytest.raises(UsageError, match=r"column: read 'bdy', allowed: body, number; did you m"):
        read_texts(path, "bdy")
    path.write_text("no table\n")
    with pytest.raises(UsageError, match=rf"^--data: {path}: cannot be read: "):
        read_texts(path, "body")


def test_the_end_of_few_documents_is_held_out(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("0123456789" * 10)
    found = read_texts(tmp_path)
    assert found == Texts(("0123456789" * 9 + "0123",), ("456789",))
    other = tmp_path / "other"
    other.mkdir()
    (other / "b.txt").write_text("held")
    assert read_texts(tmp_path / "a.txt", held_out=other).held_out == ("held",)


def test_what_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^--data: .*nowhere: no such file or folder$"):
        read_texts(tmp_path / "nowhere")
    with pytest.raises(UsageError, match=r": no text in it$"):
        read_texts(tmp_path)
    (tmp_path / "a.bin").write_bytes(b"ab\xff")
    with pytest.raises(UsageError, match=r"a\.bin: no UTF-8 text at byte 2$"):
        read_texts(tmp_path)


def test_held_out_text_that_is_none_is_told_by_its_own_option(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "b.bin").write_bytes(b"ab\xff")
    (tmp_path / "c.jsonl").write_text('{"body": "text"}\n')
    for name, told in {
        "nothing.txt": ": no such file or folder",
        "empty.txt": ": no text in it",
        "b.bin": ": no UTF-8 text at byte 2",
        "c.jsonl": ": column: read 'text', allowed: body",
    }.items():
        path = tmp_path / name
        with pytest.raises(UsageError, match=f"^--held-out: {path}{told}$"):
            read_texts(tmp_path / "a.txt", held_out=path)
    with pytest.raises(UsageError, match=r"^held-out text: 0 tokens, at least 2 are needed$"):
        pack([], get_tokenizer("bytes", ()), 8, rest=True, name="held-out text")


def test_of_equal_documents_the_end_is_held_out(tmp_path: Path) -> None:
    for i in range(20):
        (tmp_path / f"{i}.txt").write_text("0123456789")
    found = read_texts(tmp_path)
    assert found == Texts(("0123456789",) * 18 + ("012345678",), ("9", "0123456789"))


def test_bytes_are_tokens_of_their_numbers() -> None:
    found = get_tokenizer("bytes", ())
    text = "aé\n\0 <|end|"
    assert found(text)["input_ids"] == list(text.encode())
    assert found.decode(found(text)["input_ids"]) == text
    assert (len(found), found.eos_token, found.eos_token_id) == (257, END, 256)


def test_a_trained_tokenizer_is_saved_and_loaded(tmp_path: Path) -> None:
    found = get_tokenizer("bpe:300", DOCUMENTS)
    assert len(found) <= 300
    assert len(found("document 7")["input_ids"]) < 5
    assert found.decode(found("déjà\nvu")["input_ids"]) == "déjà\nvu"
    found.save_pretrained(tmp_path)
    for place in (tmp_path, tmp_path / "tokenizer.json"):
        again = get_tokenizer(str(place), ())
        assert again("document 7")["input_ids"] == found("document 7")["input_ids"]
        assert again.eos_token_id == found.eos_token_id


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ("bpe:256", r"--tokenizer: needs a whole number above 256: .*: read 'bpe:256'"),
        ("bpe:x", r"--tokenizer: needs a whole number above 256"),
        ("gpt2", r"--tokenizer: read 'gpt2', allowed: bytes, bpe:SIZE, or a folder or file"),
    ],
)
def test_tokenizers_that_there_are_not(told: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        get_tokenizer(told, ())


@pytest.mark.parametrize(
    "content", ['{"version": "1.0"}', '{"version": "1.0", "added_tokens": []}', "none"]
)
def test_a_tokenizer_that_cannot_be_read(content: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    (tmp_path / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "PreTrainedTokenizerFast"}'
    )
    for load in (lambda: get_tokenizer(str(tmp_path), ()), lambda: load_tokenizer(tmp_path)):
        with pytest.raises(UsageError, match=f"^--tokenizer: {tmp_path}: cannot be read: ."):
            load()
