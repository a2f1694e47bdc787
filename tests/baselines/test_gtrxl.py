"""The Gated Transformer-XL: what it sees, what it remembers, and a task that cannot be solved without."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

from tsac.baselines.gated_transformer import Gate, GatedTransformer
from tsac.baselines.gtrxl import GTrXL


def network(memory_length=12, layers=3):
    torch.manual_seed(0)
    made = GatedTransformer(5, layers=layers, heads=2, size=8, memory_length=memory_length).double()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return made


def in_pieces(made, observations, starts, length):
    memory = made.empty_memory(len(observations))
    memory = memory._replace(content=memory.content.double())
    outputs = []
    for first in range(0, observations.shape[1], length):
        piece = slice(first, first + length)
        out, memory = made(observations[:, piece], memory, starts[:, piece])
        outputs.append(out)
    return torch.cat(outputs, dim=1)


@pytest.mark.parametrize("length", [1, 3, 4])
def test_with_its_memory_it_answers_as_if_it_saw_the_whole_sequence(length):
    made = network(memory_length=12)
    observations, starts = torch.randn(2, 12, 5).double(), torch.zeros(2, 12, dtype=torch.bool)
    starts[:, 0] = True
    whole = in_pieces(made, observations, starts, 12)
    torch.testing.assert_close(in_pieces(made, observations, starts, length), whole)


@pytest.mark.parametrize("length", [1, 4])
def test_nothing_is_seen_of_the_episode_before(length):
    made = network()
    observations, starts = torch.randn(2, 12, 5).double(), torch.zeros(2, 12, dtype=torch.bool)
    starts[0, 5] = starts[1, 7] = True
    outputs = in_pieces(made, observations, starts, length)
    changed = observations.clone()
    changed[0, :5] += 1.0
    changed[1, :7] += 1.0
    different = in_pieces(made, changed, starts, length)
    torch.testing.assert_close(different[0, 5:], outputs[0, 5:])
    torch.testing.assert_close(different[1, 7:], outputs[1, 7:])
    assert (different[0, :5] - outputs[0, :5]).abs().min() > 1e-8


def test_nothing_is_seen_of_the_future_or_beyond_the_memory():
    made = network(memory_length=3, layers=1)
    observations, starts = torch.randn(2, 12, 5).double(), torch.zeros(2, 12, dtype=torch.bool)
    outputs = in_pieces(made, observations, starts, 4)
    changed = observations.clone()
    changed[:, 6] += 1.0
    different = in_pieces(made, changed, starts, 4)
    moved = (different - outputs).abs().amax(dim=(0, 2)) > 1e-9
    assert moved.tolist() == [6 <= t <= 9 for t in range(12)]


def test_the_gate_lets_its_input_through_at_first():
    x, y = torch.randn(100, 8), torch.randn(100, 8)
    gated = Gate(8)(x, y)
    assert (gated - x).norm() < 0.5 * (gated - y).norm()


class Cue(gym.Env):
    """A cue at the first step; after ``delay`` steps without it, the action's sign should be the cue's."""

    delay = 20

    def __init__(self):
        self.observation_space = spaces.Box(-1.0, 1.0, (2,))
        self.action_space = spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cue, self.steps = self.np_random.choice([-1.0, 1.0]), 0
        return np.array([self.cue, 0.0], np.float32), {}

    def step(self, action):
        self.steps += 1
        over = self.steps > self.delay
        reward = float(self.cue * np.sign(action[0])) if over else 0.0
        return np.array([0.0, float(self.steps == self.delay)], np.float32), reward, over, False, {}


def test_it_remembers_a_cue_for_twenty_steps():
    """Without a memory nothing but chance is to be had: the mean reward is 0. Here it is close to 1."""
    torch.manual_seed(0)
    model = GTrXL(
        "MlpPolicy", make_vec_env(Cue, 16, seed=0), seed=1, n_steps=84, sequence_length=21, batch_size=336, n_epochs=4,
        learning_rate=1e-3, ent_coef=0.001, device="cpu",
        policy_kwargs={"layers": 1, "heads": 2, "head_size": 16, "memory_length": 24},
    )  # fmt: skip
    score = 0.0
    while model.num_timesteps < 150_000 and score < 0.9:
        model.learn(8 * 84 * 16, reset_num_timesteps=False)
        score, _ = evaluate_policy(model, make_vec_env(Cue, 16, seed=7), n_eval_episodes=64)
    print(model.num_timesteps, score)
    assert score >= 0.9


def test_without_a_memory_the_cue_is_lost():
    model = PPO("MlpPolicy", make_vec_env(Cue, 16, seed=0), n_steps=84, batch_size=336, seed=0, device="cpu")
    model.learn(30_000)
    score, _ = evaluate_policy(model, make_vec_env(Cue, 16, seed=7), n_eval_episodes=200)
    assert abs(score) < 0.35


def test_pieces_of_the_rollout_are_evaluated_as_they_were_collected():
    """Before the first update, log-probabilities and values of the sequences are those of the collection."""
    model = GTrXL(
        "MlpPolicy", make_vec_env("Pendulum-v1", 3, seed=0), n_steps=60, sequence_length=12, batch_size=36, seed=0,
        policy_kwargs={"layers": 2, "memory_length": 20}, device="cpu",
    )  # fmt: skip
    _, callback = model._setup_learn(10_000)
    for _ in range(4):  # beyond the end of an episode
        model.collect_rollouts(model.env, callback, model.rollout_buffer, 60)
    data = model._sequences()
    assert data["starts"].any()
    means, values, _ = model.policy.read(model._features(data["observations"]), data["memory"], data["starts"])
    torch.testing.assert_close(values, data["values"], rtol=1e-4, atol=1e-5)
    distribution = model.policy.distribution.proba_distribution(means.flatten(0, 1), model.policy.log_std)
    log_probs = distribution.log_prob(data["actions"].flatten(0, 1))
    torch.testing.assert_close(log_probs, data["log_probs"].flatten(), rtol=1e-4, atol=1e-5)


def test_after_a_stop_it_starts_anew():
    """The environments have gone on by a step that was not kept: nothing of before may be remembered."""
    model = GTrXL("MlpPolicy", "Pendulum-v1", n_steps=20, sequence_length=4, batch_size=8, device="cpu")
    model.learn(20)
    assert model._memory is not None

    class Stop(BaseCallback):
        def _on_step(self):
            return self.num_timesteps < 27

    model.learn(20, callback=Stop(), reset_num_timesteps=False)
    assert model._memory is None
    model.learn(20, reset_num_timesteps=False)
    assert model._memory.own.tolist() == [20]


def test_a_minibatch_of_one_step_is_no_number_to_divide_by():
    model = GTrXL("MlpPolicy", "Pendulum-v1", n_steps=9, sequence_length=1, batch_size=4, n_epochs=1, device="cpu")
    model.learn(9)
    assert all(parameter.isfinite().all() for parameter in model.policy.parameters())


def test_lengths_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="must divide n_steps"):
        GTrXL("MlpPolicy", "Pendulum-v1", n_steps=100, sequence_length=32)
