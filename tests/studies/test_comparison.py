"""Curves of several runs: what is counted, and what becomes of missing evaluations."""

import json

import numpy as np
import pytest

from tsac.runs.folder import FolderError
from tsac.studies.comparison import compare, read_curves
from tsac.studies.statistics import interquartile_mean


def folder(path, algorithm, seed, totals, success=None):
    path.mkdir(parents=True)
    spec = {"task": "T", "algorithm": algorithm, "seed": seed}
    facts = {"spec": spec, "commit": f"c{seed}", "machine": {"processor": "P", "cores": 2}, "started": "2026-01-02T03"}
    (path / "run.json").write_text(json.dumps(facts))
    rows = ["step,seconds,episode,return,length,success"]
    for number, total in enumerate(totals, 1):
        for episode in range(2):
            flag = "" if success is None else int(success[number - 1] > episode)
            rows.append(f"{1000 * number},{10 * number * (seed + 1)}.0,{episode},{total + episode},50,{flag}")
    (path / "evaluations.csv").write_text("\n".join(rows) + "\n")
    return path


def test_the_interquartile_mean_leaves_out_the_best_and_the_worst_quarter():
    scores = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 100.0]).reshape(8, 1, 1)
    estimate = interquartile_mean(scores)
    assert estimate.centre == pytest.approx(3.5)
    assert estimate.low[0] < 3.5 < estimate.high[0]
    again = interquartile_mean(scores)
    assert (again.low, again.high) == (estimate.low, estimate.high)


def test_seeds_are_compared_where_all_have_been_evaluated(tmp_path):
    folders = [folder(tmp_path / "a", "tsac", 0, [1, 2, 3]), folder(tmp_path / "b", "tsac", 1, [5, 6])]
    curve = read_curves(folders)["T"]["tsac"]
    assert curve.steps.tolist() == [1000, 2000]
    assert curve.seconds.tolist() == [15.0, 30.0]
    assert curve.scores[:, 0].tolist() == [[1.5, 2.5], [5.5, 6.5]]
    assert not curve.of_success


def test_success_counts_where_the_task_knows_it(tmp_path):
    curve = read_curves([folder(tmp_path / "a", "tsac", 0, [1, 2], success=[1, 2])])["T"]["tsac"]
    assert curve.of_success
    assert curve.scores[0, 0].tolist() == [0.5, 1.0]


def test_the_output_holds_all_that_the_figure_is_made_from(tmp_path):
    folders = [folder(tmp_path / name, name, 0, range(7)) for name in ("sac", "tsac")]
    text = compare(folders, tmp_path / "out")
    assert "| T | tsac | 1 | return 4 (4 to 4) | 4 | 70 |" in text.replace("4.5", "4")
    assert (tmp_path / "out" / "curves.png").stat().st_size > 10_000
    said = (tmp_path / "out" / "table.md").read_text()
    assert "2 runs; commit c0; P (2 cores)" in said
    assert "started 2026-01-02" in said
    first = (tmp_path / "out" / "curves.png").read_bytes()
    copies = [tmp_path / "out" / name for name in ("sac", "tsac")]
    assert compare([*copies, *folders], tmp_path / "out") == text
    assert (tmp_path / "out" / "curves.png").read_bytes() == first


def test_runs_that_are_not_to_be_mixed_up_are_kept_apart(tmp_path):
    """Other settings are another curve; the same run twice, or another one of the same name, is refused."""
    one, other = folder(tmp_path / "a", "tsac", 0, [1, 2]), folder(tmp_path / "b", "tsac", 0, [5, 6])
    with pytest.raises(FolderError, match="two runs of tsac on T with seed 0"):
        read_curves([one, other])
    facts = json.loads((other / "run.json").read_text())
    facts["spec"]["agent"] = {"policy_kwargs": {"critic_body": "gru"}}
    (other / "run.json").write_text(json.dumps(facts))
    assert list(read_curves([one, other])["T"]) == ["tsac", "tsac (critic_body gru)"]
    namesake = folder(tmp_path / "c" / "a", "sac", 0, [1, 2])
    with pytest.raises(FolderError, match="another run of that name"):
        compare([one, namesake], tmp_path / "out")
    late = folder(tmp_path / "d", "td3", 1, [1])
    (late / "evaluations.csv").write_text((late / "evaluations.csv").read_text().replace("1000,", "77,"))
    with pytest.raises(FolderError, match="no evaluation at the same step"):
        read_curves([late, folder(tmp_path / "e", "td3", 0, [1])])


def test_a_folder_of_no_run_is_refused(tmp_path):
    with pytest.raises(FolderError, match="not the folder of a run"):
        compare([tmp_path], tmp_path / "out")
