"""What the paper's robustness study does to a task: noise, false ends, hidden observations. All seeded by ``reset``."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

Array = NDArray[Any]
Wrapped = gym.Env[Array, Array]


class _Seeded(gym.Wrapper[Array, Array, Array, Array]):
    """Draws from a generator of its own: the task itself behaves as without the disturbance."""

    def __init__(self, env: Wrapped) -> None:
        super().__init__(env)
        self.random = np.random.default_rng()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        if seed is not None:
            self.random = np.random.default_rng([seed, *type(self).__name__.encode()])
        return self.env.reset(seed=seed, options=options)


class ObservationNoise(_Seeded):
    """Adds Gaussian noise to every observation; the result may leave the observation space, which is unbounded here."""

    def __init__(self, env: Wrapped, deviation: float = 0.05) -> None:
        super().__init__(env)
        self.deviation = deviation
        space = env.observation_space
        if not isinstance(space, spaces.Box):
            raise ValueError(f"Only vectors of numbers can be disturbed like this; this task has {space}.")
        self.observation_space = spaces.Box(-np.inf, np.inf, space.shape, space.dtype.type)

    def _noisy(self, observation: Array) -> Array:
        noise = self.deviation * self.random.standard_normal(observation.shape)
        return (observation + noise).astype(observation.dtype)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        observation, info = super().reset(seed=seed, options=options)
        return self._noisy(observation), info

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._noisy(observation), float(reward), terminated, truncated, info


class ActionNoise(_Seeded):
    """Adds Gaussian noise to every action, as a share of half the action's range, and keeps it within its bounds."""

    def __init__(self, env: Wrapped, deviation: float = 0.05) -> None:
        super().__init__(env)
        space = env.action_space
        if not isinstance(space, spaces.Box):
            raise ValueError(f"Only vectors of numbers can be disturbed like this; this task has {space}.")
        self.low, self.high = space.low, space.high
        self.deviation = deviation * (space.high - space.low) / 2.0

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        noise = self.deviation * self.random.standard_normal(np.shape(action))
        disturbed = np.clip(action + noise, self.low, self.high).astype(self.env.action_space.dtype)
        observation, reward, terminated, truncated, info = self.env.step(disturbed)
        return observation, float(reward), terminated, truncated, info


class FalseEnds(_Seeded):
    """Reports ends that are none: the episode is cut off as *terminated*, so nothing is bootstrapped beyond it.

    The paper gives the probability only. ``"step"`` ends every step with it: at 0.1, episodes of 10 steps on average.
    ``"episode"`` ends that share of the episodes, at a step drawn uniformly from the episode's length, and is the
    default: with the other reading hardly anything of a 1,000-step task would ever be seen.

    :param length: the most steps an episode may have; by default the task's own limit
    """

    def __init__(
        self,
        env: Wrapped,
        probability: float = 0.1,
        per: Literal["step", "episode"] = "episode",
        length: int | None = None,
    ) -> None:
        super().__init__(env)
        if per not in ("step", "episode"):
            raise ValueError(f'False ends come per "step" or per "episode"; got {per!r}.')
        if length is None and env.spec is not None:
            length = env.spec.max_episode_steps
        length = length or getattr(env.unwrapped, "episode_length", None)
        self.probability, self.per, self.length = probability, per, length or 1000
        self.steps = 0
        self.cut: int | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        answer = super().reset(seed=seed, options=options)
        self.steps = 0
        self.cut = None
        if self.per == "episode" and self.random.random() < self.probability:
            self.cut = int(self.random.integers(1, self.length + 1))
        return answer

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.steps += 1
        by_chance = self.per == "step" and self.random.random() < self.probability
        if (by_chance or self.steps == self.cut) and not (terminated or truncated):
            info["false_end"] = terminated = True
        return observation, float(reward), terminated, truncated, info


class HiddenObservations(gym.ObservationWrapper[Array, Array, Array]):
    """Removes the last part of the observation."""

    def __init__(self, env: Wrapped, share: float = 0.5) -> None:
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, spaces.Box):
            raise ValueError(f"Only vectors of numbers can be disturbed like this; this task has {space}.")
        self.kept = space.shape[0] - round(share * space.shape[0])
        if self.kept < 1:
            raise ValueError(
                f"Nothing is left of an observation of {space.shape[0]} numbers without {share:.0%} of it."
            )
        self.observation_space = spaces.Box(space.low[: self.kept], space.high[: self.kept], dtype=space.dtype.type)

    def observation(self, observation: Array) -> Array:
        return observation[: self.kept]
