"""Every (algorithm, suite) preset is the paper's, trains on a task of its suite, resumes exactly and evaluates."""

import math

import pytest
from small import assert_same_run, create

from tsac.agent import files
from tsac.presets import preset_algorithms, preset_names, read_preset
from tsac.runs.evaluation import evaluate_file
from tsac.runs.folder import RunFolder
from tsac.runs.progress import Progress
from tsac.runs.spec import preset_values, spec_from
from tsac.runs.training import Interrupted, Training, train
from tsac.tasks import SUITES

TASK = {
    "mujoco": "Hopper-v4",
    "mujoco-soft": "Walker2d-v4",
    "metaworld": "metaworld/reach-v3",
    "box-pushing-dense": "tsac/BoxPushingDense-v0",
    "box-pushing-sparse": "tsac/BoxPushingSparse-v0",
}
ALL = [(name, algorithm) for name in preset_names() for algorithm in preset_algorithms(name)]

# Columns of the paper's tables: samples per iteration, discount, learning rate, batch, buffer, learning starts, hidden
# layers, hidden layers of the critic. None: not in the table, or not of this algorithm.
TABLES = {
    ("metaworld", "ppo"): (16_000, 0.99, 3e-4, 16_000 // 32, None, None, [128, 128], None),
    ("metaworld", "gsde"): (16_000, 0.99, 1e-3, 500, None, None, [128, 128], None),
    ("metaworld", "gtrxl"): (19_200, 0.99, 2e-4, 1024, None, None, None, None),  # the table: 19,000 samples
    ("metaworld", "sac"): (1000, 0.99, 3e-4, 256, 1e6, 10_000, [256, 256], None),
    ("metaworld", "crossq"): (1, 0.99, 3e-4, 256, 1e6, 5000, [256, 256], [2048, 2048]),
    ("box-pushing-dense", "ppo"): (48_000, 1.0, 5e-5, 48_000 // 40, None, None, [512, 512], None),
    ("box-pushing-dense", "gsde"): (80_000, 1.0, 1e-4, 2000, None, None, [256, 256], None),
    ("box-pushing-dense", "gtrxl"): (8000, 0.99, 2e-4, 1000, None, None, None, None),
    ("box-pushing-dense", "sac"): (8, 0.99, 3e-4, 512, 2e6, 1e5, [256, 256], None),
    ("box-pushing-dense", "crossq"): (1, 0.99, 3e-4, 256, 1e6, 5000, [256, 256], [256, 256]),
    ("box-pushing-sparse", "ppo"): (48_000, 1.0, 5e-4, 48_000 // 40, None, None, [512, 512], None),
    ("box-pushing-sparse", "gsde"): (80_000, 1.0, 1e-4, 2000, None, None, [256, 256], None),
    ("box-pushing-sparse", "gtrxl"): (8000, 1.0, 2e-4, 1000, None, None, None, None),
    ("box-pushing-sparse", "sac"): (8, 0.99, 3e-4, 512, 2e6, 1e5, [256, 256], None),
    ("box-pushing-sparse", "crossq"): (1, 0.99, 3e-4, 512, 2e6, 1e5, [256, 256], [2048, 2048]),
    ("mujoco", "sac"): (1, 0.99, 3e-4, 256, 1e6, 5000, [256, 256], None),
    ("mujoco", "td3"): (1, 0.99, 3e-4, 256, 1e6, 5000, [256, 256], None),
    ("mujoco", "crossq"): (1, 0.99, 1e-3, 256, 1e6, 5000, [256, 256], [2048, 2048]),
}
INITIAL_STD = {("metaworld", "gsde"): 0.5, ("box-pushing-dense", "gsde"): 0.05, ("box-pushing-sparse", "gsde"): 0.05}


@pytest.mark.parametrize(("name", "algorithm"), sorted(TABLES))
def test_presets_equal_the_papers_tables(name, algorithm):
    preset = read_preset(name, algorithm=algorithm)
    agent = preset["agent"]
    networks = agent["policy_kwargs"].get("net_arch")
    hidden, critic = (networks["pi"], networks["qf"]) if isinstance(networks, dict) else (networks, None)
    per_environment = agent.get("n_steps") or agent.get("train_freq", 1)
    assert TABLES[name, algorithm] == (
        preset.get("environments", 1) * per_environment, agent["gamma"], agent["learning_rate"], agent["batch_size"],
        agent.get("buffer_size"), agent.get("learning_starts"), hidden, critic,
    )  # fmt: skip
    std = INITIAL_STD.get((name, algorithm), 1.0)
    assert math.exp(agent["policy_kwargs"].get("log_std_init", 0.0)) == pytest.approx(std, rel=1e-5)


@pytest.mark.parametrize(("name", "critic_epochs"), [("mujoco", 3), ("metaworld", 1), ("box-pushing-dense", 1)])
def test_crossq_updates_its_policy_as_often_as_the_tables_say(name, critic_epochs):
    """Epochs of the critic for one of the policy."""
    assert read_preset(name, algorithm="crossq")["agent"]["policy_delay"] == critic_epochs


def test_every_column_of_the_tables_is_compared():
    without = {("metaworld", "td3")}  # in no table
    assert {pair for pair in ALL if pair[1] != "tsac"} - without == set(TABLES)


def few(name, algorithm):
    """The preset, for a few iterations: less experience and fewer updates, everything else as it is."""
    values = preset_values(name, TASK[name], algorithm)
    agent = values["agent"]
    if algorithm in ("ppo", "gsde", "gtrxl"):
        values["environments"] = 2
        length = agent.get("sequence_length", 50)
        agent |= {"n_steps": 2 * length, "batch_size": 2 * length, "n_epochs": 2}
    elif algorithm == "tsac":
        agent |= {"critic_updates": 2, "actor_updates": 1, "rounds": 1, "batch_size": 4, "actor_starts": 0}
        agent |= {"ent_coef_starts": 0, "buffer_size": 10_000}
    else:
        agent |= {"learning_starts": 30, "buffer_size": 1_000, "train_freq": 20, "gradient_steps": 2, "batch_size": 16}
    step = values.get("environments", 1) * (agent.get("n_steps") or agent.get("segment_length") or 20)
    values |= {"steps": 6 * step, "checkpoint_every": 2 * step, "evaluate_every": 3 * step, "log_every": step}
    values |= {"evaluation_episodes": 1, "final_episodes": 1, "device": "cpu", "seed": 1}
    return spec_from(values)


@pytest.mark.parametrize(("name", "algorithm"), ALL)
def test_every_preset_trains_resumes_exactly_and_evaluates(name, algorithm, tmp_path):
    assert TASK[name] in SUITES[read_preset(name, algorithm=algorithm)["suite"]]
    spec = few(name, algorithm)
    whole, halved = create(tmp_path / "whole", spec), create(tmp_path / "halved", spec)
    result = train(whole, spec, Progress("", 1))
    assert math.isfinite(result.total)

    training = Training(halved, spec, Progress("", 1))
    with pytest.raises(Interrupted):  # in the middle of the second chapter
        training.go(lambda: training.model.num_timesteps >= spec.steps // 2)
    training.close()
    train(RunFolder(halved.path), spec, Progress("", 1))
    assert_same_run(whole.path, halved.path)

    (played,) = evaluate_file(whole.policy, spec.task, {}, 1)
    assert played.total == pytest.approx(result.total)
    content = files.read(whole.policy)
    assert content["algorithm"] == algorithm
