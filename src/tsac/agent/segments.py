"""The segment replay buffer: consecutive steps stay together, every observation is stored once."""

from __future__ import annotations

import math
import mmap
import sys
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.buffers import BaseBuffer, ReplayBuffer
from stable_baselines3.common.preprocessing import get_flattened_obs_dim
from stable_baselines3.common.vec_env import VecNormalize
from torch import Tensor

Observation = NDArray[Any] | dict[str, NDArray[Any]]
MAP_NORESERVE = 0x4000  # Linux's; the standard library has it from Python 3.12 on
STORED = ("observations", "actions", "rewards", "terminated", "ends", "first_step")  # one entry per segment


def room(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Memory that is taken up as it is written. On Linux it may be more than the machine has, as long as it stays
    empty: a buffer for twenty million steps costs nothing in a run of one million.
    """
    if device.type != "cpu" or sys.platform != "linux":
        return torch.empty(shape, dtype=dtype, device=device)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
    memory = mmap.mmap(-1, math.prod(shape) * dtype.itemsize, flags=flags)
    return torch.frombuffer(memory, dtype=dtype).view(shape)


class SegmentBatch(NamedTuple):
    """Sampled segments, time along the second dimension."""

    observations: Tensor  # [batch, segment_length, observation]
    next_observations: Tensor  # the same, one step on; after an end, the true final observation
    actions: Tensor  # [batch, segment_length, action], scaled to [-1, 1]
    rewards: Tensor  # [batch, segment_length]
    terminated: Tensor  # bool: no bootstrap beyond this step
    ends: Tensor  # bool: last step of an episode, terminated or truncated
    steps: Tensor  # int64: index of the step within its episode


def flatten_observation(observation: Observation, space: spaces.Space[Any], n_envs: int) -> NDArray[np.float32]:
    """Observations of all environments as ``[n_envs, features]``, in the order of SB3's own extractors for MLPs."""
    if isinstance(space, spaces.Dict):
        assert isinstance(observation, dict)
        parts = [flatten_observation(observation[key], part, n_envs) for key, part in space.spaces.items()]
        return np.concatenate(parts, axis=1)
    assert not isinstance(observation, dict)
    if isinstance(space, spaces.Discrete):
        return np.eye(int(space.n), dtype=np.float32)[observation.reshape(n_envs).astype(np.int64) - int(space.start)]
    if isinstance(space, spaces.MultiDiscrete):
        columns = observation.reshape(n_envs, -1).astype(np.int64)
        return np.concatenate([np.eye(n, dtype=np.float32)[columns[:, i]] for i, n in enumerate(space.nvec.ravel())], 1)
    return np.asarray(observation, dtype=np.float32).reshape(n_envs, -1)


class SegmentReplayBuffer(ReplayBuffer):
    """Fixed-length segments of the experience of any number of environments.

    Episodes are packed one after another; a segment may hold several ends. A segment of length L holds L + 1
    observations. Only where an episode ends *inside* a segment, the observation that follows is not the one that the
    step led to: these true final observations are kept in a table of their own, so nothing is lost at a truncation.

    Segments become available for sampling when they are complete. A step takes little more than its observation:
    two million transitions of 376 numbers fit in 3.4 GB where episodes last 50 steps and longer. Memory is
    committed as the buffer fills on a CPU; on a GPU it is reserved at the start, so that a run cannot run out of it
    later.

    :param buffer_size: capacity in transitions, all environments together
    :param segment_length: steps in a segment
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: torch.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        segment_length: int = 20,
    ) -> None:
        if optimize_memory_usage:
            raise ValueError("optimize_memory_usage has no effect here: segments already store observations once.")
        BaseBuffer.__init__(self, buffer_size, observation_space, action_space, device, n_envs)
        self.segment_length = segment_length
        self.capacity = max(buffer_size // (segment_length * n_envs), 1) * n_envs  # in segments
        self.buffer_size = self.capacity * segment_length
        self.handle_timeout_termination = True
        features = get_flattened_obs_dim(observation_space)

        def stored(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return room((self.capacity, *shape), dtype, self.device)

        self._observations = stored(segment_length + 1, features)
        self._actions = stored(segment_length, self.action_dim)
        self._rewards = stored(segment_length)
        self._terminated = stored(segment_length, dtype=torch.bool)
        self._ends = stored(segment_length, dtype=torch.bool)
        self._first_step = stored(dtype=torch.int32)
        # Row of the table of final observations, -1 where the next observation follows in the segment itself.
        self._final_row = stored(segment_length, dtype=torch.int32)
        self._finals = torch.empty(0, features, device=self.device)
        self._free_rows: list[int] = []
        self._rows_of_segment: dict[int, list[int]] = {}

        self._new = _UnfinishedSegments(n_envs, segment_length, features, self.action_dim)
        self.reset()

    def reset(self) -> None:
        super().reset()
        self.written = 0  # segments stored so far, those that were stored over others counted as well
        self._free_rows = list(range(self._finals.shape[0]))
        self._rows_of_segment = {}
        self._new.reset()

    @property
    def n_segments(self) -> int:
        """Complete segments that can be sampled."""
        return self.capacity if self.full else self.pos

    def size(self) -> int:
        """Transitions that can be sampled, all environments together."""
        return self.n_segments * self.segment_length

    def add(
        self,
        obs: Observation,
        next_obs: Observation,
        action: NDArray[Any],
        reward: NDArray[Any],
        done: NDArray[Any],
        infos: list[dict[str, Any]],
    ) -> None:
        """One step of every environment. ``next_obs`` is the true next observation, also where ``done``."""
        self._new.append(
            flatten_observation(obs, self.observation_space, self.n_envs),
            flatten_observation(next_obs, self.observation_space, self.n_envs),
            np.asarray(action, dtype=np.float32).reshape(self.n_envs, self.action_dim),
            np.asarray(reward, dtype=np.float32),
            np.asarray(done, dtype=bool),
            np.array([bool(info.get("TimeLimit.truncated", False)) for info in infos]),
        )
        if self._new.length == self.segment_length:
            self._store(self._new)
            self._new.clear()

    @property
    def unfinished(self) -> int:
        """Steps of the segments that are being collected."""
        return self._new.length

    def interrupt(self) -> None:
        """The environments are about to be reset: what is added next does not follow what was added last."""
        self._new.interrupted = True

    def _store(self, new: _UnfinishedSegments) -> None:
        content = {name: torch.from_numpy(getattr(new, name)) for name in STORED}
        content["final_at"] = torch.tensor([(env, step) for env, step, _ in new.finals], dtype=torch.int64)
        features = new.observations.shape[2]
        content["finals"] = torch.from_numpy(
            np.stack([final for _, _, final in new.finals]) if new.finals else np.zeros((0, features), np.float32)
        )
        self.put(self.pos, content)
        self.written += self.n_envs
        self.pos += self.n_envs
        if self.pos == self.capacity:
            self.full = True
            self.pos = 0

    def put(self, first: int, content: dict[str, Tensor]) -> None:
        """Store segments from a place of the buffer on.

        :param content: as ``part`` gives it
        """
        count = content["ends"].shape[0]
        slots = slice(first, first + count)
        for slot in range(first, first + count):
            self._free_rows.extend(self._rows_of_segment.pop(slot, []))
        for name in STORED:
            getattr(self, f"_{name}")[slots] = content[name].to(self.device)
        final_row = torch.full((count, self.segment_length), -1, dtype=torch.int32)
        if len(content["finals"]):
            rows = self._take_rows(len(content["finals"]))
            for row, (segment, step) in zip(rows, content["final_at"].tolist(), strict=True):
                final_row[segment, step] = row
                self._rows_of_segment.setdefault(first + segment, []).append(row)
            self._finals[torch.tensor(rows, device=self.device)] = content["finals"].to(self.device)
        self._final_row[slots] = final_row.to(self.device)

    def part(self, first: int, count: int) -> dict[str, Tensor]:
        """The segments at ``count`` places from ``first`` on, as they are stored: copies, on the CPU."""
        slots = slice(first, first + count)
        content: dict[str, Tensor] = {name: getattr(self, f"_{name}")[slots].cpu() for name in STORED}
        rows = self._final_row[slots].cpu()
        content["final_at"] = (rows >= 0).nonzero()
        content["finals"] = self._finals[rows[rows >= 0].long().to(self.device)].cpu()
        return content

    def content(self) -> dict[str, Any]:
        """All that ``set_content`` needs to make an equal buffer."""
        return {
            "n_envs": self.n_envs,
            "segment_length": self.segment_length,
            "pos": self.pos,
            "full": self.full,
            "segments": self.part(0, self.n_segments),
            "unfinished": self.unfinished_state(),
        }

    def set_content(self, content: dict[str, Any]) -> None:
        for name in ("segment_length", "n_envs"):
            if content[name] != getattr(self, name):
                raise ValueError(
                    f"The saved replay buffer has {name} {content[name]}, this agent {getattr(self, name)}."
                )
        stored = len(content["segments"]["ends"])
        if stored > self.capacity or (content["full"] and stored != self.capacity):
            raise ValueError(
                f"The saved replay buffer holds {stored} segments, this agent's has room for {self.capacity}."
            )
        for name in (*STORED, "finals"):
            saved, own = content["segments"][name], getattr(self, f"_{name}")
            if (saved.dtype, saved.shape[1:]) != (own.dtype, own.shape[1:]):
                raise ValueError(
                    f"The saved replay buffer is of another task: its {name} have the shape {list(saved.shape[1:])}, "
                    f"this agent's {list(own.shape[1:])}."
                )
        self.reset()
        self.put(0, content["segments"])
        self.full = content["full"] or stored == self.capacity
        self.pos, self.written = content["pos"] % self.capacity, stored
        self.set_unfinished_state(content["unfinished"])

    def unfinished_state(self) -> dict[str, Any]:
        """The segments that are being collected."""
        return dict(vars(self._new))

    def set_unfinished_state(self, state: dict[str, Any]) -> None:
        vars(self._new).update(state)

    def _take_rows(self, count: int) -> list[int]:
        missing = count - len(self._free_rows)
        if missing > 0:
            used = self._finals.shape[0]
            extra = max(missing, used // 16, 64)
            room = torch.zeros(extra, self._finals.shape[1], device=self.device)
            self._finals = torch.cat([self._finals, room])
            self._free_rows.extend(range(used, used + extra))
        return [self._free_rows.pop() for _ in range(count)]

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> SegmentBatch:  # type: ignore[override]
        """Uniformly drawn complete segments, with replacement.

        :param env: normalises observations and rewards with its current statistics
        """
        if self.n_segments == 0:
            raise ValueError("The buffer holds no complete segment yet.")
        slots = torch.randint(self.n_segments, (batch_size,), device=self.device)
        return self.segments(slots, env)

    def segments(self, slots: Tensor, env: VecNormalize | None = None) -> SegmentBatch:
        """The segments at the given places of the buffer."""
        observations = self._observations[slots]
        next_observations = observations[:, 1:]
        ends = self._ends[slots]
        if self._finals.shape[0] > 0:
            rows = self._final_row[slots]
            finals = self._finals[rows.clamp(min=0)]
            next_observations = torch.where((rows >= 0).unsqueeze(-1), finals, next_observations)
        rewards = self._rewards[slots]
        observations = observations[:, :-1]
        if env is not None:
            observations = normalize_observations(observations, env)
            next_observations = normalize_observations(next_observations, env)
            rewards = normalize_rewards(rewards, env)
        return SegmentBatch(
            observations,
            next_observations,
            self._actions[slots],
            rewards,
            self._terminated[slots],
            ends,
            step_indices(self._first_step[slots], ends),
        )


def step_indices(first_step: Tensor, ends: Tensor) -> Tensor:
    """Index of every step within its episode, from that of the segment's first step and the ends inside it."""
    length = ends.shape[1]
    position = torch.arange(length, device=ends.device)
    after_end = torch.zeros_like(ends, dtype=torch.int64)
    after_end[:, 1:] = torch.where(ends[:, :-1], position[1:], 0)
    episode_start = after_end.cummax(dim=1).values  # 0: the segment's first episode
    started_before = torch.where(episode_start == 0, first_step.to(torch.int64).unsqueeze(1), 0)
    return position - episode_start + started_before


def normalize_observations(observations: Tensor, env: VecNormalize) -> Tensor:
    """``VecNormalize.normalize_obs`` for flattened observations on any device."""
    if not env.norm_obs:
        return observations
    if isinstance(env.obs_rms, dict):
        assert isinstance(env.observation_space, spaces.Dict)
        means, variances = [], []
        for key, space in env.observation_space.spaces.items():
            features = get_flattened_obs_dim(space)
            rms = env.obs_rms.get(key)
            means.append(np.zeros(features) if rms is None else rms.mean.ravel())
            variances.append(np.full(features, 1.0 - env.epsilon) if rms is None else rms.var.ravel())
        mean, variance = np.concatenate(means), np.concatenate(variances)
        clipped = np.concatenate(
            [
                np.full(get_flattened_obs_dim(space), env.clip_obs if key in env.obs_rms else np.inf)
                for key, space in env.observation_space.spaces.items()
            ]
        )
    else:
        mean, variance = env.obs_rms.mean.ravel(), env.obs_rms.var.ravel()
        clipped = np.full_like(mean, env.clip_obs)

    def on_device(array: NDArray[Any]) -> Tensor:
        return torch.as_tensor(array, dtype=observations.dtype).to(observations.device, non_blocking=True)

    limit = on_device(clipped)
    scale = on_device(1.0 / np.sqrt(variance + env.epsilon))
    return ((observations - on_device(mean)) * scale).clamp(-limit, limit)


def normalize_rewards(rewards: Tensor, env: VecNormalize) -> Tensor:
    """``VecNormalize.normalize_reward`` for tensors on any device."""
    if not env.norm_reward:
        return rewards
    scale = float(1.0 / np.sqrt(env.ret_rms.var + env.epsilon))
    return (rewards * scale).clamp(-env.clip_reward, env.clip_reward)


class _UnfinishedSegments:
    """The segments that are being collected, one per environment, in NumPy: one transfer when they are complete."""

    def __init__(self, n_envs: int, segment_length: int, features: int, action_dim: int) -> None:
        self.observations = np.zeros((n_envs, segment_length + 1, features), dtype=np.float32)
        self.actions = np.zeros((n_envs, segment_length, action_dim), dtype=np.float32)
        self.rewards = np.zeros((n_envs, segment_length), dtype=np.float32)
        self.terminated = np.zeros((n_envs, segment_length), dtype=bool)
        self.ends = np.zeros((n_envs, segment_length), dtype=bool)
        self.first_step = np.zeros(n_envs, dtype=np.int32)
        self.reset()

    def reset(self) -> None:
        self.clear()
        self._episode_step = np.zeros(len(self.first_step), dtype=np.int32)
        self._expected: NDArray[np.float32] | None = None  # the observation each environment is expected to go on from
        self._done = np.ones(len(self.first_step), dtype=bool)
        self.interrupted = False

    def clear(self) -> None:
        self.length = 0
        self.finals: list[tuple[int, int, NDArray[np.float32]]] = []  # (environment, step, true final observation)

    def append(
        self,
        observation: NDArray[np.float32],
        next_observation: NDArray[np.float32],
        action: NDArray[np.float32],
        reward: NDArray[np.float32],
        done: NDArray[np.bool_],
        timed_out: NDArray[np.bool_],
    ) -> None:
        t = self.length
        if self._expected is not None:
            # An environment was reset in the middle of an episode, announced or not: a truncation.
            jumped = ~self._done & (self.interrupted | (self._expected != observation).any(axis=1))
            if t > 0:
                self.ends[jumped, t - 1] = True
            self._episode_step[self._done | jumped] = 0
            if t > 0:
                for env in np.flatnonzero(self._done | jumped):
                    self.finals.append((int(env), t - 1, self._expected[env]))
        self.interrupted = False
        if t == 0:
            self.first_step[:] = self._episode_step
        self.observations[:, t] = observation
        self.observations[:, t + 1] = next_observation
        self.actions[:, t] = action
        self.rewards[:, t] = reward
        self.ends[:, t] = done
        self.terminated[:, t] = done & ~timed_out
        self._episode_step += 1
        self._done = done.copy()
        self._expected = next_observation.copy()
        self.length += 1
