"""What goes into the segment buffer comes out: order, ends, true final observations, nothing lost."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from tsac.agent.segments import SegmentReplayBuffer, flatten_observation, step_indices

VECTOR = spaces.Box(-np.inf, np.inf, (3,))
ACTION = spaces.Box(-1.0, 1.0, (2,))


class Recorder:
    """Feeds a buffer with numbered transitions as SB3 does, and remembers them."""

    def __init__(self, buffer, n_envs):
        self.buffer, self.n_envs = buffer, n_envs
        self.counter = 0
        self.observation = self.fresh(n_envs)
        self.steps = np.zeros(n_envs, dtype=int)
        self.log = [[] for _ in range(n_envs)]  # per environment: obs, next_obs, action, reward, terminated, end, step

    def fresh(self, n):
        self.counter += n
        return np.arange(self.counter - n, self.counter, dtype=np.float32)[:, None] + np.array(
            [0.0, 0.25, 0.5], np.float32
        )

    def step(self, kinds):
        following = self.fresh(self.n_envs)
        action = np.random.uniform(-1, 1, (self.n_envs, 2)).astype(np.float32)
        reward = np.random.uniform(-1, 1, self.n_envs).astype(np.float32)
        done = np.array([kind != "goes on" for kind in kinds])
        infos = [{"TimeLimit.truncated": kind == "truncated"} for kind in kinds]
        self.buffer.add(self.observation, following, action, reward, done, infos)
        for env, kind in enumerate(kinds):
            self.log[env].append(
                (
                    self.observation[env],
                    following[env],
                    action[env],
                    reward[env],
                    kind == "terminated",
                    done[env],
                    self.steps[env],
                )
            )
        self.steps = np.where(done, 0, self.steps + 1)
        self.observation = np.where(done[:, None], self.fresh(self.n_envs), following)

    def restart(self):
        """The environments are reset in the middle of their episodes, unannounced."""
        for env in range(self.n_envs):
            last = list(self.log[env][-1])
            last[5] = True
            self.log[env][-1] = tuple(last)
        self.steps[:] = 0
        self.observation = self.fresh(self.n_envs)

    def segment(self, env, number, length):
        return [
            np.array(column) for column in zip(*self.log[env][number * length : (number + 1) * length], strict=True)
        ]


def contents(buffer):
    batch = buffer.segments(torch.arange(buffer.n_segments))
    return [field.numpy() for field in batch]


def check(buffer, recorder, segments, length, may_end_unmarked=False):
    """Every stored segment equals what was recorded. ``segments``: (environment, number) per place in the buffer."""
    observations, following, actions, rewards, terminated, ends, steps = contents(buffer)
    for place, (env, number) in enumerate(segments):
        obs, next_obs, action, reward, term, end, step = recorder.segment(env, number, length)
        np.testing.assert_array_equal(observations[place], obs)
        np.testing.assert_array_equal(following[place], next_obs)
        np.testing.assert_array_equal(actions[place], action)
        np.testing.assert_array_equal(rewards[place], reward)
        np.testing.assert_array_equal(terminated[place], term)
        if may_end_unmarked:
            end[-1] = ends[place][-1]
        np.testing.assert_array_equal(ends[place], end)
        np.testing.assert_array_equal(steps[place], step)


@settings(max_examples=60, deadline=None)
@given(
    kinds=st.lists(
        st.lists(st.sampled_from(["goes on"] * 3 + ["terminated", "truncated"]), min_size=2, max_size=2),
        min_size=4,
        max_size=60,
    )
)
def test_segments_hold_the_episodes_in_order(kinds):
    length, capacity = 4, 6
    buffer = SegmentReplayBuffer(capacity * length, VECTOR, ACTION, "cpu", n_envs=2, segment_length=length)
    recorder = Recorder(buffer, 2)
    for kind in kinds:
        recorder.step(kind)
    complete = len(kinds) // length
    places = {}
    for number in range(complete):  # the buffer is a ring of 6 places, filled two at a time
        for env in range(2):
            places[(2 * number + env) % capacity] = (env, number)
    assert buffer.n_segments == len(places)
    assert buffer.size() == len(places) * length
    if places:
        check(buffer, recorder, [places[place] for place in range(len(places))], length)


@pytest.mark.parametrize("when", [1, 3, 4, 6])
def test_a_reset_that_nobody_announced_counts_as_a_truncation(when):
    buffer = SegmentReplayBuffer(80, VECTOR, ACTION, "cpu", n_envs=2, segment_length=4)
    recorder = Recorder(buffer, 2)
    for step in range(8):
        if step == when:
            recorder.restart()
        recorder.step(["goes on", "goes on"])
    order = [(env, number) for number in range(2) for env in range(2)]
    # between two segments no mark is needed: no window crosses over, and the last observation is the true one
    check(buffer, recorder, order, 4, may_end_unmarked=when == 4)


def test_rows_of_final_observations_are_used_again():
    buffer = SegmentReplayBuffer(40, VECTOR, ACTION, "cpu", n_envs=2, segment_length=4)
    recorder = Recorder(buffer, 2)
    sizes = []
    for _ in range(100):
        recorder.step(["terminated", "goes on"])
        sizes.append(buffer._finals.shape[0])
    assert sizes[-1] == sizes[20] == 64


def test_sampling_draws_every_segment():
    buffer = SegmentReplayBuffer(80, VECTOR, ACTION, "cpu", n_envs=2, segment_length=4)
    with pytest.raises(ValueError, match="no complete segment"):
        buffer.sample(2)
    recorder = Recorder(buffer, 2)
    for _ in range(20):
        recorder.step(["goes on", "goes on"])
    batch = buffer.sample(2000)
    counts = np.unique(batch.observations[:, 0, 0].numpy(), return_counts=True)[1]
    assert len(counts) == 10
    assert counts.min() > 140
    buffer.reset()
    assert buffer.size() == 0


def test_step_indices_by_hand():
    ends = torch.tensor([[0, 0, 1, 0, 1, 1, 0], [0, 0, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0, 1]]).bool()
    expected = [[7, 8, 9, 0, 1, 0, 0], [0, 1, 2, 3, 4, 5, 6], [3, 0, 1, 2, 3, 4, 5]]
    assert step_indices(torch.tensor([7, 0, 3]), ends).tolist() == expected


def test_dictionaries_are_flattened_as_sb3_does():
    from stable_baselines3.common.preprocessing import preprocess_obs
    from stable_baselines3.common.torch_layers import CombinedExtractor

    space = spaces.Dict(
        {
            "position": spaces.Box(-1, 1, (2, 2), dtype=np.float64),
            "mode": spaces.Discrete(3),
            "switches": spaces.MultiBinary(2),
            "levels": spaces.MultiDiscrete([2, 3]),
        }
    )
    samples = [space.sample() for _ in range(5)]
    batch = {key: np.stack([sample[key] for sample in samples]) for key in space.spaces}
    tensors = {key: torch.as_tensor(value) for key, value in batch.items()}
    expected = CombinedExtractor(space)(preprocess_obs(tensors, space))
    np.testing.assert_allclose(flatten_observation(batch, space, 5), expected.numpy(), atol=1e-7)


@pytest.mark.parametrize("kind", ["vector", "dictionary"])
def test_normalisation_is_that_of_vecnormalize(kind):
    import gymnasium as gym

    class Task(gym.Env):
        action_space = ACTION
        observation_space = VECTOR if kind == "vector" else spaces.Dict(a=VECTOR, b=spaces.Box(-9, 9, (2,)))

        def reset(self, **options):
            return self.observation_space.sample(), {}

        def step(self, action):
            return self.observation_space.sample(), float(np.random.randn() * 7), False, False, {}

    env = VecNormalize(
        DummyVecEnv([Task] * 2), clip_obs=1.0, clip_reward=0.5, norm_obs_keys=None if kind == "vector" else ["b"]
    )
    buffer = SegmentReplayBuffer(80, env.observation_space, ACTION, "cpu", n_envs=2, segment_length=4)
    env.reset()
    for _ in range(40):
        before = env.get_original_obs()
        env.step(np.zeros((2, 2)))
        after, reward = env.get_original_obs(), env.get_original_reward()
        buffer.add(before, after, np.zeros((2, 2)), reward, np.zeros(2, bool), [{}, {}])
    raw, normal = buffer.segments(torch.arange(4)), buffer.segments(torch.arange(4), env)
    if kind == "vector":
        expected = env.normalize_obs(raw.observations.numpy())
    else:
        parts = {"a": raw.observations[..., :3].numpy(), "b": raw.observations[..., 3:].numpy()}
        expected = np.concatenate([env.normalize_obs(parts)[key] for key in ("a", "b")], axis=-1)
    np.testing.assert_allclose(normal.observations.numpy(), expected, atol=1e-5)
    np.testing.assert_allclose(normal.rewards.numpy(), env.normalize_reward(raw.rewards.numpy()), atol=1e-5)


MEMORY = """
import numpy as np, resource, sys
from gymnasium import spaces
from tsac import SegmentReplayBuffer

