"""Claims: verdicts follow from parts, pages from outcomes, and each claim runs at its smallest."""

import json
import math
from pathlib import Path

import pytest
import torch

from mnemic.claims import CLAIMS, about, find, reproduce
from mnemic.claims.crowded import crowd
from mnemic.claims.drawing import svg
from mnemic.claims.exact_swaps import drawn
from mnemic.claims.mad import first, last
from mnemic.claims.numbers import mean, shown, spread
from mnemic.claims.outcome import Curve, Outcome, Panel, Part, judged
from mnemic.claims.page import counts, page, table
from mnemic.claims.recall import spread_out
from mnemic.claims.recorded import FOLDER, outcome
from mnemic.claims.retrieval import KERNELS
from mnemic.errors import UsageError

DOCS = Path(__file__).parents[2] / "docs"
FAST = ("exact-swaps", "storage")
UNTRAINED = [claim.name for claim in CLAIMS if not claim.trained]


@pytest.mark.parametrize("name", FAST)
def test_a_claim_runs_at_its_smallest(name: str) -> None:
    found = reproduce(find(name), seeds=2, quick=True)
    assert found.verdict == "holds"
    assert Outcome.from_json(json.loads(json.dumps(found.to_json()))) == found


@pytest.mark.full
@pytest.mark.parametrize("name", [c.name for c in CLAIMS if c.name not in FAST])
def test_every_claim_runs_at_its_smallest(name: str) -> None:
    found = reproduce(find(name), seeds=1, quick=True)
    assert found.panels
    assert all(math.isfinite(y) for panel in found.panels for c in panel.curves for y in c.y)


def test_a_verdict_is_what_the_parts_come_to() -> None:
    assert judged([]) == "not settled"
    assert judged([True, None, False]) == "not settled"
    assert judged([True, False]) == "holds in part"
    assert judged([False, False]) == "does not hold"


def test_swaps_are_drawn_as_the_theorem_has_them() -> None:
    """A swap writes k_i − k_j with the value 0, and the reads follow a list that is swapped."""
    told = drawn(4, 5, seed=1)
    keys, held = told.k[:4], told.v[:4].clone()
    assert float((keys @ keys.T - torch.eye(4)).abs().max()) < 1 / 8
    for t in range(5):
        found = [(i, j) for i in range(4) for j in range(4)
                 if torch.equal(told.k[4 + t], keys[i] - keys[j])]  # fmt: skip
        (i, j) = found[0]
        held[[i, j]] = held[[j, i]]
        (asked,) = [i for i in range(4) if torch.equal(told.q[4 + t], keys[i])]
        assert torch.equal(told.expected[t], held[asked])
        assert not told.v[4 + t].any()


def test_a_crowd_of_states_is_swapped_as_it_is_written() -> None:
    """Each read asks for the key of a place, and ``held`` follows a list that is swapped."""
    told = crowd(5, 8, 12, seed=3)
    keys, at = told.k[:5], list(range(5))
    for t in range(12):
        (i, j) = next((i, j) for i in range(5) for j in range(5)
                      if torch.equal(told.k[5 + t], keys[i] - keys[j]))  # fmt: skip
        at[i], at[j] = at[j], at[i]
        (asked,) = [i for i in range(5) if torch.equal(told.q[5 + t], keys[i])]
        assert at[asked] == told.held[t]


def test_first_and_last_are_open_where_runs_mix() -> None:
    scores = {"a": [0.9, 0.8], "b": [0.7, 0.6], "c": [0.65, 0.95]}
    assert first(scores, "a", ["b"]) is True
    assert first(scores, "b", ["a"]) is False
    assert first(scores, "a", ["b", "c"]) is None
    assert first({"a": [1.0, 1.0], "b": [1.0, 1.0]}, "a", ["b"]) is False  # all solve it
    assert last({"a": [0.1, 0.2], "b": [0.3, 0.4]}, "a") is True
    assert last(scores, "a") is False
    assert last(scores, "c") is None


def test_a_systems_claims_are_those_that_name_it() -> None:
    assert {claim.name for claim in about("gated-deltanet")} == {"mad", "needles"}
    assert about("no-such-spec") == ()


