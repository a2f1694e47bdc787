"""The environments of a chapter: made anew at its start, brought back into its middle by doing its actions again."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecNormalize

from tsac.runs.spec import RunSpec, task_options
from tsac.tasks import make_vec


class ResumeError(RuntimeError):
    """An interrupted run that cannot go on, in a sentence."""


class Recorded(VecEnvWrapper):
    """Remembers the actions since the reset."""

    def __init__(self, venv: VecEnv) -> None:
        super().__init__(venv)
        self.actions: list[NDArray[Any]] = []
        self.observation: Any = None

    def seed(self, seed: int | None = None) -> list[None]:
        """Nobody else's business: an algorithm that is made would give its own seed to environments of any chapter."""
        return [None] * self.num_envs

    def reset(self) -> Any:
        self.actions = []
        self.observation = self.venv.reset()
        return self.observation

    def step_async(self, actions: NDArray[Any]) -> None:
        self.actions.append(np.array(actions, copy=True))
        self.venv.step_async(actions)

    def step_wait(self) -> Any:
        answer = self.venv.step_wait()
        self.observation = answer[0]
        return answer

    def state(self) -> dict[str, Any]:
        return {"actions": np.stack(self.actions), "observation": self.observation}

    def repeat(self, state: dict[str, Any]) -> None:
        """Do the actions of an interrupted chapter once more."""
        self.reset()
        for actions in state["actions"]:
            self.step(actions)
        if not _equal(self.observation, state["observation"]):
            raise ResumeError(
                "The task does not repeat itself: the same seed and the same actions led to another observation than "
                "before the interruption. Was it run on another machine or with other versions? (run.json says which)"
            )


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return all(_equal(one[key], other[key]) for key in one)
    return bool(np.array_equal(one, other))


def make_environments(spec: RunSpec, chapter: int) -> tuple[Recorded, VecEnv]:
    """The environments of a chapter, and what the agent sees of them."""
    seed = int(np.random.SeedSequence([spec.seed, chapter]).generate_state(1)[0] >> 1)
    envs = make_vec(spec.task, spec.environments, seed, processes=spec.processes, **task_options(spec))
    recorded = Recorded(envs)
    wanted = spec.normalization
    if not (wanted.observations or wanted.rewards):
        return recorded, recorded
    gamma = spec.agent.gamma
    return recorded, VecNormalize(recorded, norm_obs=wanted.observations, norm_reward=wanted.rewards, gamma=gamma)
