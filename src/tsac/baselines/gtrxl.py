"""PPO with a policy that remembers: a Gated Transformer-XL, trained on pieces of episodes."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.distributions import DiagGaussianDistribution
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, CombinedExtractor, FlattenExtractor
from stable_baselines3.common.type_aliases import GymEnv, PyTorchObs, Schedule
from stable_baselines3.common.utils import ConstantSchedule, explained_variance, obs_as_tensor
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor, nn

from tsac.baselines.gated_transformer import GatedTransformer, Memory


class GTrXLPolicy(BasePolicy):
    """
    :param layers: of the Transformer
    :param heads: its attention heads
    :param head_size: width of a head
    :param memory_length: steps that it remembers
    :param log_std_init: logarithm of the initial deviation, which does not depend on the state
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Box,
        lr_schedule: Schedule,
        layers: int = 4,
        heads: int = 4,
        head_size: int = 16,
        memory_length: int = 64,
        log_std_init: float = 0.0,
        use_sde: bool = False,
    ) -> None:
        extractor: type[BaseFeaturesExtractor] = FlattenExtractor
        if isinstance(observation_space, spaces.Dict):
            extractor = CombinedExtractor
        super().__init__(observation_space, action_space, features_extractor_class=extractor)
        self._arguments = {
            "layers": layers,
            "heads": heads,
            "head_size": head_size,
            "memory_length": memory_length,
            "log_std_init": log_std_init,
        }
        self.features_extractor = self.make_features_extractor()
        features = self.features_extractor.features_dim
        self.body = GatedTransformer(features, layers, heads, head_size, memory_length)
        actions = int(np.prod(action_space.shape))
        self.mean = nn.Linear(self.body.width, actions)
        self.value = nn.Linear(self.body.width, 1)
        nn.init.xavier_uniform_(self.mean.weight, gain=0.01)
        nn.init.zeros_(self.mean.bias)
        self.log_std = nn.Parameter(torch.full((actions,), log_std_init))
        self.distribution = DiagGaussianDistribution(actions)
        self.optimizer = torch.optim.Adam(self.parameters(), lr=lr_schedule(1), eps=1e-5)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        """For ``save`` and ``load``."""
        own = {"observation_space": self.observation_space, "action_space": self.action_space}
        return {**own, "lr_schedule": ConstantSchedule(0.0), **self._arguments}

    def read(self, features: Tensor, memory: Memory, starts: Tensor) -> tuple[Tensor, Tensor, Memory]:
        """Means and values of a piece of time  # [batch, time, actions], [batch, time]"""
        outputs, memory = self.body(features, memory, starts)
        return self.mean(outputs), self.value(outputs).squeeze(-1), memory

    def step(
        self, observation: PyTorchObs, memory: Memory, starts: NDArray[np.bool_], deterministic: bool = False
    ) -> tuple[Tensor, Tensor, Tensor, Memory]:
        """One step of every environment: actions, values, log-probabilities, and the memory after."""
        features = self.extract_features(observation, self.features_extractor).unsqueeze(1)
        new = torch.as_tensor(np.asarray(starts, dtype=bool), device=self.device).unsqueeze(1)
        means, values, memory = self.read(features, memory, new)
        distribution = self.distribution.proba_distribution(means[:, 0], self.log_std)
        actions = distribution.get_actions(deterministic=deterministic)
        return actions, values[:, 0], distribution.log_prob(actions), memory

    def _predict(self, observation: PyTorchObs, deterministic: bool = False) -> Tensor:
        """Without any memory, as at an episode's start."""
        features = self.extract_features(observation, self.features_extractor)
        starts = np.ones(features.shape[0], dtype=bool)
        return self.step(observation, self.body.empty_memory(features.shape[0]), starts, deterministic)[0]

    def predict(
        self,
        observation: NDArray[Any] | dict[str, NDArray[Any]],
        state: tuple[NDArray[Any], ...] | None = None,
        episode_start: NDArray[Any] | None = None,
        deterministic: bool = False,
    ) -> tuple[NDArray[Any], tuple[NDArray[Any], ...]]:
        """As in SB3; ``state`` is the memory."""
        self.set_training_mode(False)
        tensor, batched = self.obs_to_tensor(observation)
        count = next(iter(tensor.values())).shape[0] if isinstance(tensor, dict) else tensor.shape[0]
        memory = self.body.empty_memory(count)
        if state is not None:
            memory = Memory(*(torch.as_tensor(array, device=self.device) for array in state))
        starts = np.zeros(count, dtype=bool) if episode_start is None else np.asarray(episode_start).reshape(-1)
        with torch.no_grad():
            actions, _, _, memory = self.step(tensor, memory, starts, deterministic)
        assert isinstance(self.action_space, spaces.Box)
        chosen = actions.cpu().numpy().reshape(-1, *self.action_space.shape)
        chosen = np.clip(chosen, self.action_space.low, self.action_space.high)
        return (chosen if batched else chosen[0]), tuple(part.cpu().numpy() for part in memory)