def test_numbers_of_a_paper_stand_in_a_table_beside_ours() -> None:
    rows = ({"task": "one", "printed": "50 %", "measured": "0.4"}, {"score": 1.0})
    assert table(Outcome("mad", (), (), {}, rows=rows)) == rows[:1]


def test_exact_formulas_are_means_over_gaussian_keys() -> None:
    """E κ² / κ(k, k)² for a key of ‖k‖² = d, by quadrature of the normal density."""
    from scipy.integrate import quad

    d = 16
    for kernel in KERNELS:
        tau = math.sqrt(d)
        values = {
            "linear": lambda s: s, "relu": lambda s: max(s, 0.0),
            "exp": lambda s, tau=tau: math.exp(s / tau),
            "SoLU": lambda s, tau=tau: s * math.exp(s / tau),
        }[kernel.name]  # fmt: skip

        def weighed(s: float, own=values) -> float:  # type: ignore[no-untyped-def]
            return own(s) ** 2 * math.exp(-(s**2) / (2 * d)) / math.sqrt(2 * math.pi * d)

        expected = quad(weighed, -60, 90, limit=200)[0] / values(float(d)) ** 2
        assert kernel.exact(d) == pytest.approx(expected, rel=1e-6)


def test_as_many_keys_as_dimensions_end_at_right_angles_and_more_lie_apart() -> None:
    rng = torch.Generator().manual_seed(0)
    few = spread_out(8, 8, rng, 5)
    torch.testing.assert_close(few @ few.T, torch.eye(8, dtype=torch.float64))
    rng = torch.Generator().manual_seed(0)
    plain = spread_out(16, 8, rng, 0)
    rng = torch.Generator().manual_seed(0)
    apart = spread_out(16, 8, rng, 60)
    largest = [float((x @ x.T - torch.eye(16)).abs().max()) for x in (plain, apart)]
    assert largest[1] < 0.8 * largest[0]


def test_spread_is_students() -> None:
    assert spread([1.0, 2.0, 3.0]) == pytest.approx(2.484, rel=1e-3)  # t = 4.303, s/√3
    assert math.isinf(spread([1.0]))
    assert mean([1.0, 2.0]) == 1.5
    assert shown([2.0]) == "2"


def test_a_picture_has_every_curve() -> None:
    curves = (
        Curve("ours", (1, 2), (1, 2), (0.1, 0.1)), Curve("theirs", (1, 2), (2, 2), printed=True),
    )  # fmt: skip
    panel = Panel("one", "x", "y", curves, "xy")
    found = Outcome("swaps", (Part("so it is", True, "seen"),), (panel,), {})
    assert all(word in svg(found) for word in ("ours", "theirs", "holds"))


def test_shares_have_the_same_axis_wherever_they_lie() -> None:
    ours, theirs = (
        Panel(name, "n", "share", (Curve(name, (8, 16, 64), ys),), "x")
        for name, ys in (("ours", (0.2, 0.3, 0.1)), ("theirs", (0.9, 1.0, 0.8)))
    )
    text = svg(Outcome("mad", (), (ours, theirs), {}))
    for tick in ("0.2", "0.8"):
        assert text.count(f">{tick}</text>") == 2
    for tick in ("8", "16", "64"):
        assert text.count(f">{tick}</text>") == 2


@pytest.mark.parametrize("claim", [c.name for c in CLAIMS if outcome(c.name)])
def test_kept_outcomes_are_whole_and_drawn(claim: str) -> None:
    found = outcome(claim)
    assert found is not None
    assert found.claim == claim
    assert found.parts
    assert (DOCS / "images" / "claims" / f"{claim}.svg").is_file()


def test_claims_without_training_have_been_run() -> None:
    assert [name for name in UNTRAINED if outcome(name) is None] == []
    assert {path.stem for path in FOLDER.glob("*.json")} <= {claim.name for claim in CLAIMS}


def test_the_page_is_made_of_the_outcomes() -> None:
    """``mnemic reproduce --markdown > docs/claims.md`` writes it anew."""
    assert (DOCS / "claims.md").read_text(encoding="utf-8") == page().rstrip("\n") + "\n"
    assert sum(counts().values()) == len(CLAIMS)


def test_an_unknown_claim_is_told_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'storage'"):
        find("storag")
