"""The judge of printed lines: right lines agree, wrong ones do not, and what says nothing fails."""

import pytest
import torch

from mnemic.audit import Equation, Paper
from mnemic.audit.judge import judge
from mnemic.audit.lines import values

PAPER = Paper(id="p", title="A paper", numbered=0, equations=())
SQUARED = "L = norm(W @ k - v)**2/2; W = W - eta*gradient(L, W)"
DELTA = "W = W @ (I - eta*k @ k.T) + eta*v @ k.T"


def verdict(rule, problem, **more):
    return judge(PAPER, Equation(where="(1)", rule=rule, problem=problem, **more))


def test_a_right_line_agrees_by_algebra_and_numbers():
    found = verdict(DELTA, SQUARED)
    assert (found.kind, found.algebra, found.fails) == ("agrees", True, ())


@pytest.mark.some(4)
@pytest.mark.parametrize(
    "wrong",
    [
        "W = W @ (I + eta*k @ k.T) + eta*v @ k.T",
        "W = W @ (I - eta*k @ k.T) - eta*v @ k.T",
        "W = W @ (I - eta*k @ k.T) + v @ k.T",
        "W = (I - eta*k @ k.T) @ W + eta*v @ k.T",
        "W = eta*v @ k.T",
        "W = W",
    ],
)
def test_a_wrong_text_differs_with_a_correction_and_a_witness(wrong):
    found = verdict(wrong, SQUARED, corrected=DELTA)
    assert (found.kind, found.fails) == ("differs", ())
    assert found.corrected == "by algebra and numbers"
    seen = found.witness
    given = {n: torch.tensor(x, dtype=torch.float64) for n, x in seen.given.items()}
    given = {n: x[:, None] if n in "kv" else x for n, x in given.items()}
    again = {text: values(text, given)["W"] for text in (wrong, DELTA)}
    torch.testing.assert_close(again[wrong], torch.tensor(seen.printed, dtype=torch.float64))
    torch.testing.assert_close(again[DELTA], torch.tensor(seen.derived, dtype=torch.float64))
    assert (again[wrong] - again[DELTA]).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("bound", "kind"), [("norm(A)*norm(P)", "agrees"), ("norm(A @ A)", "differs")]
)
def test_a_bound_is_judged_as_the_smaller_of_its_two_sides(bound, kind):
    rule = f"x = norm(A @ P); b = {bound}; y = (x + b - abs(x - b))/2"
    shapes = {"A": "square", "P": "square"}
    assert verdict(rule, "y = norm(A @ P)", shapes=shapes).kind == kind


def test_the_term_at_fault_is_told_with_its_factor():
    found = verdict("W = W @ (I - eta*k @ k.T) - 3*eta*v @ k.T", SQUARED, corrected=DELTA)
    assert found.term == "-3 * eta * v @ k.T should have the factor -1/3"


@pytest.mark.parametrize(
    ("rule", "problem", "change"),
    [
        (DELTA, "L = norm(W @ k - v)**2; W = W - eta*gradient(L, W)", "eta → eta/2"),
        ("W = alpha*W + v @ k.T", "W = alpha*W + eta*v @ k.T", "eta → 1"),
        ("S = theta*S + G; W = W - ns(S)", "S = theta*S - G; W = W + ns(S)", "S → -S"),
        (
            "b = delta/(1 + delta*norm(k)**2); W = W @ (I - b*k @ k.T) + b*v @ k.T",
            "W = argmin(norm(X @ k - v)**2/2 + norm(X - W)**2/eta, X)", "eta → 2*delta",
        ),
    ],
)  # fmt: skip
def test_a_change_of_coefficients_is_found(rule, problem, change):
    found = verdict(rule, problem)
    assert (found.kind, found.change, found.fails) == ("agrees under", change, ())


def test_a_change_never_turns_the_sign_of_a_rate():
    """Descent printed as ascent would agree under η → −η."""
    assert verdict("W = W + eta*G", "W = W - eta*G", corrected="W = W - eta*G").kind == "differs"


def test_the_coefficient_of_another_token_is_not_set_to_this_ones():
    rule, right = "W = alpha*alpha*W", "W = alpha*alpha_1*W"
    assert verdict(rule, right, corrected=right).kind == "differs"


def test_a_threshold_that_hangs_on_the_rate_agrees_under_one_change_of_both():
    rule = "A = W - eta*G; W = sign(A)*max(abs(A) - eta/beta, 0)"
    problem = "W = argmin(inner(X, G) + norm(X - W)**2/eta + norm(X, 1)/beta, X)"
    found = verdict(rule, problem, domains={"beta": "above one"})
    assert (found.kind, found.change) == ("agrees under", "eta → 2*eta")


@pytest.mark.parametrize(
    ("rule", "problem", "more", "reason"),
    [
        ("W = W + 0*v @ k.T", "W = W + 0*v @ k.T", {}, "k makes no difference in any draw"),
        ("W = round(W/100)", "W = round(W/100)", {}, "W makes no difference in any draw"),
        (
            "W = where(norm(k) < 90, W, 2*W)", "W = W", {},
            "a condition has the same answer in every draw",
        ),
        ("W = W", "A = W", {}, "the line and its problem assign no name in common"),
        ("W = W + v @ v.T", "W = W + v @ k.T", {}, "not a shape"),
    ],
)  # fmt: skip
def test_a_comparison_that_says_nothing_fails(rule, problem, more, reason):
    found = verdict(rule, problem, **more)
    if reason == "not a shape":  # where keys and values differ in size one side has no value
        assert found.kind == "differs"
        return
    assert found.kind == "not judged"
    assert reason in found.fails[0]


def test_a_line_that_differs_fails_without_a_correction_that_agrees():
    wrong = "W = W + 2*v @ k.T"
    assert verdict(wrong, "W = W + v @ k.T").fails
    found = verdict(wrong, "W = W + v @ k.T", corrected="W = W + 3*v @ k.T")
    assert found.fails == ("the corrected line does not agree either",)


def test_a_line_that_agrees_fails_with_a_correction():
    assert verdict(DELTA, SQUARED, corrected=DELTA).fails


def test_what_is_no_rule_and_what_cannot_be_judged_are_told_as_that():
    found = judge(PAPER, Equation(where="(1)", no_rule="a definition"))
    assert (found.kind, found.reason, found.by) == ("no rule", "a definition", None)
    found = judge(PAPER, Equation(where="(1)", unjudged="the text is damaged"))
    assert (found.kind, found.fails) == ("not judged", ())


@pytest.mark.parametrize("given", [{}, {"rule": "W = W"}, {"no_rule": "a", "unjudged": "b"}])
def test_an_entry_is_one_of_three(given):
    with pytest.raises(ValueError, match="give rule and problem, or no_rule, or unjudged"):
        Equation(where="(1)", **given)
