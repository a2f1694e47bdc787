"""The short benchmark runs, and an update is not slower than the plain version of it."""

import json
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parents[1] / "benchmarks" / "bench.py"


def test_an_update_is_not_slower_than_the_plain_one(tmp_path):
    command = [
        sys.executable,
        "-W",
        "ignore",
        str(BENCH),
        "--quick",
        "--threads",
        "1",
        "--json",
        str(tmp_path / "b.json"),
    ]
    answer = subprocess.run(command, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    results = json.loads((tmp_path / "b.json").read_text())
    assert {"commit", "versions", "machine", "threads", "rows"} <= results.keys()
    assert "plain / ours" in answer.stdout
