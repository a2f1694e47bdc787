"""All 57 tasks of the paper: made, checked, stepped, seeded; and what is said when one cannot be made."""

import os
import signal
import subprocess
import sys
import time
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check
from stable_baselines3.common.env_checker import check_env as sb3_check

from tsac.tasks import PAPER_TASKS, SUITES, WorkerDiedError, make_task, make_vec

GOALS = [name for name in PAPER_TASKS if name not in SUITES["mujoco"]]
A_FEW = ["Hopper-v4", "metaworld/stick-pull-v3", "tsac/BoxPushingDense-v0"]


def trajectory(name, seed, steps=20, **options):
    env = make_task(name, seed, **options)
    random = np.random.default_rng(0)
    numbers = [env.reset()[0]]
    for _ in range(steps):
        action = random.uniform(env.action_space.low, env.action_space.high).astype(np.float32)
        observation, reward, terminated, truncated, _ = env.step(action)
        numbers += [observation, [reward]]
        if terminated or truncated:
            numbers.append(env.reset()[0])
    numbers.append(env.reset()[0])
    env.close()
    return np.concatenate(numbers)


def test_the_paper_has_57_tasks():
    assert len(set(PAPER_TASKS)) == 57
    assert {name: len(tasks) for name, tasks in SUITES.items()} == {
        "mujoco": 5, "ml1": 50, "ml1-hard": 4, "box-pushing": 2,
    }  # fmt: skip
    assert set(SUITES["ml1-hard"]) <= set(SUITES["ml1"])


@pytest.mark.parametrize("name", PAPER_TASKS)
def test_every_task_passes_both_checkers(name):
    env = make_task(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice, such as on the bounds of observations
        gymnasium_check(env.unwrapped, skip_render_check=True)
        sb3_check(env, skip_render_check=True)
    env.close()


@pytest.mark.parametrize("name", PAPER_TASKS)
def test_same_seed_same_trajectory(name):
    first, again, other = (trajectory(name, seed, 8) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("name", A_FEW)
def test_same_seed_same_trajectory_in_another_process(name):
    script = (
        "import sys; sys.path.insert(0, 'tests/tasks'); from test_tasks import trajectory\n"
        f"print(repr(float(trajectory({name!r}, 3).sum())), trajectory({name!r}, 3).size)"
    )
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=True)
    here = trajectory(name, 3)
    assert run.stdout.split() == [repr(float(here.sum())), str(here.size)]


@pytest.mark.parametrize("name", GOALS)
def test_every_reset_has_a_goal_of_its_own(name):
    env = make_task(name, 0)
    starts = {env.reset()[0].tobytes() for _ in range(10)}
    assert len(starts) == 10
    env.close()


@pytest.mark.parametrize("name", ["metaworld/reach-v3", "metaworld/push-v3"])
def test_the_goal_is_in_the_observation_and_drawn_from_the_whole_range(name):
    env = make_task(name, 0)
    task = env.unwrapped.task
    goals = np.array([(env.reset()[0][-3:], task._target_pos) for _ in range(60)])
    np.testing.assert_allclose(goals[:, 0], goals[:, 1])
    assert len(np.unique(goals[:, 0], axis=0)) == 60
    env.close()


def test_an_episode_of_meta_world_is_truncated_after_500_steps_and_reports_success_as_a_bool():
    env = make_task("metaworld/drawer-close-v3", 0)
    env.reset()
    for step in range(1, 501):
        _, _, terminated, truncated, info = env.step(np.zeros(4, np.float32))
        assert not terminated
        assert isinstance(info["success"], bool)
        assert truncated == (step == 500)


def test_ids_work_through_gymnasium():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ("tsac/BoxPushingTemporalSpatialSparse-v0", "metaworld/window-open-v3"):
            env = gym.make(name)
            env.reset(seed=0)
            env.step(env.action_space.sample())
            env.close()
    assert make_task("Pendulum-v1").observation_space.shape == (3,)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("metaworld/assemly-v3", "metaworld/assembly-v3"),
        ("Hoper-v4", "Hopper-v4"),
        ("hopper", "Hopper-v4"),
        ("BoxPushingDense-v0", "tsac/BoxPushingDense-v0"),
        ("metaworld/window-open-v2", "metaworld/window-open-v3"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_nearest(wrong, right):
    with pytest.raises(ValueError, match=f"no task '{wrong}'. Did you mean .*{right}"):
        make_task(wrong)
    with pytest.raises(ValueError, match="Did you mean"):
        make_vec(wrong, 2)


@pytest.mark.parametrize(
    ("package", "name"),
    [("metaworld", "metaworld/reach-v3"), ("mujoco", "Hopper-v4"), ("mujoco", "tsac/BoxPushingDense-v0")],
)
def test_a_missing_package_is_answered_with_the_command(package, name):
    script = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from tsac.tasks import make_task\n"
        f"try: make_task({name!r})\nexcept ModuleNotFoundError as error: print(error)"
    )
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=False)
    assert 'pip install "tsac[tasks]"' in run.stdout, run.stderr
    assert package in run.stdout.lower()


def test_vector_environments_differ_and_repeat():
    first, second = (make_vec("metaworld/reach-v3", 3, seed=5) for _ in range(2))
    starts = first.reset()
    np.testing.assert_array_equal(starts, second.reset())
    assert len(np.unique(starts, axis=0)) == 3
    np.testing.assert_array_equal(starts[1], make_task("metaworld/reach-v3", 6).reset()[0])


def test_processes_and_one_process_give_the_same():
    one, many = (make_vec("Hopper-v4", 2, seed=5, processes=processes) for processes in (False, True))
    np.testing.assert_array_equal(one.reset(), many.reset())
    for _ in range(30):
        actions = np.stack([one.action_space.sample() for _ in range(2)])
        for ours, theirs in zip(one.step(actions)[:3], many.step(actions)[:3], strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6)  # SB3 keeps rewards in single precision here only
    many.close()


@pytest.mark.parametrize("when", ["idle", "stepping"])
def test_a_worker_that_dies_is_named_within_seconds(when):
    env = make_vec("Pendulum-v1", 3, seed=0, processes=True)
    env.reset()
    if when == "stepping":
        env.step_async(np.zeros((3, 1), np.float32))
    os.kill(env.processes[1].pid, signal.SIGKILL)
    env.processes[1].join()
    start = time.monotonic()

    def use():
        if when == "stepping":
            env.step_wait()  # succeeds where the worker had answered already
        env.step(np.zeros((3, 1), np.float32))

    with pytest.raises(WorkerDiedError, match=r"worker 1 of 3 of task Pendulum-v1 died \(exit code -9\)"):
        use()
    env.close()
    assert time.monotonic() - start < 5
