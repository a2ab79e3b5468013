"""The grammar of printed equations: every spec's parse, some against matrices done by hand."""

from pathlib import Path

import pytest
import torch
import yaml

from mnemic.compiler.published import assignments, evaluate, inputs, step
from mnemic.dsl.expressions import ExpressionError
from mnemic.dsl.spec import Spec

SPECS = sorted((Path(__file__).parents[2] / "specs").rglob("*.yaml"))

W = [[1.0, 2.0], [3.0, 4.0]]
K = [[1.0], [0.0]]
V = [[5.0], [6.0]]


def load(path: Path) -> dict:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def rules() -> list:
    return [
        pytest.param(rule["rule"], id=f"{path.stem}-{i}")
        for path in SPECS
        for i, rule in enumerate(load(path).get("published", ()))
    ]


@pytest.mark.parametrize(
    "path", [p for p in SPECS if "extends" not in load(p)], ids=lambda path: path.stem
)
def test_each_spec_is_valid_and_bears_its_file_name(path: Path) -> None:
    assert Spec.model_validate(load(path)).name == path.stem


@pytest.mark.parametrize("rule", rules())
def test_each_published_rule_parses_and_assigns_a_state(rule: str) -> None:
    assert {name for name, _ in assignments(rule)} & {"W", "S", "A", "H", "P", "h", "y", "u"}


@pytest.mark.parametrize(
    ("rule", "more", "expected"),
    [
        ("W = W + v @ k.T", {}, [[6, 2], [9, 4]]),
        ("W = W @ (I - eta*k @ k.T) + eta*v @ k.T", {"eta": 0.5}, [[3, 2], [4.5, 4]]),
        ("W = W @ diag(alpha) + v @ k.T", {"alpha": [[0.5], [2]]}, [[5.5, 4], [7.5, 8]]),
        ("W = outer(beta, alpha)*W", {"alpha": [[1], [2]], "beta": [[3], [0]]}, [[3, 12], [0, 0]]),
        ("e = W @ k - v; W = W - where(norm(e) <= 6, e, sign(e)) @ k.T", {}, [[5, 2], [6, 4]]),
        ("e = W @ k - v; W = W - where(norm(e) <= 4, e, sign(e)) @ k.T", {}, [[2, 2], [4, 4]]),
        ("W = -W/2**2 + max(W - 3, 0)", {}, [[-0.25, -0.5], [-0.75, 0]]),
        ("W = 6*softmax(0*W)", {}, [[1.5, 1.5], [1.5, 1.5]]),
        ("W = inv(W) @ W", {}, [[1, 0], [0, 1]]),
        ("W = norm(W, 1)*I", {}, [[10, 0], [0, 10]]),
        ("W = ns(0*W)", {}, [[0, 0], [0, 0]]),
    ],
)
def test_a_rule_against_a_matrix_done_by_hand(rule: str, more: dict, expected: list) -> None:
    found = step(rule, {"W": W, "k": K, "v": V, **more})["W"]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


def test_a_right_hand_side_sees_the_last_state_and_what_was_assigned_before() -> None:
    found = step("S = theta*S - W; W = W + S", {"theta": 0.5, "S": [[4.0]], "W": [[1.0]]})
    assert {name: value.item() for name, value in found.items()} == {"S": 1.0, "W": 2.0}


def test_a_window_sum_binds_its_items_and_keeps_the_rest() -> None:
    items = {"k_i": [K, [[0.0], [1.0]]], "v_i": [V, V], "gamma_i": [1.0, 0.5]}
    rule = "W = W - sum_i(gamma_i*(W @ k_i - v_i) @ k_i.T)"
    found = step(rule, {"W": W, **items})["W"]
    expected = torch.tensor([[5, 3.5], [6, 5]], dtype=torch.float64)
    torch.testing.assert_close(found, expected)


def test_values_may_carry_gradients_and_keep_them() -> None:
    k = torch.tensor(K, dtype=torch.float64, requires_grad=True)
    step("W = W + v @ k.T", {"W": W, "k": k, "v": V})["W"].sum().backward()
    assert k.grad is not None
    assert k.grad.tolist() == [[11.0], [11.0]]


def test_the_names_that_a_rule_reads() -> None:
    rule = "S = theta*S - v @ k.T; W = W @ (I - k @ k.T) + S"
    assert inputs(rule) == {"theta", "S", "v", "k", "W"}


def test_a_missing_name_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="alpha"):
        evaluate(assignments("W = alpha*W")[0][1], {"W": W})


HOSTILE = [
    "",
    "W",
    "W + 1",
    "W = W; ",
    "W += W",
    "W = V = 1",
    "W: int = 1",
    "W, S = W",
    "W.T = W",
    "I = W",
    "exp = W",
    "pi = W",
    "sum_i = W",
    "W = __import__('os')",
    "W = W.__class__",
    "W = W.mean",
    "W = W.T()",
    "W = (lambda: W)()",
    "W = W[0]",
    "W = [W]",
    "W = 'a'",
    "W = W if W else W",
    "W = W and W",
    "W = not W",
    "W = True",
    "W = None",
    "W = W := 1",
    "W = 1_000",
    "W = 1j",
    "W = 0x10",
    "W = 1e13",
    "W = 1e999",
    "W = 999999999999999999999",
    "W = ~W",
    "W = W % W",
    "W = W // W",
    "W = W << W",
    "W = W & W",
    "W = W < W",
    "W = where(W, W, W)",
    "W = where(W < W < W, W, W)",
    "W = exp",
    "W = exp()",
    "W = exp(W, W)",
    "W = exp(*W)",
    "W = exp(x=W)",
    "W = eval(W)",
    "W = k_i",
    "W = sum_i(sum_i(k_i))",
    "W = ㎏",
    "W = Ｗ",
    "W = W # W",
    "W = W\\\n",
    "import os",
    "del W",
    "raise W",
    "W = " + "(" * 60 + "W" + ")" * 60 + "[",
    "W = " + "-" * 60 + "W",
    "W = " + "+".join(["W"] * 400),
    "W = " + "W+" * 600 + "W",
    ";".join(["W = W"] * 17),
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_what_is_no_rule_is_refused(text: str) -> None:
    if text == "W = W; ":
        assert len(assignments(text)) == 1
        return
    with pytest.raises(ExpressionError):
        assignments(text)


def test_a_tower_of_powers_costs_nothing() -> None:
    assert step("W = 9**9**9**9", {})["W"].isinf()


def test_an_error_names_place_and_likely_word() -> None:
    with pytest.raises(ExpressionError) as caught:
        assignments("W = sofmax(W)")
    assert str(caught.value).startswith("rule, column 5: unknown function: read 'sofmax'")
    assert "did you mean 'softmax'?" in str(caught.value)
