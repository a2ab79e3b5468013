"""Tile functions of windows, factors and running maxima against those of PyTorch, padded too.

Tiles have 16 (or 32) rows of which 5 tokens are there, and 16 channels of which 5 are there; what
is not there is zero, as kernels load it.
"""

import pytest

ROWS, WIDTH, CHANNELS = 5, 3, 5
"""Tokens, slots of a window and channels that are there."""

TOLERANCE = 1e-11


def _calls() -> dict:
    """Each function of tiles: what it takes, what else, what it gives, and that of PyTorch.

    Letters: t tokens (16 of a tile), s their windows' slots (32), u sources of a band (16), k
    channels, r slots of a window; p is a positive definite [k, k], l a factor [t, t], d a log decay
    [t, k], g one [t], and n a number. Capital letters of an entry are extras in order.
    """
    return {
        "repeat": (["t"], ["S", WIDTH], "s", {"times": WIDTH}),
        "run_sums": (["s"], ["T", WIDTH], "t", {"times": WIDTH}),
        "repeat_rows": (["tk"], ["P", "S", WIDTH], "sk", {"times": WIDTH}),
        "token_sums": (["sk"], ["P", "T", WIDTH], "tk", {"rows": WIDTH}),
        "delayed_by": (["sk"], ["P", WIDTH], "sk", {"rows": WIDTH}),
        "spread_rows": (["tt"], ["P", "S", WIDTH, WIDTH], "ss",
                        {"targets": WIDTH, "sources": WIDTH}),
        "block_sums": (["ss"], ["P", "T", WIDTH, WIDTH], "tt",
                       {"targets": WIDTH, "sources": WIDTH}),
        "band": (["tr"], ["U", WIDTH], "tu", {}),
        "unbanded": (["tu", "tr"], [WIDTH], "tr", {}),
        "flat": (["tr"], ["S", WIDTH], "s", {}),
        "in_shape_of": (["s", "tr"], [WIDTH], "tr", {}),
        "scores_after": (["tk", "sk", "d"], ["P", WIDTH], "ts", {"rows": WIDTH}),
        "scores_before": (["sk", "sk", "d"], ["P", WIDTH], "ss", {"rows": WIDTH}),
        "row_mix": (["ts", "sk", "d"], ["P", WIDTH], "tk", {}),
        "row_mix_back": (["ss", "sk", "d"], ["P", WIDTH], "sk", {}),
        "recall_rows": (["kk", "tk"], ["P"], "tk", {}),
        "pull_rows": (["kk", "tk"], ["P"], "tk", {}),
        "symmetric": (["kk"], [], "kk", {}),
        "innovation_factor": (["tk~", "tk"], ["P"], "tt", {}),
        "solved": (["l", "tk"], ["P"], "tk", {}),
        "solved_back": (["l", "tk"], ["P"], "tk", {}),
        "cholesky_vjp": (["tt", "l"], ["P"], "tt", {}),
        "shrunk": (["p", "tk"], ["L", "P"], "kk", {}),
        "kalman_gain": (["p", "k", "k"], [], "k", {}),
        "downdated": (["p", "k", "k"], [], "kk", {}),
        "ridge_solved": (["p", "k+", "k"], [], "k", {}),
        "conjugated": (["tk", "tk", "mix", "p", "tk+", "t+"], ["P", 1e-13, 64], "tk",
                       {"tolerance": 1e-13, "iterations": 64}),
        "running_maximum": (["g", "t", "n"], [], "t", {}),
        "stable_mix": (["g", "t", "t9"], [], "tt", {}),
        "stable_reach": (["g", "n", "t9"], [], "t", {}),
        "maximum_share": (["g", "t", "top"], [], "tt", {}),
    }  # fmt: skip


FUNCTIONS = tuple(_calls())


def difference(name: str, precision: str = "P") -> float:
    """How far a tile function is from that of PyTorch, in the entries that are there."""
    import torch
    import trial_tiles

    from mnemic.codegen.support import interpreted

    takes, extras, gives, options = _calls()[name]
    given = trial_tiles.drawn(takes)
    expected = trial_tiles.expected(name, given, options)
    if precision != "P":
        given = [(axes, x.float()) for axes, x in given]
    told = [precision if extra == "P" else extra for extra in extras]
    with interpreted.products():
        found = trial_tiles.launched(name, given, told, gives)
    assert found.shape == expected.shape
    assert bool(torch.isfinite(expected).all())
    return float((found - expected).abs().max() / (1 + expected.abs().max()))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_tile_function_is_that_of_pytorch(interpreter, name: str) -> None:
    assert interpreter(difference, name=name) <= TOLERANCE


@pytest.mark.parametrize("name", ["conjugated", "innovation_factor"])
def test_solves_of_calls_in_16_bits_take_pairs_of_numbers(interpreter, name: str) -> None:
    """To 2⁻¹⁶ of an operand; one number of 16 bits would leave 2⁻⁹."""
    assert TOLERANCE < interpreter(difference, name=name, precision="B") < 2**-14


def in_parts() -> float:
    """How far a product of 32 summands in two parts is from PyTorch's."""
    import trial_tiles

    (_, left), (_, right) = given = trial_tiles.drawn(["ts", "ss"])
    short = [(axes, x.float()) for axes, x in given]
    found = trial_tiles.launched("full", short, ["I", 16], "ts")
    return float((found - left @ right).abs().max())


def test_a_long_sum_in_parts_is_the_sum(interpreter) -> None:
    assert 0 < interpreter(in_parts) < 1e-5
