"""The networks of an agent, as an SB3 policy: actor, prefix critic and, where one is needed, its target."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.preprocessing import get_action_dim
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, CombinedExtractor, FlattenExtractor
from stable_baselines3.common.type_aliases import PyTorchObs, Schedule
from stable_baselines3.common.utils import ConstantSchedule, get_device
from torch import Tensor, nn

from tsac.agent import files
from tsac.agent.actor import Actor, EntropyForm
from tsac.agent.blocks import Precision
from tsac.agent.critic import Body, Critic, make_critic

STEP_INPUTS = ("state", "actions", "actor")


class TSACPolicy(BasePolicy):
    """
    :param observation_space: any space that SB3 flattens for its MLPs
    :param action_space: a box
    :param lr_schedule: unused: the optimisers belong to the algorithm
    :param net_arch: hidden widths of the actor: a list for both networks, or ``{"mean": [...], "std": [...]}``
    :param activation_fn: the actor's nonlinearity, a class or its name in ``torch.nn``
    :param layer_norm: normalise the actor's hidden layers before the nonlinearity
    :param output_scale: of the initial weights of the actor's last layers
    :param critic_body: what the critic reads a window with: ``transformer``, ``gru``, ``lstm`` or, without causality,
        ``mlp``, on the state and ``max_length`` actions laid flat
    :param critic_width: width of the critic's tokens; of an MLP, of its hidden layers
    :param critic_layers: the critic's blocks, or recurrent or hidden layers
    :param critic_heads: the critic's attention heads
    :param critic_residual: whether the Transformer's blocks have residual branches
    :param critic_causal: whether its attention is masked
    :param critic_attention: whether it attends at all
    :param n_critics: how many critics
    :param max_length: the longest window (set by the algorithm)
    :param chunk_length: actions that come out at once (set by the algorithm)
    :param entropy: form of the entropy (set by the algorithm)
    :param precision: of the critic's products (set by the algorithm)
    :param target_free: no copy of the critic is kept (set by the algorithm)
    :param step_index: which networks see the step index: any of ``"state"`` and ``"actions"`` (the critic's tokens)
        and ``"actor"``; for tasks with a fixed number of steps
    :param episode_length: that number of steps
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Box,
        lr_schedule: Schedule,
        net_arch: Sequence[int] | dict[str, Sequence[int]] = (256, 256),
        activation_fn: type[nn.Module] | str = nn.ReLU,
        layer_norm: bool = True,
        output_scale: float = 0.01,
        critic_body: Body = "transformer",
        critic_width: int = 64,
        critic_layers: int = 2,
        critic_heads: int = 4,
        critic_residual: bool = True,
        critic_causal: bool = True,
        critic_attention: bool = True,
        n_critics: int = 2,
        max_length: int = 16,
        chunk_length: int = 1,
        entropy: EntropyForm = "gaussian",
        precision: Precision = "highest",
        target_free: bool = False,
        step_index: Sequence[str] = (),
        episode_length: int | None = None,
        use_sde: bool = False,
    ) -> None:
        extractor: type[BaseFeaturesExtractor] = FlattenExtractor
        if isinstance(observation_space, spaces.Dict):
            extractor = CombinedExtractor
        super().__init__(observation_space, action_space, features_extractor_class=extractor, squash_output=True)
        self._arguments = {
            "net_arch": net_arch,
            "activation_fn": activation_fn,
            "layer_norm": layer_norm,
            "output_scale": output_scale,
            "critic_body": critic_body,
            "critic_width": critic_width,
            "critic_layers": critic_layers,
            "critic_heads": critic_heads,
            "critic_residual": critic_residual,
            "critic_causal": critic_causal,
            "critic_attention": critic_attention,
            "n_critics": n_critics,
            "max_length": max_length,
            "chunk_length": chunk_length,
            "entropy": entropy,
            "precision": precision,
            "target_free": target_free,
            "step_index": step_index,
            "episode_length": episode_length,
        }
        if use_sde:
            raise ValueError("T-SAC explores with its own Gaussian: use_sde is not supported.")
        unknown = [word for word in step_index if word not in STEP_INPUTS]
        if unknown:
            raise ValueError(f"step_index may name {', '.join(STEP_INPUTS)}; got {unknown[0]!r}.")
        if step_index and episode_length is None:
            raise ValueError("step_index needs episode_length, the fixed number of steps of the task's episodes.")
        if n_critics < 1 or critic_layers < 1:
            raise ValueError(f"n_critics and critic_layers must be at least 1; got {n_critics} and {critic_layers}.")
        if isinstance(net_arch, dict) and set(net_arch) != {"mean", "std"}:
            raise ValueError(
                f"net_arch must be a list of widths, or have one for mean and one for std; got {net_arch}."
            )
        activation: type[nn.Module] = getattr(nn, activation_fn) if isinstance(activation_fn, str) else activation_fn
        layers = net_arch if isinstance(net_arch, dict) else {"mean": net_arch, "std": net_arch}

        self.features_extractor = self.make_features_extractor()
        features, action_dim = self.features_extractor.features_dim, get_action_dim(action_space)
        self.chunk_length = chunk_length
        self.actor = Actor(
            features,
            action_dim,
            chunk_length=chunk_length,
            mean_layers=layers["mean"],
            std_layers=layers["std"],
            activation=activation,
            layer_norm=layer_norm,
            output_scale=output_scale,
            entropy=entropy,
            step_input="actor" in step_index,
            episode_length=episode_length or 1,
        )
        self.critic = make_critic(
            features,
            action_dim,
            critic_body,
            {
                "heads": critic_heads,
                "residual": critic_residual,
                "causal": critic_causal,
                "attention": critic_attention,
                "precision": precision,
            },
            critics=n_critics,
            width=critic_width,
            layers=critic_layers,
            max_length=max_length,
            step_in_state="state" in step_index,
            step_in_actions="actions" in step_index,
            episode_length=episode_length or 1,
        )
        # Target-free: next-state values are computed by the critic itself, once a round, before it changes.
        self.critic_target: Critic | None = None
        if not target_free:
            self.critic_target = copy.deepcopy(self.critic).requires_grad_(False)

    def save(self, path: Any) -> None:
        """As in SB3, but as a safetensors file."""
        spaces_ = {"observation_space": self.observation_space, "action_space": self.action_space}
        path = Path(path)
        files.write(
            path if path.suffix else path.with_name(path.name + files.SUFFIX),
            {**spaces_, "policy": self._arguments, "parameters": self.state_dict()},
        )

    @classmethod
    def load(cls, path: Any, device: torch.device | str = "auto") -> TSACPolicy:
        """As in SB3, from a file that ``save`` wrote; any other is refused."""
        found = files.find(path)
        content = files.read(found)
        try:
            policy = cls(
                content["observation_space"], content["action_space"], ConstantSchedule(0.0), **content["policy"]
            )
            policy.load_state_dict(content["parameters"])
        except (KeyError, TypeError, AttributeError, RuntimeError) as error:
            raise files.FileError(f"{found} holds no policy of T-SAC: {files.reason(error)}") from error
        policy.to(get_device(device))
        return policy

    def forward(self, observation: PyTorchObs, deterministic: bool = False) -> Tensor:
        return self._predict(observation, deterministic)

    def _predict(self, observation: PyTorchObs, deterministic: bool = False, steps: Tensor | None = None) -> Tensor:
        features = self.extract_features(observation, self.features_extractor)
        if deterministic:
            return self.actor.best(features, steps)
        return self.actor.sample(features, steps).actions

    def predict(
        self,
        observation: NDArray[Any] | dict[str, NDArray[Any]],
        state: tuple[NDArray[Any], ...] | None = None,
        episode_start: NDArray[Any] | None = None,
        deterministic: bool = False,
    ) -> tuple[NDArray[Any], tuple[NDArray[Any], ...] | None]:
        """As in SB3. What is carried in ``state``: the step index of every environment, from zero at ``episode_start``,
        and what is left of its chunk of actions, which is dropped there.
        """
        if not self.actor.step_input and self.chunk_length == 1:
            return super().predict(observation, state, episode_start, deterministic)
        self.set_training_mode(False)
        tensor, batched = self.obs_to_tensor(observation)
        count = next(iter(tensor.values())).shape[0] if isinstance(tensor, dict) else tensor.shape[0]
        shape = self.action_space.shape
        assert shape is not None
        if state is None:
            state = (
                np.zeros(count, dtype=np.int64),
                np.full(count, self.chunk_length, dtype=np.int64),
                np.zeros((count, self.chunk_length, *shape), dtype=np.float32),
            )
        steps, used, chunks = (array.copy() for array in state)
        if episode_start is not None:
            starts = np.asarray(episode_start, dtype=bool).reshape(-1)
            steps[starts] = 0
            used[starts] = self.chunk_length
        renewed = np.flatnonzero(used == self.chunk_length)
        if len(renewed):
            rows = torch.as_tensor(renewed, device=self.device)
            part = {key: value[rows] for key, value in tensor.items()} if isinstance(tensor, dict) else tensor[rows]
            with torch.no_grad():
                scaled = self._predict(part, deterministic, torch.as_tensor(steps[renewed], device=self.device))
            actions = self.unscale_action(scaled.cpu().numpy().reshape(-1, *shape))
            chunks[renewed] = actions.reshape(len(renewed), self.chunk_length, *shape)
            used[renewed] = 0
        chosen = chunks[np.arange(count), used]
        return (chosen if batched else chosen[0]), (steps + 1, used + 1, chunks)
