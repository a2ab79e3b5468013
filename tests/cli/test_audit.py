"""`mnemic audit`: verdicts as text, as JSON and as a table; the exit code where an entry fails."""

import pytest

SPEC = """mnemic: 1
name: own
bias: l2
published:
- where: "(1)"
  rule: "{rule}"
  problem: "L = norm(W @ k - v)**2/2; W = W - eta*gradient(L, W)"
  {corrected}
"""
RIGHT = "W = W - eta*(W @ k - v) @ k.T"


@pytest.fixture
def own(tmp_path):
    def write(rule, corrected=""):
        path = tmp_path / "own.yaml"
        path.write_text(SPEC.format(rule=rule, corrected=corrected))
        return str(path)

    return write


def test_the_lines_of_a_spec(mnemic):
    done = mnemic("audit", "longhorn")
    assert done.code == 0
    assert "miras Table 1, Longhorn: differs" in done.out
    assert "corrected: W = W @ (I - beta*k @ k.T/(1 + beta*norm(k)**2)) + beta/(1 + " in done.out
    assert "derived W = [[" in done.out
    assert mnemic("audit", "longhorn").out == done.out, "remembered"


def test_json_tells_all(mnemic):
    found = mnemic("audit", "longhorn", "deltanet-negative", "--json").json
    by_place = {v["where"]: v for v in found["verdicts"]}
    assert by_place["Table 1, DeltaNet"]["verdict"] == "agrees"
    wrong = by_place["Table 1, Longhorn"]
    assert wrong["corrected_agrees"] == "by algebra and numbers"
    assert set(wrong["witness"]["given"]) == {"W", "beta", "k", "v"}
    assert sum(found["counts"].values()) == len(found["verdicts"])
    assert found["coverage"]["miras"]["uncovered"] == []


def test_a_table(mnemic):
    table = mnemic("audit", "longhorn", "--markdown").out.splitlines()
    assert table[0] == "| paper | equation | verdict |"
    assert any("differs" in row and "should be `" in row for row in table)


def test_a_spec_that_prints_no_line(mnemic, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("mnemic: 1\nname: mine\nbias: l2\n")
    done = mnemic("audit", str(path))
    assert (done.code, done.out) == (2, "")
    assert "mine: has no printed line to judge" in done.err


def test_a_spec_of_ones_own(mnemic, own):
    done = mnemic("audit", own(RIGHT))
    assert (done.code, done.out.splitlines()[0]) == (0, "own (1): agrees (by algebra and numbers)")
    wrong = mnemic("audit", own("W = W + eta*v @ k.T", f'corrected: "{RIGHT}"'))
    assert (wrong.code, wrong.out.splitlines()[0]) == (0, "own (1): differs")
    fails = mnemic("audit", own("W = W + eta*v @ k.T"))
    assert fails.code == 4
    assert "entries that fail: own (1)" in fails.err
    assert mnemic("audit", own("W = W + eta*v @ k.T"), "--json").code == 4


def test_a_word_that_is_neither_paper_nor_spec(mnemic):
    done = mnemic("audit", "mirras")
    assert (done.code, "did you mean 'miras'?" in done.err) == (2, True)
