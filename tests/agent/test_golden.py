"""The published implementation's recorded updates, reproduced to rounding."""

import subprocess
import sys
from pathlib import Path

import golden
import numpy as np
import pytest

RECORDING = Path(__file__).parents[1] / "data" / "golden_hard_min.npz"


def test_every_recorded_quantity_is_reproduced():
    differences = golden.compare(RECORDING)
    assert {"critic loss", "critic gradient norm", "actor loss", "entropy", "temperature parameter"} <= set(differences)
    assert max(differences.values()) <= golden.TOLERANCE


@pytest.mark.parametrize("quantity", ["critic_loss", "entropy", "critic2_after/output_layer.weight", "policy_loss"])
def test_the_script_fails_where_one_recorded_number_is_another(tmp_path, quantity):
    with np.load(RECORDING) as file:
        arrays = dict(file)
    arrays[quantity] = arrays[quantity] * (1 + 1e-6)
    np.savez(tmp_path / "altered.npz", **arrays)
    script = Path(golden.__file__)
    run = subprocess.run(
        [sys.executable, script, tmp_path / "altered.npz"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    assert run.stdout.count("MISSED") >= 1


def test_the_script_says_how_it_is_used():
    run = subprocess.run([sys.executable, golden.__file__, "nowhere.npz"], capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "usage" in run.stderr
