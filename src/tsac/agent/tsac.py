"""T-SAC: Soft Actor-Critic whose critic values every prefix of a window of actions (Algorithm 1 of the paper)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.noise import ActionNoise
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.preprocessing import get_action_dim
from stable_baselines3.common.type_aliases import GymEnv, MaybeCallback, RolloutReturn, Schedule, TrainFreq
from stable_baselines3.common.utils import FloatSchedule, get_system_info, update_learning_rate
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor

from tsac.agent import checks, engine, files, saving
from tsac.agent.actor import Actor, EntropyForm
from tsac.agent.blocks import Precision
from tsac.agent.critic import Critic
from tsac.agent.policy import TSACPolicy
from tsac.agent.segments import SegmentBatch, SegmentReplayBuffer
from tsac.agent.targets import (
    ReturnPropagation,
    ValueReduction,
    average_targets,
    carry_over_ends,
    horizon_weights,
    prefix_targets,
    reduce_values,
    valid_steps,
)

SelfTSAC = TypeVar("SelfTSAC", bound="TSAC")


class Window(NamedTuple):
    """What one critic update looks at: consecutive steps of each segment of the batch."""

    states: Tensor  # the first state  # [batch, observation]
    actions: Tensor  # zero after the first end  # [batch, length, action]
    targets: Tensor  # of every prefix  # [batch, length]
    valid: Tensor  # bool: part of the drawn window, and not after its first end  # [batch, length]
    weights: Tensor  # of every squared error in the loss; zero where not valid  # [batch, length]
    steps: Tensor  # index of the first step within its episode  # [batch]
    length: Tensor | int  # as drawn: of each segment's window, or of all  # [batch]


class TSAC(OffPolicyAlgorithm):
    """Transformer-based Soft Actor-Critic, as a Stable-Baselines3 algorithm.

    One *iteration* collects one segment per environment and then runs ``rounds`` rounds of updates. A *round* samples
    a batch of segments, computes all their next-state values once, makes ``critic_updates`` critic updates on windows
    of those segments, samples a fresh batch, and makes ``actor_updates`` actor updates on its states.

    The defaults are compact: chosen by measurement to learn stably on two CPU cores in minutes (``results/``). The
    paper's settings come from ``TSAC.from_preset``.

    :param policy: ``"MlpPolicy"``, or ``"MultiInputPolicy"`` for dictionaries of observations
    :param env: environment, vectorised environment, or id
    :param learning_rate: of the actor and the temperature; a number or SB3's schedule
    :param critic_learning_rate: of the critics; None: the same
    :param buffer_size: capacity of the replay buffer in transitions
    :param segment_length: steps per environment and iteration; the unit of storage
    :param batch_size: segments in a batch
    :param min_length: shortest window that is drawn; what reaches beyond the end of its segment is cut off
    :param max_length: longest window, and so the longest horizon
    :param chunk_length: actions that the policy chooses at once and executes without looking; 1: the method
    :param windows: ``"shared"``: all segments of a batch use the same start and length; within a round, every start
        is used before one is used again. ``"per_segment"``: every segment draws its own
    :param rounds: rounds per iteration; -1: as many as there are environments
    :param critic_updates: critic updates per round
    :param actor_updates: actor updates per round
    :param learning_starts: environment steps before the first update
    :param actor_starts: environment steps before the first actor update
    :param gamma: discount factor
    :param tau: 1: hard copy, no target network; below: share of the way that a target network moves at every update
    :param freeze_interval: with a hard copy, critic updates between two copies; None: one round
    :param value_reduction: how the critics' next-state values become one: ``"min"``, ``"mean"`` or ``"random"``
    :param return_propagation: ``"gradients"``: every horizon has its own loss and the gradients are averaged (the
        method); ``"targets"``: every prefix is trained on the mean of the targets up to it (eq. 3); ``"longest"``: only
        the longest prefix is trained
    :param ent_coef: temperature; a number, or ``"auto"`` / ``"auto_0.1"`` to learn it (from 0.1)
    :param ent_coef_starts: actor updates before the temperature learns
    :param target_entropy: what the entropy is steered to; ``"auto"``: minus the number of action dimensions, of all of
        a chunk
    :param entropy: ``"gaussian"``: of the Gaussian before tanh; ``"squashed"``: of the action, as in SAC
    :param max_grad_norm: gradients of each critic and of the actor are clipped to this norm; None: not at all
    :param weight_decay: AdamW's, on matrices only
    :param critic_betas: AdamW's, for the critics
    :param actor_betas: AdamW's, for the actor and the temperature
    :param precision: of the large products in the critic: ``"highest"`` (single) or ``"bf16"``, which is faster on
        machines with bfloat16 instructions and not on others
    :param replay_buffer_class: a kind of ``SegmentReplayBuffer``; None: itself
    :param replay_buffer_kwargs: further arguments of the buffer
    :param policy_kwargs: further arguments of ``TSACPolicy``: network sizes, step-index inputs
    :param stats_window_size: episodes over which SB3 averages its rollout statistics
    :param tensorboard_log: folder for TensorBoard
    :param verbose: 0: nothing, 1: information, 2: debugging
    :param seed: of everything random
    :param device: ``"auto"`` uses a GPU where there is one
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {"MlpPolicy": TSACPolicy, "MultiInputPolicy": TSACPolicy}
    policy: TSACPolicy
    actor: Actor
    critic: Critic
    critic_target: Critic
    replay_buffer: SegmentReplayBuffer

    def __init__(
        self,
        policy: str | type[TSACPolicy],
        env: GymEnv | str,
        learning_rate: float | Schedule = 3e-4,
        critic_learning_rate: float | Schedule | None = 1e-3,
        buffer_size: int = 1_000_000,
        segment_length: int = 20,
        batch_size: int = 64,
        min_length: int = 1,
        max_length: int = 16,
        chunk_length: int = 1,
        windows: Literal["shared", "per_segment"] = "shared",
        rounds: int = -1,
        critic_updates: int = 10,
        actor_updates: int = 10,
        learning_starts: int = 3_000,
        actor_starts: int = 3_000,
        gamma: float = 0.99,
        tau: float = 1.0,
        freeze_interval: int | None = None,
        value_reduction: ValueReduction = "min",
        return_propagation: ReturnPropagation = "gradients",
        ent_coef: float | str = "auto_0.1",
        ent_coef_starts: int = 0,
        target_entropy: float | Literal["auto"] = "auto",
        entropy: EntropyForm = "squashed",
        max_grad_norm: float | None = 1.0,
        weight_decay: float = 1e-5,
        critic_betas: tuple[float, float] = (0.5, 0.95),
        actor_betas: tuple[float, float] = (0.9, 0.999),
        precision: Precision = "highest",
        replay_buffer_class: type[SegmentReplayBuffer] | None = None,
        replay_buffer_kwargs: dict[str, Any] | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: torch.device | str = "auto",
        _init_setup_model: bool = True,
    ) -> None:
        self.segment_length = segment_length
        self.min_length = min_length
        self.max_length = max_length
        self.chunk_length = chunk_length
        self.windows = windows
        self.rounds = rounds
        self.critic_updates = critic_updates
        self.actor_updates = actor_updates
        self.actor_starts = actor_starts
        self.freeze_interval = freeze_interval
        self.value_reduction = value_reduction
        self.return_propagation = return_propagation
        self.ent_coef = ent_coef
        self.ent_coef_starts = ent_coef_starts
        self.target_entropy = target_entropy
        self.entropy = entropy
        self.max_grad_norm = max_grad_norm
        self.weight_decay = weight_decay
        self.precision = precision
        self.critic_betas = critic_betas
        self.actor_betas = actor_betas
        self.critic_learning_rate = critic_learning_rate
        self._n_actor_updates = 0
        self._metrics: dict[str, tuple[Tensor | float, int]] = {}  # sum and count since the last log line
        self._unchecked: list[tuple[str, int, Tensor]] = []  # losses of this iteration: name, update, value
        self._policy_state: tuple[NDArray[Any], ...] | None = None
        super().__init__(
            policy,
            env,
            learning_rate,
            buffer_size=buffer_size,
            learning_starts=learning_starts,
            batch_size=batch_size,
            tau=tau,
            gamma=gamma,
            train_freq=segment_length,
            gradient_steps=1,
            replay_buffer_class=replay_buffer_class or SegmentReplayBuffer,
            replay_buffer_kwargs=dict(replay_buffer_kwargs or {}),
            policy_kwargs=dict(policy_kwargs or {}),
            stats_window_size=stats_window_size,
            tensorboard_log=tensorboard_log,
            verbose=verbose,
            device=device,
            seed=seed,
            sde_support=False,
            support_multi_env=True,
        )
        if env is not None:  # None only while loading a saved agent
            checks.check_spaces(self.observation_space, self.action_space)
        if _init_setup_model:
            self._setup_model()

    @classmethod
    def from_preset(
        cls: type[SelfTSAC],
        name: str,
        env: GymEnv | str,
        reading: str = "published",
        scale: str = "full",
        **overrides: Any,
    ) -> SelfTSAC:
        """An agent with the paper's settings for one of its suites.

        :param name: ``mujoco``, ``mujoco-soft``, ``metaworld``, ``box-pushing-dense`` or ``box-pushing-sparse``
        :param env: an id makes as many environments as the paper uses; anything else is taken as it is
        :param reading: where they differ, ``published``: the configuration that the paper's numbers came from, or
            ``paper``: the printed table
        :param scale: ``full``: the paper's; ``laptop``: for two CPU cores
        :param overrides: constructor arguments that replace the preset's; ``policy_kwargs`` are merged
        """
        from stable_baselines3.common.env_util import make_vec_env

        from tsac.presets import agent_arguments, read_preset

        preset = read_preset(name, reading, scale=scale)
        arguments = agent_arguments(preset)
        policy_kwargs = {**arguments.pop("policy_kwargs", {}), **(overrides.pop("policy_kwargs", None) or {})}
        if isinstance(env, str):
            env = make_vec_env(env, n_envs=preset["environments"], seed=overrides.get("seed"))
        fitting = "MultiInputPolicy" if isinstance(env.observation_space, spaces.Dict) else "MlpPolicy"
        policy = overrides.pop("policy", fitting)
        return cls(policy, env, **{**arguments, **overrides}, policy_kwargs=policy_kwargs)

    # ------------------------------------------------------------------------------------------ setting up

    def _setup_model(self) -> None:
        checks.check_settings(self)
        self.train_freq = self.segment_length  # what SB3 calls an iteration's steps and its rounds
        self.gradient_steps = self.rounds if self.rounds > 0 else self.n_envs
        given = self.policy_kwargs, self.replay_buffer_kwargs
        self.replay_buffer_kwargs = {**self.replay_buffer_kwargs, "segment_length": self.segment_length}
        self.policy_kwargs = {
            **self.policy_kwargs,
            "max_length": self.max_length,
            "chunk_length": self.chunk_length,
            "entropy": self.entropy,
            "precision": self.precision,
            "target_free": self._target_free(),
        }
        super()._setup_model()
        self.policy_kwargs, self.replay_buffer_kwargs = given
        self.actor, self.critic = self.policy.actor, self.policy.critic
        self.critic_target = self.policy.critic_target or self.critic
        rate = self.learning_rate if self.critic_learning_rate is None else self.critic_learning_rate
        self.critic_lr_schedule = FloatSchedule(rate)
        chosen = get_action_dim(self.action_space) * self.chunk_length  # numbers at once
        self.entropy_goal = -float(chosen) if self.target_entropy == "auto" else float(self.target_entropy)
        # The temperature is the softplus of this parameter.
        self.ent_coef_parameter: Tensor | None = None
        if isinstance(self.ent_coef, str):
            first = float(self.ent_coef.removeprefix("auto").removeprefix("_") or 1.0)
            inverse = first + math.log(-math.expm1(-first))  # of softplus
            self.ent_coef_parameter = torch.tensor(inverse, device=self.device).requires_grad_()
        else:
            self.fixed_ent_coef = torch.tensor(float(self.ent_coef), device=self.device)
        self._make_optimizers()

    def _make_optimizers(self) -> None:
        actor_rate, critic_rate = self.lr_schedule(1), self.critic_lr_schedule(1)
        self.actor_optimizer = engine.make_adamw(
            self.actor.parameters(), actor_rate, self.actor_betas, self.weight_decay
        )
        self.critic_optimizer = engine.make_adamw(
            self.critic.parameters(), critic_rate, self.critic_betas, self.weight_decay, matrix_dims=3
        )
        self.ent_coef_optimizer = None
        if self.ent_coef_parameter is not None:
            self.ent_coef_optimizer = torch.optim.AdamW(
                [self.ent_coef_parameter], lr=actor_rate, betas=self.actor_betas, weight_decay=self.weight_decay
            )

    def _target_free(self) -> bool:
        """A hard copy at the start of every round: the critic of that moment is its own target."""
        return self.tau == 1.0 and self.freeze_interval in (None, self.critic_updates)

    def _get_policy_from_name(self, policy_name: str) -> type[BasePolicy]:
        if policy_name not in self.policy_aliases:
            raise ValueError(
                f"T-SAC has the policies {', '.join(self.policy_aliases)}, for vectors and dictionaries of vectors; "
                f"got {policy_name!r}."
            )
        return super()._get_policy_from_name(policy_name)

    # ------------------------------------------------------------------------------------------ learning

    def train(self, gradient_steps: int, batch_size: int) -> None:
        """The updates of one iteration (Algorithm 1, second half).

        :param gradient_steps: rounds
        :param batch_size: segments in a batch
        """
        self._check_losses()
        if self.replay_buffer.n_segments == 0:
            return
        self.policy.set_training_mode(True)
        self._update_learning_rates()
        for _ in range(gradient_steps):
            segments = self.replay_buffer.sample(batch_size, env=self._vec_normalize_env)
            next_values = self.next_state_values(segments)  # once, for all windows of the round
            for start, length in self.draw_windows(batch_size):
                self.update_critic(self.make_window(segments, next_values, start, length))
                self.update_target()
            if self.num_timesteps >= self.actor_starts:
                segments = self.replay_buffer.sample(batch_size, env=self._vec_normalize_env)
                for step in draw_without_replacement(self.segment_length, self.actor_updates):
                    self.update_actor(segments.observations[:, step], segments.steps[:, step])

    @torch.no_grad()
    def next_state_values(self, segments: SegmentBatch) -> Tensor:
        """Value of the state that every step leads to: one sampled action or chunk, without entropy."""
        batch, length, _ = segments.next_observations.shape
        states = segments.next_observations.reshape(batch * length, -1)
        steps = (segments.steps + 1).view(-1)
        actions = self.actor.sample(states, steps).actions.view(batch * length, self.chunk_length, -1)
        # In pieces: long segments would need gigabytes for the hidden layers.
        pieces = zip(states.split(16_384), actions.split(16_384), steps.split(16_384), strict=True)
        values = torch.cat([self.critic_target(*piece)[:, :, -1] for piece in pieces], dim=1)
        return reduce_values(values, self.value_reduction).view(batch, length)

    def draw_windows(self, batch_size: int) -> list[tuple[Any, Any]]:
        """Start and length of the windows of a round: two numbers, or with per-segment windows two tensors."""
        if self.windows == "shared":
            starts = draw_without_replacement(self.segment_length, self.critic_updates)
            lengths = torch.randint(self.min_length, self.max_length + 1, (self.critic_updates,)).tolist()
            return [(s, min(n, self.segment_length - s)) for s, n in zip(starts, lengths, strict=True)]
        shape = (self.critic_updates, batch_size)
        start = torch.randint(self.segment_length, shape, device=self.device)
        length = torch.randint(self.min_length, self.max_length + 1, shape, device=self.device)
        return list(zip(start, torch.minimum(length, self.segment_length - start), strict=True))

    def make_window(self, segments: SegmentBatch, next_values: Tensor, start: Any, length: Any) -> Window:
        """Cut the windows out of the segments, with their targets and the weights of their losses."""
        if isinstance(start, int):

            def cut(x: Tensor) -> Tensor:
                return x[:, start : start + length]

            states, steps = segments.observations[:, start], segments.steps[:, start]
            valid = valid_steps(cut(segments.ends))
        else:
            rows = torch.arange(start.shape[0], device=start.device)
            offsets = torch.arange(self.max_length, device=start.device)
            columns = (start.unsqueeze(1) + offsets).clamp(max=self.segment_length - 1)

            def cut(x: Tensor) -> Tensor:
                return x[rows.unsqueeze(1), columns]

            states, steps = segments.observations[rows, start], segments.steps[rows, start]
            valid = valid_steps(cut(segments.ends)) & (offsets < length.unsqueeze(1))
        targets = prefix_targets(cut(segments.rewards), cut(next_values), cut(segments.terminated), self.gamma)
        actions = cut(segments.actions) * valid.unsqueeze(-1)
        if self.chunk_length > 1:
            drawn = torch.ones_like(valid) if isinstance(length, int) else offsets < length.unsqueeze(1)
            beyond = (drawn & ~valid).unsqueeze(-1)  # what a chunk holds there makes no difference, and is to make none
            actions = torch.where(beyond, torch.rand_like(actions) * 2.0 - 1.0, actions)
            targets, valid = carry_over_ends(targets, valid), drawn
        if self.return_propagation == "targets":
            targets = average_targets(targets)
        weights = horizon_weights(valid, length, self.return_propagation, targets.dtype)
        return Window(states, actions, targets, valid, weights, steps, length)

    def update_critic(self, window: Window) -> tuple[Tensor, Tensor]:
        """One step of all critics towards the targets of a window (eq. 5).

        :return: the critics' losses and gradient norms  # [critics], [critics]
        """
        values = self.critic(window.states, window.actions, window.steps)  # [critics, batch, length]
        losses = (window.weights * (values - window.targets).square()).sum(dim=(1, 2))
        self.critic_optimizer.zero_grad()
        losses.sum().backward()
        norms = engine.step(self.critic_optimizer, self.max_grad_norm, stacked=True)
        self._n_updates += 1
        losses = losses.detach()
        self._note("critic loss", losses)
        self._record_critic(window, values.detach(), losses, norms)
        return losses, norms

    def update_target(self) -> None:
        """Hard copy every ``freeze_interval`` critic updates, or soft copy after each; nothing where target-free."""
        if self.critic_target is self.critic:
            return
        if self.tau < 1.0 or self._n_updates % (self.freeze_interval or self.critic_updates) == 0:
            engine.copy_parameters(self.critic, self.critic_target, self.tau)

    def update_actor(self, states: Tensor, steps: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """One step of the temperature, and one of the actor on the value of a single action, or of a chunk of them.

        :param noise: standard normal numbers instead of fresh ones
        :return: the actor's loss and the entropy
        """
        sample = self.actor.sample(states, steps, noise)
        self.critic.requires_grad_(False)  # its gradients are not needed here
        actions = sample.actions.view(len(states), self.chunk_length, -1)
        values = self.critic(states, actions, steps)[:, :, -1].amin(dim=0)
        self.critic.requires_grad_(True)
        if self.ent_coef_optimizer is not None and self._n_actor_updates >= self.ent_coef_starts:
            ent_coef_loss = -self.temperature() * (sample.log_prob.detach().mean() + self.entropy_goal)
            self.ent_coef_optimizer.zero_grad()
            ent_coef_loss.backward()
            self.ent_coef_optimizer.step()
            self._record("ent_coef_loss", ent_coef_loss.detach())
        ent_coef = self.temperature().detach()
        loss = -(values + ent_coef * sample.entropy).mean()
        self.actor_optimizer.zero_grad()
        loss.backward()
        norm = engine.step(self.actor_optimizer, self.max_grad_norm)
        self._n_actor_updates += 1
        entropy = sample.entropy.detach().mean()
        loss = loss.detach()
        self._note("actor loss", loss)
        self._record("actor_loss", loss)
        self._record("actor_grad_norm", norm[0])
        self._record("ent_coef", ent_coef)
        self._record("entropy", entropy)
        return loss, entropy

    def temperature(self) -> Tensor:
        """The weight of the entropy in the actor's loss, called ``ent_coef`` in SB3."""
        return self.fixed_ent_coef if self.ent_coef_parameter is None else F.softplus(self.ent_coef_parameter)

    def _update_learning_rates(self) -> None:
        left = max(self._current_progress_remaining, 0.0)  # the last iteration may exceed what was asked for
        actor_rate, critic_rate = self.lr_schedule(left), self.critic_lr_schedule(left)
        update_learning_rate(self.critic_optimizer, critic_rate)
        update_learning_rate(self.actor_optimizer, actor_rate)
        if self.ent_coef_optimizer is not None:
            update_learning_rate(self.ent_coef_optimizer, actor_rate)
        self.logger.record("train/learning_rate", actor_rate)
        self.logger.record("train/critic_learning_rate", critic_rate)

    def learn(
        self: SelfTSAC,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int = 4,
        tb_log_name: str = "TSAC",
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> SelfTSAC:
        """As in SB3. An iteration is never cut: the last one may exceed ``total_timesteps`` by part of a segment."""
        super().learn(total_timesteps, callback, log_interval, tb_log_name, reset_num_timesteps, progress_bar)
        self._check_losses()
        return self

    # ------------------------------------------------------------------------------------------ collecting

    def _setup_learn(self, *args: Any, **kwargs: Any) -> tuple[int, BaseCallback]:
        running = self._last_obs
        total_timesteps, callback = super()._setup_learn(*args, **kwargs)
        if self._last_obs is not running:  # the environments were reset
            self._policy_state = None
            self.replay_buffer.interrupt()
        self._check_finite("observation", self._last_obs)
        return total_timesteps, callback

    def collect_rollouts(
        self,
        env: VecEnv,
        callback: BaseCallback,
        train_freq: TrainFreq,
        replay_buffer: ReplayBuffer,
        action_noise: ActionNoise | None = None,
        learning_starts: int = 0,
        log_interval: int | None = None,
    ) -> RolloutReturn:
        """Collect until the segments are complete: whole ones, or what an earlier stop left of them."""
        missing = self.segment_length - self.replay_buffer.unfinished
        rollout = super().collect_rollouts(
            env,
            callback,
            train_freq._replace(frequency=missing),
            replay_buffer,
            action_noise,
            learning_starts,
            log_interval,
        )
        if not rollout.continue_training:
            # SB3 has taken the step at which a callback stopped, but has not stored it: start anew next time.
            self._last_obs = None
        return rollout

    def _sample_action(
        self, learning_starts: int, action_noise: ActionNoise | None = None, n_envs: int = 1
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """The policy explores from the first step on: no uniformly random actions."""
        assert self._last_obs is not None
        actions, self._policy_state = self.predict(self._last_obs, self._policy_state, self._last_episode_starts)
        self._check_losses()  # the device has just been waited for
        scaled = np.clip(self.policy.scale_action(actions), -1.0, 1.0)
        return actions, scaled

    def _store_transition(
        self,
        replay_buffer: ReplayBuffer,
        buffer_action: NDArray[Any],
        new_obs: NDArray[Any] | dict[str, NDArray[Any]],
        reward: NDArray[Any],
        dones: NDArray[Any],
        infos: list[dict[str, Any]],
    ) -> None:
        normalizer = self._vec_normalize_env  # its running statistics would spread a NaN, its clipping hide an infinity
        self._check_finite("observation", new_obs if normalizer is None else normalizer.get_original_obs())
        self._check_finite("reward", reward if normalizer is None else normalizer.get_original_reward())
        for env, info in enumerate(infos):
            if dones[env] and info.get("terminal_observation") is not None:
                self._check_finite("final observation", info["terminal_observation"], env)
        super()._store_transition(replay_buffer, buffer_action, new_obs, reward, dones, infos)
        self._last_episode_starts = dones

    # ------------------------------------------------------------------------------------------ guarding and logging

    def _check_finite(self, name: str, value: Any, env: int | None = None) -> None:
        """Stop before a number that is none reaches the replay buffer."""
        if isinstance(value, dict):
            for key, part in value.items():
                self._check_finite(f"{name} {key!r}", part, env)
            return
        with np.errstate(over="ignore"):
            finite = np.isfinite(np.asarray(value, dtype=np.float32))  # what will be stored
        if not finite.all():
            if env is None:
                env = int(np.flatnonzero(~finite.reshape(finite.shape[0], -1).all(axis=1))[0])
            raise FloatingPointError(
                f"Step {self.num_timesteps}: environment {env} returned this {name}, which is not finite: "
                f"{np.asarray(value)[env] if np.ndim(value) and len(np.asarray(value)) == self.n_envs else value}."
            )

    def _note(self, name: str, loss: Tensor) -> None:
        """Remember a loss until ``_check_losses``, which is called where nothing has to wait for the device."""
        self._unchecked.append((name, self._n_updates, loss.reshape(-1)))

    def _check_losses(self) -> None:
        if not self._unchecked:
            return
        notes, self._unchecked = self._unchecked, []
        finite = torch.stack([loss.isfinite().all() for _, _, loss in notes]).cpu()
        if not finite.all():
            name, update, loss = notes[int((~finite).nonzero()[0])]
            raise FloatingPointError(
                f"Step {self.num_timesteps}: the {name} is not finite ({loss.tolist()}) at critic update {update}. "
                "Training stops, since the parameters can no longer be trusted: go on from an earlier checkpoint, with "
                "a smaller learning rate or clipped gradients."
            )

    def _record(self, name: str, value: Tensor | float) -> None:
        """Sum up on the device what the next log line will average."""
        total, count = self._metrics.get(name, (0.0, 0))
        self._metrics[name] = (total + value, count + 1)

    def _record_critic(self, window: Window, values: Tensor, losses: Tensor, norms: Tensor) -> None:
        counted = window.valid
        horizons = counted.sum(dim=1)
        last = counted.shape[1] - 1 - counted.flip(1).to(torch.uint8).argmax(dim=1)  # the longest valid prefix
        centre = (window.targets * counted).sum(dim=1) / horizons
        spread = ((window.targets - centre.unsqueeze(1)).square() * counted).sum(dim=1) / horizons
        mean_values = values.mean(dim=0)
        self._record("critic_loss", losses.mean())
        self._record("critic_grad_norm", norms.mean())
        self._record("value_first_horizon", mean_values[:, 0].mean())
        self._record("value_last_horizon", mean_values.gather(1, last.unsqueeze(1)).mean())
        self._record("target_spread", spread.sqrt().mean())
        drawn = window.length if isinstance(window.length, int) else window.length.float().mean()
        self._record("window_length", drawn)
        self._record("masked_share", 1.0 - horizons.float().mean() / drawn)

    def dump_logs(self) -> None:
        """A log line is due: only here does the training wait for the device."""
        for name, (total, count) in self._metrics.items():
            self.logger.record(f"train/{name}", float(total) / count)
        self._metrics = {}
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        super().dump_logs()

    # ------------------------------------------------------------------------------------------ saving

    def save(self, path: Any, exclude: Any = None, include: Any = None) -> None:
        """As in SB3, but as a safetensors file, which executes nothing when it is loaded.

        :param path: with or without an ending
        :param exclude: has no effect: the file holds the constructor's arguments and what learning has changed
        :param include: has no effect
        """
        arguments = saving.constructor_arguments(self)
        if self.replay_buffer_class is SegmentReplayBuffer:
            del arguments["replay_buffer_class"]
        path = Path(path)
        path = path if path.suffix else path.with_name(path.name + files.SUFFIX)
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path, saving.agent_content(self, "tsac", arguments))

    @classmethod
    def load(
        cls: type[SelfTSAC],
        path: Any,
        env: GymEnv | None = None,
        device: torch.device | str = "auto",
        custom_objects: dict[str, Any] | None = None,
        print_system_info: bool = False,
        force_reset: bool = True,
        **kwargs: Any,
    ) -> SelfTSAC:
        """As in SB3, from a file that ``save`` wrote; any other is refused.

        :param custom_objects: constructor arguments that replace the saved ones, as ``kwargs`` do
        :param force_reset: has no effect: the environment is always reset before training goes on
        """
        if print_system_info:
            get_system_info()
        found = files.find(path)
        content = files.read(found)
        dictionary = isinstance(content.get("observation_space"), spaces.Dict)
        policy = "MultiInputPolicy" if dictionary else "MlpPolicy"
        overrides = {**(custom_objects or {}), **kwargs}
        model = saving.restore_agent(
            cls, content, found, policy=overrides.pop("policy", policy), env=env, device=device, **overrides
        )
        # The file's optimisers come with their own; what was given instead counts.
        engine.set_options(model.critic_optimizer, model.critic_betas, model.weight_decay)
        engine.set_options(model.actor_optimizer, model.actor_betas, model.weight_decay)
        return model

    def save_replay_buffer(self, path: Any) -> None:
        """As in SB3, but as a safetensors file: the complete segments."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path if path.suffix else path.with_name(path.name + files.SUFFIX), self.replay_buffer.content())

    def load_replay_buffer(self, path: Any, truncate_last_traj: bool = True) -> None:
        """As in SB3. The buffer must come from an agent with as many environments and the same segment length."""
        found = files.find(path)
        content = files.read(found)
        try:
            self.replay_buffer.set_content(content)
        except (KeyError, TypeError, AttributeError, RuntimeError) as error:
            raise files.FileError(f"{found} holds no replay buffer of such an agent: {files.reason(error)}") from error

    def _excluded_save_params(self) -> list[str]:
        aliases = ["actor", "critic", "critic_target", "fixed_ent_coef", "_metrics", "_unchecked", "_policy_state"]
        return [*super()._excluded_save_params(), *aliases]

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        modules = ["policy", "actor_optimizer", "critic_optimizer"]
        if self.ent_coef_optimizer is None:
            return modules, []
        return [*modules, "ent_coef_optimizer"], ["ent_coef_parameter"]


def draw_without_replacement(population: int, count: int) -> list[int]:
    """Numbers below ``population`` in random order; each is used once before one is used again."""
    drawn: list[int] = []
    while len(drawn) < count:
        drawn += torch.randperm(population).tolist()
    return drawn[:count]
