"""Where an encoding lacks the signs of equations they are spelled, and JSON loses nothing."""

import io
import json
import sys

import pytest

from mnemic.cli import output, spelled
from mnemic.cli.spelled import HANDLER, register

EQUATIONS = {
    "ŷₜ = αₜ Wₜ₋₁ kₜ": "yhat_t = alpha_t W_(t-1) k_t",
    "Wₜ = αₜ Wₜ₋₁ − ηₜ Gₜ": "W_t = alpha_t W_(t-1) - eta_t G_t",
    "e = ∂ℓ/∂ŷ, ∇ℓ, ∂η": "e = dl/dyhat, grad l, deta",
    "Σ_{i ≤ t} γᵢ ‖k̃ᵢ‖² … λη": "sum_{i <= t} gamma_i ||ktilde_i||^2 ... lambda eta",
    "10⁻⁶ → Größe, 字": "10^(-6) -> Grosse, ?",
}


@pytest.mark.parametrize("text", EQUATIONS)
def test_signs_are_spelled(text):
    assert spelled.spelled(text) == EQUATIONS[text]


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [("ascii", "yhat_t = (yhat - v)^2"), ("latin-1", "yhat_t = (yhat - v)²"), ("utf-8", None)],
)
def test_only_what_an_encoding_lacks_is_spelled(encoding, shown):
    register()
    text = "ŷₜ = (ŷ − v)²"
    assert text.encode(encoding, HANDLER).decode(encoding) == (shown or text)


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
def test_json_loses_nothing_in_any_encoding(encoding, monkeypatch):
    register()
    data = {"equation": "ŷₜ = (ŷ − v)²"}
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding=encoding, errors=HANDLER)
    monkeypatch.setattr(sys, "stdout", stream)
    output.print_json(data)
    stream.flush()
    text = written.getvalue().decode(encoding)
    assert json.loads(text) == data
    assert ("ŷ" in text) == (encoding == "utf-8")
