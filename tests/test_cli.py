"""Every verb as a person would run it, in a folder of its own."""

import csv
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

SMALL = [
    "--steps", "400", "--evaluate-every", "200", "--evaluation-episodes", "2", "--final-episodes", "3",
    "--checkpoint-every", "200", "--agent.learning-starts", "100", "--agent.actor-starts", "100",
    "--agent.batch-size", "8", "--agent.policy-kwargs.critic_width", "16", "--agent.policy-kwargs.net_arch", "[16, 16]",
]  # fmt: skip


def tsac(*words, cwd, code=0):
    answer = subprocess.run(
        [sys.executable, "-m", "tsac", *map(str, words)],
        cwd=cwd, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=120,
    )  # fmt: skip
    assert answer.returncode == code, answer.stderr
    assert "Traceback" not in answer.stderr
    return answer


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder in which somebody has trained a policy."""
    path = tmp_path_factory.mktemp("place")
    said = tsac("train", "laptop", "--task", "Pendulum-v1", "--seed", "3", *SMALL, cwd=path)
    assert said.stderr == "tsac on Pendulum-v1, seed 3: 400 steps in runs/Pendulum-v1-tsac-3\n"
    assert re.fullmatch(r"runs/Pendulum-v1-tsac-3 is finished: return -\d+\.\d\.\n", said.stdout)
    return path


def test_the_folder_holds_what_it_should(place):
    folder = place / "runs" / "Pendulum-v1-tsac-3"
    facts = json.loads((folder / "run.json").read_text())
    assert facts["spec"]["agent"]["policy_kwargs"] == {"critic_width": 16, "net_arch": [16, 16]}
    assert facts["spec"]["scale"] == "laptop"
    assert facts["versions"]["torch"]
    assert facts["machine"]["cores"]
    assert "--task Pendulum-v1" in facts["command"]
    rows = list(csv.DictReader((folder / "evaluations.csv").open()))
    assert [row["step"] for row in rows] == ["200"] * 2 + ["400"] * 3
    assert all(row["length"] == "200" and row["success"] == "" for row in rows)
    assert {row["step"] for row in csv.DictReader((folder / "train.csv").open())} == {"400"}
    assert list((folder / "tensorboard").iterdir())
    for name in ("policy.safetensors", "policy-best.safetensors"):
        assert (folder / name).is_file()
    assert not [file for file in folder.rglob("*") if file.suffix in (".pkl", ".zip", ".pt", ".pth")]


def test_show(place):
    said = tsac("show", "runs/Pendulum-v1-tsac-3", "--curve", "curve.png", cwd=place).stdout
    assert "tsac on Pendulum-v1, seed 3" in said
    assert "400 of 400 steps" in said
    assert "preset mujoco, published, laptop" in said
    assert re.search(r"400 +│ 3 +│ -\d+", said)
    assert (place / "curve.png").stat().st_size > 5_000


def test_eval_repeats_itself_and_counts_its_episodes(place):
    words = ["eval", "runs/Pendulum-v1-tsac-3", "--episodes", "20"]
    one = tsac(*words, "--processes", "1", "--csv", "one.csv", cwd=place).stdout
    two = tsac(*words, "--processes", "2", "--csv", "two.csv", cwd=place).stdout
    assert re.match(r"Pendulum-v1: return -\d+\.\d over 20 episodes", one)
    assert one.splitlines()[0] == two.splitlines()[0]
    assert (place / "one.csv").read_text() == (place / "two.csv").read_text()
    assert len((place / "one.csv").read_text().splitlines()) == 21


def test_a_film_of_a_task_that_cannot_be_drawn_says_what_is_missing(place):
    said = tsac("eval", "runs/Pendulum-v1-tsac-3", "--episodes", "1", "--video", "clip.mp4", cwd=place, code=2).stderr
    assert "pygame" in said


def test_export_acts_as_the_policy_does(place):
    onnxruntime = pytest.importorskip("onnxruntime")
    from tsac import TSAC

    said = tsac("export", "runs/Pendulum-v1-tsac-3", "policy.onnx", cwd=place).stdout
    assert "on 1,000 observations" in said
    session = onnxruntime.InferenceSession(str(place / "policy.onnx"))
    facts = session.get_modelmeta().custom_metadata_map
    assert json.loads(facts["action"]) == {"shape": [1], "low": [-2.0], "high": [2.0]}
    assert json.loads(facts["observation"])["high"] == [1.0, 1.0, 8.0]
    model = TSAC.load(place / "runs" / "Pendulum-v1-tsac-3" / "policy.safetensors")
    observations = np.random.default_rng(0).uniform(-1.0, 1.0, (7, 3)).astype(np.float32)
    expected, _ = model.predict(observations, deterministic=True)
    np.testing.assert_allclose(session.run(None, {"observation": observations})[0], expected, atol=1e-5)


def test_resume_of_a_finished_run_says_so(place):
    said = tsac("resume", "runs/Pendulum-v1-tsac-3", cwd=place).stdout
    assert said == ("runs/Pendulum-v1-tsac-3 is finished; `tsac show runs/Pendulum-v1-tsac-3` tells what came out.\n")


def test_an_existing_folder_is_not_overwritten(place):
    said = tsac("train", "laptop", "--task", "Pendulum-v1", "--seed", "3", cwd=place, code=2).stderr
    assert "exists already and is not overwritten" in said
    assert "tsac resume" in said


def test_lists(place):
    assert tsac("tasks", cwd=place).stdout.startswith("mujoco (5)\n  Ant-v4\n  HalfCheetah-v4\n")
    assert "metaworld: ml1; tsac" in tsac("presets", cwd=place).stdout
    assert "segment_length: 125" in tsac("presets", "metaworld", cwd=place).stdout
    assert "tsac    Transformer-based Soft Actor-Critic\n" in tsac("algorithms", cwd=place).stdout
    assert re.fullmatch(r"tsac \d+\.\d+\.\d+\n", tsac("--version", cwd=place).stdout)


def test_help(place):
    assert "tsac train" in tsac("--help", cwd=place).stdout
    assert "--agent.gamma" not in tsac("train", "--help", cwd=place).stdout
    assert "--agent.gamma FLOAT" in tsac("train", "mujoco", "--task", "Hopper-v4", "--help", cwd=place).stdout
    for verb in ("resume", "eval", "show", "export", "tasks", "presets", "algorithms"):
        assert f"tsac {verb}" in tsac(verb, "--help", cwd=place).stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["trian"], "There is no verb 'trian'. Did you mean 'train'?"),
        (["train", "mujocoo", "--task", "Hopper-v4"], "There is no preset 'mujocoo'. Did you mean 'mujoco'?"),
        (["train", "mujoco"], "Choose a task with --task"),
        (["train", "laptop", "--task", "Hoper-v4"], "There is no task 'Hoper-v4'. Did you mean Hopper-v4"),
        (
            ["train", "laptop", "--task", "Pendulum-v1", "--algorithm", "tsca"],
            "There is no algorithm 'tsca'. Did you mean 'tsac'?",
        ),
        (
            ["train", "laptop", "--task", "Pendulum-v1", "--agent.gama", "0.9"],
            "There is no setting --agent.gama. Did you mean '--agent.gamma'?",
        ),
        (["train", "laptop", "--task", "Pendulum-v1", "--agent.gamma", "high"], "could not convert string to float"),
        (["train", "laptop", "--task", "Pendulum-v1", "--agent.gamma", "1.5"], "gamma must be between 0 and 1"),
        (["train", "laptop", "--task", "Pendulum-v1", "--agent.max-length", "40"], "must fit in a segment (20 steps)"),
        (["train", "laptop", "--task", "Pendulum-v1", "--agent.buffer-size", "500"], "must fit in the replay buffer"),
        (
            ["train", "laptop", "--task", "Pendulum-v1", "--agent.policy-kwargs.critic_with", "8"],
            "Did you mean 'critic_width'?",
        ),
        (["train", "laptop", "--task", "CartPole-v1"], "needs continuous actions"),
        (["train", "laptop", "--task", "this:Foo-v0"], "never imported for its name"),
        (["train", "laptop", "--task", "a b"], "There is no task 'a b'"),
        (["train", "laptop", "--task", "Pendulum-v1", "--disturbances.observation-noise", "nan"], "must be a number"),
        (["train", "laptop", "--task", "Pendulum-v1", "--disturbances.hidden", "0.9"], "Nothing is left"),
        (["train", "laptop", "--task", "Pendulum-v1", "--algorithm", "sac", "--agent.gamma", "7"], "between 0 and 1"),
        (["train", "laptop", "--task", "Pendulum-v1", "--algorithm", "sac", "--agent.train-freq", "0"], "at least 1"),
        (["train", "laptop", "--task", "Pendulum-v1", "--preset", "metaworld"], "There is no setting --preset"),
        (["train", "laptop", "--task", "Pendulum-v1", "--wandb"], "needs a package"),
        (["resume", "."], "is not the folder of a run"),
        (["eval", "nothing"], "is not the folder of a run"),
    ],
)
def test_mistakes_are_answered_with_a_sentence_before_anything_starts(words, said, tmp_path, capsys, monkeypatch):
    from tsac import cli

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["tsac", *words])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    answer = capsys.readouterr().err
    assert answer.startswith("tsac: ")
    assert said in answer
    assert answer.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_yaml_file_is_a_preset_of_ones_own(place):
    (place / "own.yaml").write_text(
        "preset: mujoco\nscale: laptop\ntask: Pendulum-v1\nsteps: 100\nfinal_episodes: 1\nagent: {gamma: 0.5}\n"
    )
    tsac("train", "own.yaml", "--folder", "own", "--agent.tau", "0.5", cwd=place)
    spec = json.loads((place / "own" / "run.json").read_text())["spec"]
    assert (spec["steps"], spec["agent"]["gamma"], spec["agent"]["tau"]) == (100, 0.5, 0.5)


def test_a_run_stops_when_its_time_is_over_and_goes_on_later(tmp_path):
    words = ["train", "laptop", "--task", "Pendulum-v1", *SMALL, "--steps", "1000000", "--folder", "timed"]
    said = tsac(*words, "--minutes", "0.05", cwd=tmp_path, code=75).stderr
    assert "go on with `tsac resume timed`" in said
    assert 0 < steps_done(tmp_path) < 1_000_000
    before = steps_done(tmp_path)
    tsac("resume", "timed", "--minutes", "0.05", cwd=tmp_path, code=75)
    assert steps_done(tmp_path) > before
    assert "--minutes" in tsac("resume", "timed", "--minutes", "-1", cwd=tmp_path, code=2).stderr


def steps_done(path):
    return max(int(file.stem) for file in (path / "timed" / "checkpoint").glob("*.json"))
