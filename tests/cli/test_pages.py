"""``--output``: a page is not written over a spec, and that is said before anything is measured."""

import pytest

SEARCHED = "examples/search/recall"


@pytest.mark.parametrize(
    "command",
    [
        ("leaderboard", "space.yaml", "deltanet"),
        ("ablate", "deltanet"),
        ("effects", SEARCHED),
        ("pareto", SEARCHED),
        ("kernels", "deltanet"),
    ],
    ids=lambda told: told[0],
)
def test_a_page_is_not_written_over_a_spec(mnemic, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mine = tmp_path / "mine.yaml"
    mine.write_text("bias: l2\n", encoding="utf-8")
    done = mnemic(*command, "-o", mine)
    assert done.code == 2
    allowed = ".md or .json" if command[0] == "kernels" else ".md"
    told = f"--output: read '{mine}', allowed a name that ends in {allowed}"
    assert done.err.strip() == f"mnemic: {told}"
    assert mine.read_text(encoding="utf-8") == "bias: l2\n"
    assert list(tmp_path.iterdir()) == [mine]


def test_a_folder_is_not_a_page(mnemic, tmp_path):
    (tmp_path / "page.md").mkdir()
    done = mnemic("pareto", SEARCHED, "-o", tmp_path / "page.md")
    assert (done.code, "which is a folder, allowed a file" in done.err) == (2, True)