class GTrXL(PPO):
    """PPO as in SB3, but minibatches are made of sequences, each with the memory that it was collected with.

    :param sequence_length: steps of a sequence; must divide ``n_steps``
    :param batch_size: steps in a minibatch, a multiple of ``sequence_length``

    The other parameters are those of ``PPO``; ``policy_kwargs`` go to ``GTrXLPolicy``.
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {"MlpPolicy": GTrXLPolicy, "MultiInputPolicy": GTrXLPolicy}
    policy: GTrXLPolicy  # type: ignore[assignment]

    def __init__(
        self,
        policy: str | type[GTrXLPolicy],
        env: GymEnv | str,
        learning_rate: float | Schedule = 2e-4,
        n_steps: int = 512,
        sequence_length: int = 32,
        batch_size: int = 256,
        n_epochs: int = 5,
        gamma: float = 0.99,
        gae_lambda: float = 0.95,
        clip_range: float | Schedule = 0.2,
        clip_range_vf: float | Schedule | None = None,
        normalize_advantage: bool = True,
        ent_coef: float = 0.0,
        vf_coef: float = 0.5,
        max_grad_norm: float = 0.5,
        target_kl: float | None = None,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: torch.device | str = "auto",
        _init_setup_model: bool = True,
    ) -> None:
        if n_steps % sequence_length or batch_size % sequence_length:
            raise ValueError(
                f"sequence_length ({sequence_length}) must divide n_steps ({n_steps}) and batch_size ({batch_size})."
            )
        self.sequence_length = sequence_length
        self._memory: Memory | None = None
        super().__init__(
            policy,  # type: ignore[arg-type]
            env,
            learning_rate=learning_rate,
            n_steps=n_steps,
            batch_size=batch_size,
            n_epochs=n_epochs,
            gamma=gamma,
            gae_lambda=gae_lambda,
            clip_range=clip_range,
            clip_range_vf=clip_range_vf,
            normalize_advantage=normalize_advantage,
            ent_coef=ent_coef,
            vf_coef=vf_coef,
            max_grad_norm=max_grad_norm,
            target_kl=target_kl,
            stats_window_size=stats_window_size,
            tensorboard_log=tensorboard_log,
            policy_kwargs=policy_kwargs,
            verbose=verbose,
            seed=seed,
            device=device,
            _init_setup_model=_init_setup_model,
        )

    def collect_rollouts(
        self, env: VecEnv, callback: BaseCallback, rollout_buffer: RolloutBuffer, n_rollout_steps: int
    ) -> bool:
        """As in SB3, with a memory that goes along."""
        assert self._last_obs is not None
        assert isinstance(self.action_space, spaces.Box)
        self.policy.set_training_mode(False)
        rollout_buffer.reset()
        memory = Memory(*self._memory) if self._memory else self.policy.body.empty_memory(env.num_envs)
        self._starting_memories: list[Memory] = []  # of every sequence
        callback.on_rollout_start()
        for step in range(n_rollout_steps):
            if step % self.sequence_length == 0:
                self._starting_memories.append(memory)
            observation = obs_as_tensor(self._last_obs, self.device)  # type: ignore[arg-type]
            with torch.no_grad():
                tensors = self.policy.step(observation, memory, self._last_episode_starts)  # type: ignore[arg-type]
            actions, values, log_probs, memory = tensors
            chosen = actions.cpu().numpy()
            clipped = np.clip(
                chosen.reshape(-1, *self.action_space.shape), self.action_space.low, self.action_space.high
            )
            new_obs, rewards, dones, infos = env.step(clipped)
            self.num_timesteps += env.num_envs
            callback.update_locals(locals())
            if not callback.on_step():
                self._memory = self._last_obs = None  # the step is taken but not kept: start anew next time
                return False
            self._update_info_buffer(infos, dones)
            for number in np.flatnonzero(dones).tolist():
                if infos[number].get("TimeLimit.truncated", False):
                    final = infos[number]["terminal_observation"]
                    rewards[number] += self.gamma * self._value(final, memory, number)
            rollout_buffer.add(self._last_obs, chosen, rewards, self._last_episode_starts, values, log_probs)  # type: ignore[arg-type]
            self._last_obs, self._last_episode_starts = new_obs, dones  # type: ignore[assignment]
        with torch.no_grad():
            observation = obs_as_tensor(new_obs, self.device)  # type: ignore[arg-type]
            last_values = self.policy.step(observation, memory, dones)[1]
        rollout_buffer.compute_returns_and_advantage(last_values=last_values, dones=dones)
        self._memory = memory
        callback.on_rollout_end()
        return True

    def _value(self, final_observation: Any, memory: Memory, number: int) -> float:
        """Of the true final observation of an episode that was cut off."""
        tensor, _ = self.policy.obs_to_tensor(final_observation)
        own = Memory(*(part[number : number + 1] for part in memory))
        with torch.no_grad():
            return float(self.policy.step(tensor, own, np.zeros(1, dtype=bool))[1])

    def _sequences(self) -> dict[str, Any]:
        """The rollout as [sequences, time, ...]."""
        buffer, length = self.rollout_buffer, self.sequence_length

        def cut(array: NDArray[Any]) -> Tensor:  # [steps, environments, ...]
            pieces = array.reshape(-1, length, *array.shape[1:]).swapaxes(1, 2)
            return torch.as_tensor(pieces.reshape(-1, length, *array.shape[2:]), device=self.device)

        observations: Any = buffer.observations
        if isinstance(observations, dict):
            observations = {key: cut(value) for key, value in observations.items()}
        else:
            observations = cut(observations)
        names = ("actions", "values", "log_probs", "advantages", "returns")
        return {
            "observations": observations,
            "starts": cut(buffer.episode_starts).bool(),
            "memory": Memory(*(torch.cat(parts) for parts in zip(*self._starting_memories, strict=True))),
            **{name: cut(getattr(buffer, name)) for name in names},
        }

    def _features(self, observations: Any) -> Tensor:  # [sequences, time, ...] -> [sequences, time, features]
        first = next(iter(observations.values())) if isinstance(observations, dict) else observations
        shape = first.shape[:2]
        if isinstance(observations, dict):
            flat: Any = {key: value.flatten(0, 1) for key, value in observations.items()}
        else:
            flat = observations.flatten(0, 1)
        features = self.policy.extract_features(flat, self.policy.features_extractor)
        return features.view(*shape, -1)

    def train(self) -> None:
        """The updates of SB3's PPO, on sequences."""
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        clip: Any = self.clip_range
        clip_range = clip(self._current_progress_remaining)
        data = self._sequences()
        count, at_once = len(data["starts"]), self.batch_size // self.sequence_length
        records: dict[str, list[float]] = {}
        go_on = True
        for _ in range(self.n_epochs):
            for rows in torch.randperm(count).split(at_once):
                loss, facts = self._loss(data, rows.to(self.device), clip_range)
                for name, value in facts.items():
                    records.setdefault(name, []).append(value)
                if self.target_kl is not None and facts["approx_kl"] > 1.5 * self.target_kl:
                    go_on = False
                    break
                self.policy.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
                self.policy.optimizer.step()
            self._n_updates += 1
            if not go_on:
                break
        for name, values in records.items():
            self.logger.record(f"train/{name}", float(np.mean(values)))
        buffer = self.rollout_buffer
        self.logger.record(
            "train/explained_variance", explained_variance(buffer.values.ravel(), buffer.returns.ravel())
        )
        self.logger.record("train/std", float(self.policy.log_std.detach().exp().mean()))
        self.logger.record("train/clip_range", clip_range)
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")

    def _loss(self, data: dict[str, Any], rows: Tensor, clip_range: float) -> tuple[Tensor, dict[str, float]]:
        def of_rows(value: Any) -> Any:
            return {key: part[rows] for key, part in value.items()} if isinstance(value, dict) else value[rows]

        features = self._features(of_rows(data["observations"]))
        memory = Memory(*(part[rows] for part in data["memory"]))
        means, values, _ = self.policy.read(features, memory, data["starts"][rows])
        distribution = self.policy.distribution.proba_distribution(means.flatten(0, 1), self.policy.log_std)
        log_probs = distribution.log_prob(data["actions"][rows].flatten(0, 1))
        entropy: Tensor = distribution.entropy().mean()  # type: ignore[union-attr]

        advantages = data["advantages"][rows].flatten()
        if self.normalize_advantage and len(advantages) > 1:
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        log_ratio = log_probs - data["log_probs"][rows].flatten()
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1.0 - clip_range, 1.0 + clip_range)
        policy_loss = -torch.min(advantages * ratio, advantages * clipped).mean()
        if self.clip_range_vf is not None:
            schedule: Any = self.clip_range_vf
            limit = schedule(self._current_progress_remaining)
            old = data["values"][rows]
            values = old + (values - old).clamp(-limit, limit)
        value_loss = F.mse_loss(values, data["returns"][rows])
        loss = policy_loss - self.ent_coef * entropy + self.vf_coef * value_loss
        with torch.no_grad():
            facts = {
                "loss": float(loss),
                "policy_gradient_loss": float(policy_loss),
                "value_loss": float(value_loss),
                "entropy_loss": -float(entropy),
                "approx_kl": float((ratio - 1.0 - log_ratio).mean()),
                "clip_fraction": float(((ratio - 1.0).abs() > clip_range).float().mean()),
            }
        return loss, facts

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "_memory", "_starting_memories"]
