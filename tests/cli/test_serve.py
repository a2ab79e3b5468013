"""`mnemic serve`: a model's folder behind HTTP, until a signal."""

import json
import signal
import socket
import urllib.request

import pytest
from faulty import begun, ended

from mnemic.hf.build import make_config, make_model
from mnemic.hf.folder import save
from mnemic.hf.shape import Shape
from mnemic.hf.tokenizer import get_tokenizer


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """A model without a tokenizer."""
    shape = Shape(1, 16, vocabulary=257)
    return save(
        make_model(make_config(["gated-deltanet"], shape)), tmp_path_factory.mktemp("m") / "bare"
    )


@pytest.fixture(scope="module")
def model(bare, tmp_path_factory):
    """A model of bytes."""
    folder = tmp_path_factory.mktemp("m") / "bytes"
    get_tokenizer("bytes", ()).save_pretrained(folder)
    for path in bare.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


def test_it_answers_until_a_signal(model):
    process = begun("serve", model, "--port", "0")
    address = process.stdout.readline().split()[0]
    assert address.startswith("http://127.0.0.1:")
    body = json.dumps({"prompt": "def", "max_tokens": 5, "temperature": 0}).encode()
    with urllib.request.urlopen(address, body, timeout=60) as answer:
        found = json.load(answer)
    assert found["model"] == "bytes"
    assert found["usage"]["prompt_tokens"] == 3
    leave(address, json.dumps({"prompt": "def", "max_tokens": 1 << 20, "stream": True}).encode())
    with urllib.request.urlopen(address, body, timeout=60) as answer:
        assert json.load(answer)["choices"] == found["choices"]
    process.send_signal(signal.SIGINT)
    code, _, err = ended(process)
    assert (code, err) == (130, "mnemic: interrupted\n")


def leave(address, body):
    """Ask for a stream, read a piece, and close the connection while more is written."""
    with urllib.request.urlopen(address, body, timeout=60) as answer:
        assert answer.readline().startswith(b"data: ")


def test_what_cannot_be_served(mnemic, model, bare):
    message = f"mnemic: {bare}: has no tokenizer; mnemic train {bare} --data TEXT leaves"
    for arguments in (("serve", bare), ("eval", bare, "--data", bare)):
        done = mnemic(*arguments)
        assert done.code == 2
        assert done.err.startswith(message)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = mnemic("serve", model, "--port", str(port))
    assert done.code == 5
    assert done.err.startswith(f"mnemic: cannot listen at 127.0.0.1:{port}: ")
    done = mnemic("serve", model, "--device", "nowhere")
    assert done.code == 2
    assert done.err.startswith("mnemic: --device: read 'nowhere', allowed: cpu")
