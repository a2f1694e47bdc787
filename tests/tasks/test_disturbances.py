"""Disturbances do what they say, repeat with the seed, and leave the task's own randomness alone."""

import numpy as np
import pytest

from tsac.tasks import make_task
from tsac.tasks.disturbances import ActionNoise, FalseEnds


def layers(env):
    while env is not env.unwrapped:
        yield env
        env = env.env


def rollout(seed=0, steps=400, **options):
    env = make_task("Pendulum-v1", seed, **options)
    observations, ends, falses = [env.reset()[0]], 0, 0
    for _ in range(steps):
        observation, _, terminated, truncated, info = env.step(np.zeros(1, np.float32))
        observations.append(observation)
        ends += terminated
        falses += info.get("false_end", False)
        if terminated or truncated:
            observations.append(env.reset()[0])
    return np.array(observations), ends, falses


@pytest.mark.parametrize(
    "options",
    [
        {"observation_noise": 0.05},
        {"action_noise": 0.05},
        {"false_ends": 0.1},
        {"false_ends": 0.1, "false_ends_per": "step"},
    ],
)
def test_disturbances_repeat_with_their_seed(options):
    first, again, other = (rollout(seed, **options)[0] for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert first.shape != other.shape or not np.array_equal(first, other)


def test_observation_noise_has_its_deviation_and_leaves_the_task_alone():
    noise = rollout(observation_noise=0.05)[0] - rollout()[0]
    assert noise.std() == pytest.approx(0.05, rel=0.1)
    assert noise.mean() == pytest.approx(0.0, abs=0.01)
    assert abs(np.corrcoef(noise[:-1, 0], noise[1:, 0])[0, 1]) < 0.2  # fresh at every step


def test_action_noise_is_relative_to_the_range_and_stays_inside_it():
    env = make_task("Pendulum-v1", 0, action_noise=0.05)
    env.reset()
    taken = []
    disturbed = next(layer for layer in layers(env) if isinstance(layer, ActionNoise)).env
    step = disturbed.step
    disturbed.step = lambda action: (taken.append(action), step(action))[1]
    for action in [0.0] * 300 + [2.0] * 50:
        env.step(np.array([action], np.float32))
    taken = np.array(taken)
    assert taken[:300].std() == pytest.approx(0.05 * 2.0, rel=0.15)  # torques are in [-2, 2]
    assert taken[300:].max() <= 2.0
    assert taken[300:].min() < 2.0


def test_false_ends_per_step():
    _, ends, falses = rollout(steps=2000, false_ends=0.1, false_ends_per="step")
    assert ends == falses
    assert falses == pytest.approx(200, abs=50)


def test_false_ends_per_episode():
    env = make_task("Pendulum-v1", 0, false_ends=0.3)
    lengths = []
    for _ in range(100):
        env.reset()
        length, done = 0, False
        while not done:
            _, _, terminated, truncated, _ = env.step(np.zeros(1, np.float32))
            length, done = length + 1, terminated or truncated
        lengths.append(length)
    cut = [length for length in lengths if length < 200]
    assert 18 <= len(cut) <= 42
    assert min(cut) < 60
    assert max(cut) > 140  # anywhere in the episode


def test_false_ends_refuse_another_word():
    with pytest.raises(ValueError, match='per "step" or per "episode"'):
        FalseEnds(make_task("Pendulum-v1"), 0.1, "day")


@pytest.mark.parametrize(("task", "size", "kept"), [("Walker2d-v4", 17, 9), ("Hopper-v4", 11, 5), ("Ant-v4", 27, 13)])
def test_the_last_half_of_the_observation_is_removed(task, size, kept):
    full, half = make_task(task, 0), make_task(task, 0, hidden=0.5)
    assert full.observation_space.shape == (size,)
    assert half.observation_space.shape == (kept,)
    np.testing.assert_array_equal(full.reset()[0][:kept], half.reset()[0])


@pytest.mark.parametrize(("task", "length"), [("tsac/BoxPushingDense-v0", 100), ("metaworld/reach-v3", 500)])
def test_false_ends_fall_inside_the_episodes_of_tasks_that_limit_themselves(task, length):
    env = make_task(task, false_ends=1.0)
    falses = next(layer for layer in layers(env) if isinstance(layer, FalseEnds))
    assert falses.length == length
