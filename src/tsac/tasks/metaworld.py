"""Meta-World's tasks as the paper runs them: one at a time, a new goal at every reset, the goal visible."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

TASKS = (
    "assembly",
    "basketball",
    "bin-picking",
    "box-close",
    "button-press",
    "button-press-topdown",
    "button-press-topdown-wall",
    "button-press-wall",
    "coffee-button",
    "coffee-pull",
    "coffee-push",
    "dial-turn",
    "disassemble",
    "door-close",
    "door-lock",
    "door-open",
    "door-unlock",
    "drawer-close",
    "drawer-open",
    "faucet-close",
    "faucet-open",
    "hammer",
    "hand-insert",
    "handle-press",
    "handle-press-side",
    "handle-pull",
    "handle-pull-side",
    "lever-pull",
    "peg-insert-side",
    "peg-unplug-side",
    "pick-out-of-hole",
    "pick-place",
    "pick-place-wall",
    "plate-slide",
    "plate-slide-back",
    "plate-slide-back-side",
    "plate-slide-side",
    "push",
    "push-back",
    "push-wall",
    "reach",
    "reach-wall",
    "shelf-place",
    "soccer",
    "stick-pull",
    "stick-push",
    "sweep",
    "sweep-into",
    "window-close",
    "window-open",
)


class MetaWorldTask(gym.Env[Array, Array]):
    """One task of the package, 500 steps. Goals come from the task's own range, not from a fixed list of 50.

    :param name: the task's name in the package, such as ``assembly-v3``
    :param render_mode: ``rgb_array`` or None
    """

    metadata = {"render_modes": ["rgb_array"]}
    episode_length = 500

    def __init__(self, name: str, render_mode: str | None = None) -> None:
        from metaworld.env_dict import ALL_V3_ENVIRONMENTS

        self.task: Any = ALL_V3_ENVIRONMENTS[name](render_mode=render_mode)  # type: ignore[arg-type]
        self.render_mode = render_mode
        self.metadata = {**self.task.metadata, "render_modes": ["rgb_array"]}
        # What the package's own benchmark classes set through a pickled task:
        self.task._set_task_called = True
        self.task._freeze_rand_vec = False
        self.task.seeded_rand_vec = True
        self.task._partially_observable = False
        self.task.__dict__.pop("sawyer_observation_space", None)  # cached while the goal was still hidden
        self.observation_space: Any = self.task.sawyer_observation_space
        self.action_space = self.task.action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.task.np_random = np.random.default_rng(seed)
        observation, _ = self.task.reset()
        return self._within_bounds(observation), {"success": False}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.task.step(action)
        info["success"] = bool(info["success"])
        return observation, float(reward), terminated, truncated, info

    def _within_bounds(self, observation: Array) -> Array:
        """As the package does in ``step``, but not in ``reset``."""
        return np.clip(observation, self.observation_space.low, self.observation_space.high)

    def render(self) -> Any:
        return self.task.render()

    def close(self) -> None:
        self.task.close()
