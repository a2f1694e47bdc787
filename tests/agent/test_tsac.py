"""T-SAC as a person uses it: it works where SB3's algorithms work, it learns, and it never learns from nonsense."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback, CheckpointCallback, EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import configure
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize

import tsac.agent.tsac
from tsac import TSAC
from tsac.agent.segments import SegmentBatch

SMALL = {
    "batch_size": 8,
    "segment_length": 8,
    "max_length": 6,
    "critic_updates": 4,
    "actor_updates": 2,
    "learning_starts": 16,
    "actor_starts": 32,
    "policy_kwargs": {"net_arch": [16], "critic_width": 16, "critic_layers": 2},
    "device": "cpu",
}


def agent(env="Pendulum-v1", **options):
    policy_kwargs = {**SMALL["policy_kwargs"], **options.pop("policy_kwargs", {})}
    return TSAC("MlpPolicy", env, **{**SMALL, "seed": 0, **options, "policy_kwargs": policy_kwargs})


def weights(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.policy.parameters()])


class Task(gym.Env):
    """One step away from any space: observations are samples, episodes end now and then."""

    def __init__(self, observation_space=None, action_space=None, poison=None, at=40):
        self.observation_space = observation_space or spaces.Box(-1.0, 1.0, (3,))
        self.action_space = action_space or spaces.Box(-1.0, 1.0, (2,))
        self.poison, self.at, self.steps, self.actions = poison, at, 0, []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        self.actions.append(action)
        self.steps += 1
        observation, reward = self.observation_space.sample(), 1.0
        terminated = self.steps % 13 == 0
        if self.steps == self.at:
            if self.poison == "reward":
                reward = float("inf")
            if self.poison in ("observation", "final observation"):
                observation[:] = np.nan
                terminated = self.poison == "final observation"
        return observation, reward, terminated, self.steps % 9 == 0, {}


# ------------------------------------------------------------------------------------------ what SB3's users expect


def test_same_seed_same_numbers_and_another_seed_others():
    first, again, other = (agent(seed=seed).learn(200) for seed in (3, 3, 4))
    assert first._n_updates > 50
    assert torch.equal(weights(first), weights(again))
    assert not torch.equal(weights(first), weights(other))


def test_callbacks_evaluation_and_files(tmp_path):
    model = agent()
    evaluation = EvalCallback(make_vec_env("Pendulum-v1", 2), eval_freq=50, n_eval_episodes=2, verbose=0)
    model.learn(120, callback=[evaluation, CheckpointCallback(60, str(tmp_path), verbose=0)])
    assert np.isfinite(evaluation.last_mean_reward)
    loaded = TSAC.load(tmp_path / "rl_model_60_steps", env=make_vec_env("Pendulum-v1"))
    model.save(tmp_path / "end")
    loaded = TSAC.load(tmp_path / "end", env=make_vec_env("Pendulum-v1"))
    observation = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    for deterministic in (True, False):
        torch.manual_seed(0)
        before, _ = model.predict(observation, deterministic=deterministic)
        torch.manual_seed(0)
        after, _ = loaded.predict(observation, deterministic=deterministic)
        np.testing.assert_array_equal(before, after)
    assert loaded.temperature().item() == model.temperature().item()
    loaded.learn(60, reset_num_timesteps=False)
    assert loaded.num_timesteps >= 180
    mean, _ = evaluate_policy(loaded, make_vec_env("Pendulum-v1"), n_eval_episodes=1)
    assert np.isfinite(mean)


def test_predict_takes_one_observation_or_many():
    model = agent()
    single, _ = model.predict(np.zeros(3, np.float32), deterministic=True)
    batch, _ = model.predict(np.zeros((4, 3), np.float32), deterministic=True)
    assert single.shape == (1,)
    assert batch.shape == (4, 1)
    np.testing.assert_allclose(batch, np.tile(single, (4, 1)), rtol=1e-5)
    assert (np.abs(single) <= 2.0).all()  # Pendulum's torque


def test_learn_twice_goes_on_and_set_env_starts_anew():
    model = agent().learn(100)
    before = model.num_timesteps
    model.learn(100, reset_num_timesteps=False)
    assert model.num_timesteps == 2 * before
    model.set_env(make_vec_env("Pendulum-v1"))
    model.learn(100, reset_num_timesteps=False)
    model.learn(50)
    assert model.num_timesteps == 56
    # the restart in the middle of an episode is a truncation in the buffer: step indices begin again
    steps = model.replay_buffer.segments(torch.arange(model.replay_buffer.n_segments)).steps
    assert (steps == 0).sum() == 4  # learn, Pendulum's own limit of 200 steps, set_env, learn


def test_vecnormalize_and_subprocesses():
    model = agent(VecNormalize(make_vec_env("Pendulum-v1", 2, vec_env_cls=SubprocVecEnv)))
    model.learn(200)
    stored = model.replay_buffer.segments(torch.arange(4))
    normal = model.replay_buffer.segments(torch.arange(4), model.get_vec_normalize_env())
    assert stored.rewards.abs().max() > 1.5 * normal.rewards.abs().max()  # raw in the buffer, normalised in the batch
    model.get_env().close()


@pytest.mark.parametrize("n_envs", [1, 3])
def test_the_last_observation_of_a_truncated_episode_is_kept(n_envs):
    model = agent(make_vec_env("Pendulum-v1", n_envs), learning_starts=10_000, segment_length=6)
    model.learn(210 * n_envs)
    everything = model.replay_buffer.segments(torch.arange(model.replay_buffer.n_segments))
    assert everything.ends.sum() == n_envs
    assert everything.terminated.sum() == 0
    segment, step = everything.ends.nonzero()[0].tolist()
    assert step == 1  # Pendulum is cut off after 200 steps: here in the middle of a segment of 6
    final, restarted = everything.next_observations[segment, step], everything.observations[segment, step + 1]
    assert not torch.equal(final, restarted)
    turned = torch.atan2(final[1], final[0]) - torch.atan2(*everything.observations[segment, step, [1, 0]])
    turned = (turned + np.pi) % (2 * np.pi) - np.pi
    assert turned.item() == pytest.approx(
        0.05 * final[2].item(), abs=1e-3
    )  # angle += velocity * dt: the true successor


@pytest.mark.parametrize(
    "options",
    [
        {"windows": "per_segment"},
        {"tau": 0.005},
        {"freeze_interval": 10},
        {"value_reduction": "mean"},
        {"value_reduction": "random"},
        {"return_propagation": "targets"},
        {"return_propagation": "longest"},
        {"entropy": "gaussian", "ent_coef": 0.0},
        {"min_length": 6},
        {"max_grad_norm": None},
        {"precision": "bf16"},
        {"rounds": 2, "learning_rate": LinearSchedule(1e-3, 1e-5, 1.0)},
        {"policy_kwargs": {"step_index": ["state", "actions", "actor"], "episode_length": 200}},
        {"policy_kwargs": {"net_arch": {"mean": [16, 16], "std": [8]}, "activation_fn": "LeakyReLU"}},
    ],
)
def test_every_option_trains(options):
    model = agent(make_vec_env("Pendulum-v1", 2), **options)
    before = weights(model)
    model.learn(160)
    assert not torch.equal(before, weights(model))
    mean, _ = evaluate_policy(model, make_vec_env("Pendulum-v1", 2), n_eval_episodes=2)
    assert np.isfinite(mean)


def test_learning_rates_follow_their_schedules():
    model = agent(learning_rate=LinearSchedule(1e-3, 1e-5, 1.0), critic_learning_rate=lambda left: 2e-3 * left).learn(
        200
    )
    assert model.actor_optimizer.param_groups[0]["lr"] == pytest.approx(1e-5)
    assert model.critic_optimizer.param_groups[0]["lr"] == pytest.approx(0.0)


def test_the_log_has_sb3s_names_and_ours(tmp_path):
    model = agent()
    model.set_logger(configure(str(tmp_path), ["csv"]))
    model.learn(1000, log_interval=1)
    header = (tmp_path / "progress.csv").read_text().splitlines()[0].split(",")
    expected = "critic_loss actor_loss ent_coef ent_coef_loss learning_rate n_updates value_first_horizon"
    expected += " value_last_horizon target_spread critic_grad_norm actor_grad_norm window_length masked_share"
    assert {f"train/{name}" for name in expected.split()} <= set(header)


def test_the_step_index_reaches_the_actor_through_predict():
    model = agent(policy_kwargs={"step_index": ["actor"], "episode_length": 10})
    observation = np.zeros((2, 3), np.float32)
    first, state = model.predict(observation, deterministic=True)
    second, state = model.predict(observation, state, np.array([False, True]), deterministic=True)
    assert state[0].tolist() == [2, 1]
    assert first[0] != second[0]
    assert first[1] == second[1]  # a new episode


class Recorder(BaseCallback):
    """Runs a function after every step."""

    def __init__(self, look):
        super().__init__()
        self.look = look

    def _on_step(self):
        return self.look(self.model) is not False


def test_a_stop_in_the_middle_of_a_segment_is_a_truncation_and_the_next_segments_are_whole():
    model = agent(make_vec_env("Pendulum-v1", 2), learning_starts=0)
    model.learn(1000, callback=Recorder(lambda model: model.num_timesteps < 2 * 13))  # stops at the 13th step
    assert model.replay_buffer.unfinished == 4  # 8 stored, then 4: the step at which it stopped is not
    model.learn(2 * 36, reset_num_timesteps=False)
    assert model.replay_buffer.unfinished == 0
    everything = model.replay_buffer.segments(torch.arange(model.replay_buffer.n_segments))
    assert everything.ends.sum(dim=1).tolist() == [0, 0, 1, 1, *[0] * (len(everything.ends) - 4)]
    assert everything.ends[2].nonzero().item() == 3
    assert everything.steps[2].tolist() == [8, 9, 10, 11, 0, 1, 2, 3]


def test_a_reset_is_noticed_where_observations_say_nothing():
    class Blind(Task):
        def step(self, action):
            return np.zeros(3, np.float32), 1.0, False, False, {}

        def reset(self, **options):
            return np.zeros(3, np.float32), {}

    model = agent(Blind()).learn(12)
    model.learn(12)
    ends = model.replay_buffer.segments(torch.arange(4)).ends
    assert ends.sum() == 0  # both began a segment
    model = agent(Blind()).learn(1000, callback=Recorder(lambda model: model.num_timesteps < 13))
    model.learn(20)
    assert model.replay_buffer.segments(torch.tensor([1])).steps.tolist() == [[8, 9, 10, 11, 0, 1, 2, 3]]


def test_the_actor_sees_the_step_index_that_the_buffer_stores():
    model = agent(policy_kwargs={"step_index": ["actor", "actions"], "episode_length": 200})
    seen = []
    model.learn(64, callback=Recorder(lambda model: seen.append(model._policy_state[0][0] - 1)))
    model.learn(
        64, callback=Recorder(lambda model: seen.append(model._policy_state[0][0] - 1)), reset_num_timesteps=False
    )
    stored = model.replay_buffer.segments(torch.arange(16)).steps.flatten().tolist()
    assert seen == stored == list(range(128))


def test_the_policy_alone_can_be_saved_and_loaded(tmp_path):
    model = agent(policy_kwargs={"net_arch": [8], "activation_fn": "Tanh"}).learn(60)
    model.policy.save(tmp_path / "policy")
    loaded = type(model.policy).load(tmp_path / "policy", device="cpu")
    observation = np.ones((3, 3), np.float32)
    np.testing.assert_array_equal(
        loaded.predict(observation, None, None, True)[0], model.predict(observation, None, None, True)[0]
    )


def test_a_saved_replay_buffer_is_the_same_and_another_agents_is_refused(tmp_path):
    model = agent().learn(60)
    model.save_replay_buffer(tmp_path / "buffer")
    other = agent()
    other.load_replay_buffer(tmp_path / "buffer")
    assert other.replay_buffer.size() == model.replay_buffer.size() == 64
    for ours, theirs in zip(
        other.replay_buffer.segments(torch.arange(8)), model.replay_buffer.segments(torch.arange(8)), strict=True
    ):
        assert torch.equal(ours, theirs)
    for wrong in (agent(segment_length=16), agent(make_vec_env("Pendulum-v1", 2))):
        with pytest.raises(ValueError, match="The saved replay buffer has"):
            wrong.load_replay_buffer(tmp_path / "buffer")
    exactly_as_large = agent(buffer_size=64)
    exactly_as_large.load_replay_buffer(tmp_path / "buffer")
    assert exactly_as_large.replay_buffer.size() == 64
    of_another_task = agent(Task()).learn(60)
    with pytest.raises(ValueError, match="of another task: its actions have the shape"):
        of_another_task.load_replay_buffer(tmp_path / "buffer")
    assert of_another_task.replay_buffer.size() == 64  # nothing was touched


def test_what_is_given_to_load_replaces_what_was_saved(tmp_path):
    agent().learn(60).save(tmp_path / "agent")
    loaded = TSAC.load(tmp_path / "agent", critic_betas=(0.8, 0.9), weight_decay=0.1, gamma=0.5)
    groups = loaded.critic_optimizer.param_groups
    assert [(group["betas"], group["weight_decay"]) for group in groups] == [((0.8, 0.9), 0.1), ((0.8, 0.9), 0.0)]
    assert [group["weight_decay"] for group in loaded.actor_optimizer.param_groups] == [0.1, 0.0]
    assert loaded.gamma == 0.5
    with pytest.raises(ValueError, match=r"cannot be loaded with another ent_coef: .* cannot be replaced"):
        TSAC.load(tmp_path / "agent", ent_coef=0.1)
    with pytest.raises(ValueError, match="gamma must be between 0 and 1"):
        TSAC.load(tmp_path / "agent", gamma=2.0)


def test_arguments_are_not_changed():
    policy_kwargs, replay_buffer_kwargs = {"net_arch": [8]}, {}
    TSAC("MlpPolicy", "Pendulum-v1", policy_kwargs=policy_kwargs, replay_buffer_kwargs=replay_buffer_kwargs)
    assert policy_kwargs == {"net_arch": [8]}
    assert replay_buffer_kwargs == {}


# ------------------------------------------------------------------------------------------ the method


def test_actor_and_temperature_wait_for_their_start():
    model = agent(learning_starts=0, actor_starts=64, ent_coef_starts=5)
    actor = [parameter.clone() for parameter in model.actor.parameters()]
    critic = model.critic.head.weight.clone()
    model.learn(56)
    assert all(torch.equal(a, b) for a, b in zip(actor, model.actor.parameters(), strict=True))
    assert not torch.equal(critic, model.critic.head.weight)
    first = model.temperature().item()
    model.learn(16, reset_num_timesteps=False)  # two iterations of two actor updates
    assert not torch.equal(actor[0], next(model.actor.parameters()))
    assert (model._n_actor_updates, model.temperature().item()) == (4, first)
    model.learn(8, reset_num_timesteps=False)
    assert model.temperature().item() != first


def test_next_state_values_are_those_of_the_next_states(monkeypatch):
    """Of the true final state at a truncation, at the following step index, with the critics of the last copy."""
    model = agent(Task(), tau=0.5, policy_kwargs={"step_index": ["state"], "episode_length": 50}).learn(160)
    segments = model.replay_buffer.segments(torch.arange(10))
    asked = []
    forward = model.critic_target.forward
    monkeypatch.setattr(model.critic_target, "forward", lambda *a: (asked.append(a), forward(*a))[1])
    torch.manual_seed(0)
    values = model.next_state_values(segments)
    states, actions, steps = (torch.cat(parts) for parts in zip(*asked, strict=True))
    torch.testing.assert_close(states, segments.next_observations.reshape(80, -1))
    assert torch.equal(steps, segments.steps.flatten() + 1)
    torch.testing.assert_close(values.flatten(), forward(states, actions, steps).squeeze(-1).amin(dim=0))


def test_batches_are_normalised_and_rates_scheduled(monkeypatch):
    env = VecNormalize(make_vec_env("Pendulum-v1", 2))
    model = agent(env, learning_rate=LinearSchedule(1e-3, 1e-5, 1.0), actor_starts=0)
    given = []
    sample = model.replay_buffer.sample
    monkeypatch.setattr(model.replay_buffer, "sample", lambda n, env=None: (given.append(env), sample(n, env))[1])
    model.learn(160)
    assert len(given) > 10
    assert all(normalizer is env for normalizer in given)
    assert model.ent_coef_optimizer.param_groups[0]["lr"] == pytest.approx(1e-5)


@pytest.mark.parametrize("windows", ["shared", "per_segment"])
def test_the_log_describes_the_windows_as_they_were_drawn(windows):
    model = agent(Task(), windows=windows, critic_updates=400, learning_starts=390, return_propagation="longest")
    model.learn(400)
    total, count = model._metrics["window_length"]
    expected = np.mean([min(n, 8 - start) for start in range(8) for n in range(1, 7)])
    assert float(total) / count == pytest.approx(expected, rel=0.05)
    total, count = model._metrics["masked_share"]
    assert 0.05 < float(total) / count < 0.3
    assert float(model._metrics["target_spread"][0]) > 0


def window_of(model, segments, start, length):
    torch.manual_seed(0)
    values = model.next_state_values(segments)
    return model.make_window(segments, values, start, length)


def gradients(model, window):
    model.critic.zero_grad()
    values = model.critic(window.states, window.actions, window.steps)
    loss = (window.weights * (values - window.targets).square()).sum()
    loss.backward()
    return loss.item(), torch.cat([parameter.grad.flatten() for parameter in model.critic.parameters()])


@pytest.mark.parametrize(
    "options", [{}, {"windows": "per_segment"}, {"return_propagation": "longest"}, {"chunk_length": 3}]
)
def test_nothing_leaks_over_an_end(options):
    model = agent(Task(), learning_starts=10_000, **options)
    model.learn(400)
    segments = model.replay_buffer.segments(torch.arange(40))
    start = 1 if model.windows == "shared" else torch.full((40,), 1)
    length = 6 if model.windows == "shared" else torch.full((40,), 6)
    loss, gradient = gradients(model, window_of(model, segments, start, length))
    ended_before = torch.zeros_like(segments.ends)
    ended_before[:, 1:] = (
        segments.ends[:, 1:].cumsum(1).sub(segments.ends[:, 1:].long()) > 0
    )  # from the window's start on
    assert 0.1 < ended_before.float().mean() < 0.9
    changed = segments._replace(
        actions=torch.where(ended_before.unsqueeze(-1), 7.0, segments.actions),
        rewards=torch.where(ended_before, 1e6, segments.rewards),
        observations=torch.where(ended_before.unsqueeze(-1), 1e3, segments.observations),
        next_observations=torch.where(ended_before.unsqueeze(-1), 1e3, segments.next_observations),
        terminated=segments.terminated | ended_before,
    )
    changed_loss, changed_gradient = gradients(model, window_of(model, changed, start, length))
    assert loss == changed_loss
    assert torch.equal(gradient, changed_gradient)


def test_per_segment_windows_equal_shared_ones_of_the_same_start_and_length():
    model = agent(Task(), learning_starts=10_000).learn(400)
    segments = model.replay_buffer.segments(torch.arange(30))
    shared = window_of(model, segments, 3, 4)
    own = window_of(model, segments, torch.full((30,), 3), torch.full((30,), 4))
    padding = own.actions.shape[1] - 4
    assert padding == 2
    torch.testing.assert_close(own.states, shared.states)
    torch.testing.assert_close(own.weights[:, :4], shared.weights)
    assert (own.weights[:, 4:] == 0).all()
    counted = shared.weights > 0
    torch.testing.assert_close(own.targets[:, :4][counted], shared.targets[counted])
    assert gradients(model, own)[0] == pytest.approx(gradients(model, shared)[0], rel=1e-5)


def test_shared_windows_use_every_start_once_and_stay_in_the_segment():
    model = agent(critic_updates=16)
    drawn = model.draw_windows(8)
    assert sorted(start for start, _ in drawn) == sorted([*range(8)] * 2)
    assert all(1 <= length <= 6 and start + length <= 8 for start, length in drawn)
    starts, lengths = zip(*agent(windows="per_segment", critic_updates=200).draw_windows(8), strict=True)
    assert set(torch.stack(starts).unique().tolist()) == set(range(8))
    assert (torch.stack(starts) + torch.stack(lengths)).max() == 8
    assert set(torch.stack(lengths).unique().tolist()) == set(range(1, 7))


@pytest.mark.parametrize(("freeze_interval", "copies"), [(4, None), (10, 2), (24, 1)])
def test_hard_copies_come_every_freeze_interval(freeze_interval, copies, monkeypatch):
    counted = []
    copy = tsac.agent.engine.copy_parameters
    monkeypatch.setattr(tsac.agent.engine, "copy_parameters", lambda *a: (counted.append(a), copy(*a)))
    model = agent(freeze_interval=freeze_interval, learning_starts=0)
    model.learn(48)  # 6 iterations, 24 critic updates
    assert model._n_updates == 24
    if copies is None:  # one round: the critic of the round's start is its own target
        assert model.critic_target is model.critic
        assert counted == []
    else:
        assert len(counted) == copies
        same = torch.equal(model.critic.head.weight, model.critic_target.head.weight)
        assert same == (freeze_interval == 24)


def test_target_free_equals_a_hard_copied_target_network():
    free = agent().learn(100)
    copied = agent(freeze_interval=4)
    copied._target_free = lambda: False  # keep the network that is not needed
    copied._setup_model()
    copied.learn(100)
    assert copied.critic_target is not copied.critic
    assert torch.equal(free.critic.head.weight, copied.critic.head.weight)


def test_soft_copies_follow_slowly():
    model = agent(tau=0.1, learning_starts=0)
    before = model.critic_target.head.weight.clone()
    model.learn(8)
    assert model._n_updates == 4
    moved = (model.critic_target.head.weight - before).abs().mean()
    assert 0 < moved < 0.5 * (model.critic.head.weight - before).abs().mean()


def test_updates_per_step_do_not_depend_on_the_number_of_environments():
    counts = [agent(make_vec_env("Pendulum-v1", n), learning_starts=0).learn(240)._n_updates for n in (1, 3)]
    assert counts[0] == counts[1] == 240 // 8 * 4


# ------------------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": 9}, "must fit in a segment"),
        ({"min_length": 0}, "min_length <= max_length"),
        ({"windows": "both"}, "windows must be one of shared, per_segment"),
        ({"value_reduction": "max"}, "value_reduction must be one of"),
        ({"entropy": "none"}, "entropy must be one of"),
        ({"precision": "fp8"}, "precision must be one of"),
        ({"tau": 0.0}, "tau must be above 0"),
        ({"freeze_interval": 3}, "at least critic_updates"),
        ({"freeze_interval": 40, "tau": 0.5}, "belongs to the hard copy"),
        ({"ent_coef": "automatic"}, "ent_coef must be"),
        ({"ent_coef": "auto_-1"}, "ent_coef must be"),
        ({"ent_coef": -1.0}, "ent_coef must not be negative"),
        ({"rounds": 0}, "rounds must be at least 1"),
        ({"gamma": 2.0}, "gamma must be between 0 and 1"),
        ({"max_grad_norm": 0.0}, "max_grad_norm must be above 0"),
        ({"actor_updates": -1}, "actor_updates must not be negative"),
        ({"replay_buffer_class": ReplayBuffer}, "learns from segments"),
        ({"policy_kwargs": {"step_index": ["actor"]}}, "needs episode_length"),
        ({"policy_kwargs": {"step_index": ["critic"]}}, "step_index may name"),
        ({"policy_kwargs": {"n_critics": 0}}, "must be at least 1"),
        ({"policy_kwargs": {"net_arch": {"mean": [8]}}}, "one for mean and one for std"),
        ({"policy_kwargs": {"entropy": "gaussian"}}, "decided by the algorithm"),
        ({"policy_kwargs": {"critic_body": "gru", "critic_causal": False}}, "a part of the Transformer"),
        ({"policy_kwargs": {"critic_body": "lstm"}, "precision": "bf16"}, "not for this critic"),
        ({"policy_kwargs": {"critic_residual": False}, "precision": "bf16"}, "not for this critic"),
        ({"policy_kwargs": {"critic_causal": False}, "windows": "per_segment"}, "looks ahead"),
    ],
)
def test_impossible_settings_are_refused_in_a_sentence(options, message):
    with pytest.raises(ValueError, match=message):
        agent(**options)


def test_unsupported_spaces_are_refused_in_a_sentence():
    with pytest.raises(ValueError, match="needs continuous actions"):
        agent(Task(action_space=spaces.Discrete(3)))
    image = spaces.Box(0, 255, (36, 36, 3), np.uint8)
    with pytest.raises(ValueError, match="does not learn from images"):
        agent(Task(observation_space=image))
    with pytest.raises(ValueError, match="does not learn from images"):
        TSAC("MultiInputPolicy", Task(observation_space=spaces.Dict(camera=image)))
    with pytest.raises(ValueError, match="T-SAC has the policies"):
        TSAC("CnnPolicy", "Pendulum-v1")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_any_bounds_and_dictionaries(dtype):
    low, high = np.array([-3.0, 10.0], dtype), np.array([1.0, 11.0], dtype)
    observations = spaces.Dict(a=spaces.Box(-5, 5, (2, 2), dtype), mode=spaces.Discrete(3))
    task = Task(observations, spaces.Box(low, high, dtype=dtype))
    options = {**SMALL, "policy_kwargs": {**SMALL["policy_kwargs"]}}
    model = TSAC("MultiInputPolicy", task, **options).learn(100)
    taken = np.stack(task.actions)
    assert (taken >= low).all()
    assert (taken <= high).all()
    assert (np.ptp(taken, axis=0) > 0.5 * (high - low)).all()
    stored = model.replay_buffer.segments(torch.arange(model.replay_buffer.n_segments)).actions
    assert stored.abs().max() <= 1.0


@pytest.mark.parametrize("poison", ["reward", "observation", "final observation"])
def test_numbers_that_are_none_stop_the_training_before_they_are_learned_from(poison):
    env = DummyVecEnv([Task, lambda: Task(poison=poison)])
    model = agent(env)
    with pytest.raises(FloatingPointError, match=f"Step 80: environment 1 returned this {poison}"):
        model.learn(200)
    assert weights(model).isfinite().all()


@pytest.mark.parametrize("poison", ["reward", "observation"])
def test_normalisation_does_not_hide_or_move_them(poison):
    for training in (True, False):
        env = VecNormalize(DummyVecEnv([Task, lambda: Task(poison=poison)]), training=training)
        with pytest.raises(FloatingPointError, match=f"Step 80: environment 1 returned this {poison}"):
            agent(env).learn(200)


def test_numbers_too_large_for_single_precision_count_as_infinite():
    model = agent(Task(observation_space=spaces.Box(1e39, 1e40, (3,), np.float64)))
    with pytest.raises(FloatingPointError, match="environment 0 returned this observation"):
        model.learn(16)


def test_training_without_collecting_checks_its_losses_too():
    model = agent().learn(40)
    model.critic.head.weight.data[0] = np.inf
    model.train(1, 8)
    with pytest.raises(FloatingPointError, match="the critic loss is not finite"):
        model.train(1, 8)


def test_a_loss_that_is_none_stops_the_training_before_the_next_step():
    task = Task()
    model = agent(task)
    model.learn(80)
    model.critic.head.weight.data[0] = np.inf
    taken = len(task.actions)
    with pytest.raises(FloatingPointError, match=r"the critic loss is not finite .* at critic update"):
        model.learn(80, reset_num_timesteps=False)
    assert len(task.actions) == taken + 8  # the iteration's segment, and not one action from poisoned parameters


# ------------------------------------------------------------------------------------------ it learns


def learned_return(steps=2_400):
    settings = {
        "segment_length": 10,
        "max_length": 8,
        "batch_size": 32,
        "critic_updates": 10,
        "actor_updates": 5,
        "learning_starts": 200,
        "actor_starts": 200,
        "learning_rate": 1e-3,
        "critic_learning_rate": 3e-3,
        "gamma": 0.95,
        "policy_kwargs": {"critic_width": 32, "critic_layers": 1, "net_arch": [64, 64]},
    }
    model = TSAC("MlpPolicy", "Pendulum-v1", seed=0, device="cpu", **settings).learn(steps)
    return evaluate_policy(model, make_vec_env("Pendulum-v1", 1, seed=100), n_eval_episodes=10)[0]


# A random policy gets about -1,200, a swing-up that stays upright about -150.
CLEARLY_LEARNED = -500


def test_it_learns_to_swing_up_a_pendulum():
    assert learned_return() > CLEARLY_LEARNED


def test_shuffled_targets_do_not_pass_for_learning(monkeypatch):
    right = tsac.agent.tsac.prefix_targets
    shuffled = lambda *arguments: (t := right(*arguments))[torch.randperm(len(t))]  # noqa: E731
    monkeypatch.setattr(tsac.agent.tsac, "prefix_targets", shuffled)
    assert learned_return() < CLEARLY_LEARNED - 300


# ------------------------------------------------------------------------------------------ chunks of actions


class Counting(gym.Env):
    """Episodes of a given length; remembers what was done in each."""

    def __init__(self, length):
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,))
        self.action_space = spaces.Box(-2.0, 2.0, (3,))
        self.length, self.episodes = length, []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episodes.append([])
        return self.observe(), {}

    def observe(self):
        return np.array([len(self.episodes), len(self.episodes[-1]), self.length], dtype=np.float32) / 10

    def step(self, action):
        self.episodes[-1].append(np.array(action))
        return self.observe(), 0.0, False, len(self.episodes[-1]) == self.length, {}


@pytest.mark.parametrize("body", ["transformer", "mlp"])
def test_chunks_are_executed_in_order_and_renewed_when_used_up_or_at_an_end(body, monkeypatch):
    lengths = (5, 7)
    env = DummyVecEnv([lambda length=length: Counting(length) for length in lengths])
    options = {"critic_body": body, "step_index": ["actor"], "episode_length": 10}
    model = agent(env, chunk_length=3, policy_kwargs=options, learning_starts=40, actor_starts=40)
    chosen = {}  # what the actor answered, by what it saw
    sample = model.actor.sample

    def remembered(states, steps=None, noise=None):
        answer = sample(states, steps, noise)
        if len(states) <= 2:  # while collecting
            for state, step, actions in zip(states.tolist(), steps.tolist(), answer.actions.tolist(), strict=True):
                assert state[1] == pytest.approx(step / 10)  # the step index is that of the chunk's first action
                chosen[tuple(round(number * 10) for number in state)] = 2.0 * np.array(actions).reshape(3, 3)
        return answer

    monkeypatch.setattr(model.actor, "sample", remembered)
    model.learn(80)
    assert model._n_actor_updates > 0
    for task, length in zip(env.envs, lengths, strict=True):
        for number, episode in enumerate(task.episodes[:-1], 1):
            assert len(episode) == length
            for step, action in enumerate(episode):
                chunk = chosen[number, step - step % 3, length]  # new at 0, 3, 6; what an end left over is gone
                np.testing.assert_allclose(action, chunk[step % 3], atol=1e-5)


def test_an_actor_of_chunks_is_improved_on_the_value_of_the_whole_chunk():
    model = agent(chunk_length=4)
    assert model.entropy_goal == -4.0
    states, steps = torch.randn(8, 3), torch.zeros(8, dtype=torch.int64)
    sample = model.actor.sample(states, steps, torch.zeros(8, 4))
    values = model.critic(states, sample.actions.view(8, 4, 1))[:, :, 3].amin(dim=0)
    expected = -(values + model.temperature() * sample.entropy).mean()
    loss, _ = model.update_actor(states, steps, noise=torch.zeros(8, 4))
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("windows", ["shared", "per_segment"])
def test_the_value_of_a_chunk_that_reaches_beyond_an_end_is_that_up_to_the_end(windows):
    model = agent(chunk_length=4, windows=windows, batch_size=3, segment_length=10, max_length=6)
    none = torch.zeros(3, 10, dtype=torch.bool)
    observations = torch.randn(3, 10, 3)
    segments = SegmentBatch(
        observations, observations, torch.rand(3, 10, 1), torch.randn(3, 10), none.clone(), none.clone(), none.long()
    )
    segments.ends[0, 2] = segments.terminated[0, 2] = True
    segments.ends[1, 4] = True
    values = torch.randn(3, 10)
    start, length = (1, 6) if windows == "shared" else (torch.tensor([1, 1, 1]), torch.tensor([6, 6, 6]))
    window = model.make_window(segments, values, start, length)
    assert window.valid.all()
    assert torch.equal(window.targets[0, 1:], window.targets[0, 1].expand(5))
    assert torch.equal(window.targets[1, 3:], window.targets[1, 3].expand(3))
    assert window.targets[2].unique().numel() == 6
    # What is fed in there is arbitrary, and not what happened after the end.
    again = model.make_window(segments, values, start, length)
    same = (window.actions == again.actions).all(dim=-1)
    assert same.tolist() == [[True] * 2 + [False] * 4, [True] * 4 + [False] * 2, [True] * 6]
    assert window.actions.abs().max() <= 1.0


@pytest.mark.parametrize("body", ["gru", "lstm", "mlp"])
def test_every_body_trains(body):
    model = agent(policy_kwargs={"critic_body": body}).learn(120)
    assert model._n_updates > 20
    assert all(parameter.isfinite().all() for parameter in model.policy.parameters())