def used():
    return int(open('/proc/self/statm').read().split()[1]) * resource.getpagesize()

before = used()
buffer = SegmentReplayBuffer({capacity}, spaces.Box(-1, 1, (376,)), spaces.Box(-1, 1, (17,)), 'cpu', 10)
empty = used()
obs, action = np.ones((10, 376), np.float32), np.ones((10, 17), np.float32)
done, infos = np.zeros(10, bool), [dict()] * 10
for step in range({capacity} // 10):
    done[:] = step % 100 == 49
    buffer.add(obs, obs, action, np.ones(10), done, infos)
assert buffer.size() == {capacity}
print(empty - before, used() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_is_used_as_the_buffer_fills_and_stays_within_the_promise():
    capacity = 400_000  # a fifth of the promise: two million transitions of 376 numbers in 3.4 GB
    script = MEMORY.format(capacity=capacity)
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    empty, full = map(int, run.stdout.split())
    assert empty < 20e6
    assert full < 0.68e9


@pytest.mark.skipif(sys.platform != "linux", reason="memory is reserved at once elsewhere")
def test_a_buffer_may_be_larger_than_the_machine_as_long_as_it_is_not_filled():
    buffer = SegmentReplayBuffer(200_000_000, spaces.Box(-1, 1, (376,)), spaces.Box(-1, 1, (17,)), device="cpu")
    assert buffer._observations.numel() * 4 > 300e9
    for _ in range(20):
        buffer.add(np.ones((1, 376)), np.ones((1, 376)), np.zeros((1, 17)), np.ones(1), np.zeros(1), [{}])
    assert buffer.sample(3).observations.shape == (3, 20, 376)
