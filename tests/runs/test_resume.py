"""An interrupted run ends as one that was never interrupted, however it was interrupted."""

import os
import random
import shutil
import signal
import subprocess
import time

import pytest
from small import AGENTS, assert_same_run, create, finish, processes, small_spec, start

from tsac.agent import files
from tsac.runs import checkpoints
from tsac.runs.folder import FolderError, RunFolder
from tsac.runs.progress import Progress
from tsac.runs.training import train

STEP_INDEX = {"step_index": ["actor"], "episode_length": 200}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Runs that nobody interrupted, made when they are asked for."""
    made = {}

    def run(algorithm, **changes):
        key = (algorithm, repr(changes))
        if key not in made:
            made[key] = tmp_path_factory.mktemp(algorithm) / "run"
            create(made[key], small_spec(algorithm, **changes))
            finish(made[key])
        return made[key]

    return run


@pytest.mark.parametrize("algorithm", ["tsac", "sac"])
def test_twenty_kills_at_random_moments_change_nothing(algorithm, undisturbed, tmp_path):
    path = tmp_path / "run"
    create(path, small_spec(algorithm, steps=3000))
    moments = random.Random(algorithm)
    kills = 0
    while kills < 20:
        process = start(path)
        process.join(moments.uniform(0.3, 1.2))
        if process.exitcode is not None:
            break
        process.kill()
        process.join()
        kills += 1
    assert kills >= 12  # it came to its end before, that is
    finish(path)
    assert_same_run(path, undisturbed(algorithm, steps=3000))


@pytest.mark.parametrize("algorithm", ["tsac", "ppo"])
@pytest.mark.parametrize("moment", ["after a chapter", "by a signal as a chapter ends"])
def test_running_statistics_go_on_as_they_were(algorithm, moment, undisturbed, tmp_path, monkeypatch):
    """The reset at the start of a chapter counts into them once, however the chapter begins."""
    from tsac.runs.training import Interrupted, Training

    changes = {"normalization": {"observations": True, "rewards": True}, "steps": 600}
    path = tmp_path / "run"
    spec = small_spec(algorithm, **changes)
    folder = create(path, spec)
    training = Training(folder, spec, Progress("", 1))
    if moment == "after a chapter":
        begun = training._begin_chapter
        monkeypatch.setattr(training, "_begin_chapter", lambda: begun() if training.chapter < 2 else end())

        def end():
            raise Interrupted  # as if killed: nothing is written any more

        stop = lambda: False  # noqa: E731
    else:
        stop = lambda: training.chapter == 2  # noqa: E731
    with pytest.raises(Interrupted):
        training.go(stop)
    training.close()
    finish(path)
    assert_same_run(path, undisturbed(algorithm, **changes))


def test_the_final_evaluation_is_of_the_final_policy(undisturbed, tmp_path):
    """Killed between the last checkpoint and the policy's own file."""
    path = tmp_path / "run"
    shutil.copytree(undisturbed("tsac"), path)
    older = files.read(path / "policy.safetensors")
    older["state"]["parameters"]["policy"]["actor.mean.0.weight"] += 1.0
    files.write(path / "policy.safetensors", older)
    rows = (path / "evaluations.csv").read_text().splitlines(keepends=True)
    (path / "evaluations.csv").write_text("".join(row for row in rows if not row.startswith("1200,")))
    finish(path)
    assert_same_run(path, undisturbed("tsac"))


@pytest.mark.parametrize("die_at", [7, 9, 11, 13, 17, 18, 22, 24, 26])
def test_a_kill_while_a_file_is_being_written_changes_nothing(die_at, undisturbed, tmp_path):
    path = tmp_path / "run"
    create(path, small_spec("tsac"))
    process = start(path, die_at)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    finish(path)
    assert_same_run(path, undisturbed("tsac"))
    assert not [name for name in os.listdir(path / "checkpoint") if name.startswith(".")]


@pytest.mark.parametrize(
    ("algorithm", "changes"),
    [
        *((algorithm, {}) for algorithm in AGENTS),
        ("tsac", {"environments": 3, "processes": True, "normalization": {"observations": True, "rewards": True}}),
        ("sac", {"environments": 2, "normalization": {"observations": True}, "agent": {"n_steps": 3}}),
        ("tsac", {"disturbances": {"observation_noise": 0.1, "false_ends": 0.5}, "agent": {"tau": 0.1}}),
        ("tsac", {"agent": {"learning_rate": [1e-2, 1e-4], "policy_kwargs": STEP_INDEX}}),
    ],
)  # fmt: skip
def test_a_signal_stops_after_the_iteration_and_nothing_is_lost(algorithm, changes, undisturbed, tmp_path):
    path = tmp_path / "run"
    spec = small_spec(algorithm, **changes)
    create(path, spec)
    steps = []
    for moment in (0.5, 0.9, 0.7):
        process = start(path)
        process.join(moment)
        if process.exitcode is None:
            os.kill(process.pid, random.choice([signal.SIGTERM, signal.SIGINT]))
        process.join(120)
        # The last three: before training had begun, and there was anything to keep.
        assert process.exitcode in (0, 75, 1, -signal.SIGTERM, -signal.SIGINT)
        steps.append(checkpoints.latest_step(path / "checkpoint"))
    finish(path)
    assert_same_run(path, undisturbed(algorithm, **changes))


