"""The script that a refactoring is held against: what is the same, and what has changed."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "scripts" / "fingerprint.py"


def run(command: str, file: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, str(SCRIPT), command, str(file), "linear-attention"]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_a_part_that_changed_is_named(tmp_path: Path) -> None:
    file = tmp_path / "before.json"
    assert run("write", file).returncode == 0
    known = json.loads(file.read_text())
    file.write_text(json.dumps({**known, "linear-attention terms": "another"}))
    changed = run("compare", file)
    assert changed.returncode == 1
    assert changed.stdout.splitlines() == ["linear-attention terms", f"1 of {len(known)} differ"]