def test_a_stop_in_the_middle_of_a_chapter_is_a_checkpoint(undisturbed, tmp_path):
    """A task of many steps in a chapter: the checkpoint is where the signal came, not where a chapter ends."""
    path = tmp_path / "run"
    changes = {"checkpoint_every": 100_000, "steps": 1500}
    create(path, small_spec("tsac", **changes))
    process = start(path)
    while not (path / "train.csv").exists() or len((path / "train.csv").read_text().splitlines()) < 4:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGTERM)
    process.join(120)
    assert process.exitcode == 75
    assert 300 <= checkpoints.latest_step(path / "checkpoint") < 1500
    finish(path)
    assert_same_run(path, undisturbed("tsac", **changes))


@pytest.mark.parametrize("damage", ["cut in half", "a flipped byte", "a flipped byte in the replay", "gone"])
def test_a_damaged_checkpoint_is_noticed_and_the_one_before_is_used(damage, undisturbed, tmp_path, capsys):
    path = tmp_path / "run"
    shutil.copytree(undisturbed("tsac"), path)
    latest = sorted((path / "checkpoint").glob("state-*"))[-1]
    if damage == "cut in half":
        latest.write_bytes(latest.read_bytes()[: latest.stat().st_size // 2])
    elif damage == "gone":
        latest.unlink()
    else:
        file = latest if "replay" not in damage else sorted((path / "checkpoint").glob("replay-*"))[-1]
        data = bytearray(file.read_bytes())
        data[len(data) * 2 // 3] ^= 1
        file.write_bytes(data)
    folder = RunFolder(path)
    (path / "policy.safetensors").unlink()
    train(folder, folder.read_spec(), Progress("", 1))
    assert "damaged" in capsys.readouterr().err
    assert_same_run(path, undisturbed("tsac"))


def test_a_second_process_is_refused(tmp_path):
    path = tmp_path / "run"
    folder = create(path, small_spec("tsac"))
    other = RunFolder(path)
    with folder.locked(), pytest.raises(FolderError, match="Another process"):
        train(other, other.read_spec(), Progress("", 1))


def test_what_others_put_among_the_checkpoints_stays(tmp_path):
    folder = create(tmp_path / "run", small_spec("tsac", steps=200, final_episodes=0))
    (folder.path / "checkpoint" / ".ipynb_checkpoints").mkdir(parents=True)
    (folder.path / "checkpoint" / "notes.txt").write_text("mine")
    train(folder, folder.read_spec(), Progress("", 1))
    assert (folder.path / "checkpoint" / "notes.txt").read_text() == "mine"


def test_a_folder_whose_creation_was_killed_is_made_again(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".run.json.123").write_text("{")
    folder = create(tmp_path / "run", small_spec("tsac", steps=200, final_episodes=0))
    train(folder, folder.read_spec(), Progress("", 1))


def test_a_folder_is_never_overwritten(tmp_path):
    create(tmp_path / "run", small_spec("tsac"))
    with pytest.raises(FolderError, match="exists already"):
        create(tmp_path / "run", small_spec("tsac"))


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_stops_the_run_and_leaves_the_last_checkpoint_whole(undisturbed, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=280k", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("no disk can be mounted here")
    try:
        create(disk / "run", small_spec("tsac"))
        process = processes.Process(target=through_the_command_line, args=(str(disk / "run"), str(tmp_path / "said")))
        process.start()
        process.join()
        assert process.exitcode == 1
        said = (tmp_path / "said").read_text()
        assert "The disk is full" in said
        assert "Traceback" not in said
        step = checkpoints.latest_step(disk / "run" / "checkpoint")
        assert step
        shutil.copytree(disk / "run", tmp_path / "run")
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    assert checkpoints.read_latest(tmp_path / "run" / "checkpoint", pytest.fail).manifest.step == step
    finish(tmp_path / "run")
    assert_same_run(tmp_path / "run", undisturbed("tsac"))


def through_the_command_line(path, said):
    import sys

    from tsac import cli

    sys.stderr = open(said, "w")  # noqa: SIM115 - until the process ends
    sys.exit(cli.run(cli.resume, [path]))


def test_time_of_a_checkpoint_does_not_grow_with_the_buffer(tmp_path):
    """At 10,000 and at 200,000 stored transitions."""
    from tsac.runs.training import Training

    spec = small_spec(
        "tsac", steps=10**6, checkpoint_every=10**6, agent={"buffer_size": 10**6, "learning_starts": 10**7}
    )
    training = Training(create(tmp_path / "run", spec), spec, Progress("", 1))
    model, seconds = training.model, {}
    try:
        for stored in (10_000, 200_000):
            fill(model, stored - model.replay_buffer.size())
            training._checkpoint()
            times = []
            for _ in range(9):
                fill(model, 1_000)
                before = time.perf_counter()
                training._checkpoint()
                times.append(time.perf_counter() - before)
            seconds[stored] = sorted(times)[len(times) // 2]
    finally:
        training.close()
    print(seconds)
    assert seconds[200_000] < 1.5 * seconds[10_000]


def fill(model, count):
    import numpy as np

    for _ in range(count):
        observation = np.random.standard_normal((1, 3)).astype(np.float32)
        action, done = np.zeros((1, 1), np.float32), np.zeros(1, dtype=bool)
        model.replay_buffer.add(observation, observation, action, np.ones(1), done, [{}])
        model.num_timesteps += 1
