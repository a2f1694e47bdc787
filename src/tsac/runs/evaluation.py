"""Episodes of the deterministic policy, always from the same starts."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from tsac.tasks import make_task

FIRST_SEED = 1_000_000  # of the evaluation's episodes, the same for every run
GROUP = 16  # episodes that are played side by side, so that the policy is asked for many actions at once

# Observations, the policy's own state and where episodes start, in; actions and the new state out.
Predict = Callable[[Any, Any, NDArray[np.bool_]], tuple[NDArray[Any], Any]]


class Episode(NamedTuple):
    number: int
    total: float  # undiscounted return
    length: int
    success: bool | None  # at the last step; None where the task knows no success


class Summary(NamedTuple):
    total: float
    success: float | None

    @property
    def order(self) -> tuple[float, float]:
        """What makes one evaluation better than another: success first."""
        return (self.success or 0.0, self.total)

    def __str__(self) -> str:
        return f"return {self.total:.1f}" + ("" if self.success is None else f", success {self.success:.0%}")


def summary(episodes: list[Episode]) -> Summary:
    known = [episode.success for episode in episodes if episode.success is not None]
    return Summary(float(np.mean([episode.total for episode in episodes])), float(np.mean(known)) if known else None)


class Evaluator:
    """Plays episodes of one task; keeps its environments from one evaluation to the next.

    Episode i starts from the same seed in every evaluation, and plays in the same group however many processes share
    the work: neither changes a result.

    :param options: of ``make_task``
    """

    def __init__(self, task: str, options: dict[str, Any]) -> None:
        self.task, self.options = task, options
        self.envs: list[gym.Env[Any, Any]] = []

    def play(self, predict: Predict, numbers: range) -> list[Episode]:
        episodes: list[Episode] = []
        for first in range(numbers.start, numbers.stop, GROUP):
            group = range(first, min(first + GROUP, numbers.stop))
            while len(self.envs) < len(group):
                self.envs.append(make_task(self.task, **self.options))
            episodes += play_group(predict, self.envs[: len(group)], list(group))
        return episodes

    def close(self) -> None:
        for env in self.envs:
            env.close()
        self.envs = []


def play_group(predict: Predict, envs: list[gym.Env[Any, Any]], numbers: list[int]) -> list[Episode]:
    count = len(envs)
    observations = [env.reset(seed=FIRST_SEED + number)[0] for env, number in zip(envs, numbers, strict=True)]
    totals, lengths = [0.0] * count, [0] * count
    successes: list[bool | None] = [None] * count
    playing = list(range(count))
    starts, state = np.ones(count, dtype=bool), None
    while playing:
        actions, state = predict(stacked(observations), state, starts)
        starts = np.zeros(count, dtype=bool)
        for i in playing:
            observations[i], reward, terminated, truncated, info = envs[i].step(actions[i])
            totals[i] += float(reward)
            lengths[i] += 1
            if terminated or truncated:
                successes[i] = bool(info["success"]) if "success" in info else None
                playing = [j for j in playing if j != i]
    return [Episode(*episode) for episode in zip(numbers, totals, lengths, successes, strict=True)]


def stacked(observations: list[Any]) -> Any:
    if isinstance(observations[0], dict):
        return {key: np.stack([observation[key] for observation in observations]) for key in observations[0]}
    return np.stack(observations)


# ------------------------------------------------------------------------------------------ over processes


def evaluate_file(
    policy: Path, task: str, options: dict[str, Any], episodes: int, processes: int = 1, device: str = "cpu"
) -> list[Episode]:
    """Evaluate the policy in a file, its groups of episodes shared by some processes."""
    groups = [range(first, min(first + GROUP, episodes)) for first in range(0, episodes, GROUP)]
    processes = min(processes, len(groups))
    if processes <= 1:
        return _play_shares(policy, task, options, groups, device)
    # Not forked: threads of PyTorch and graphics contexts do not survive that.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        shares = [groups[number::processes] for number in range(processes)]
        futures = [pool.submit(_play_shares, policy, task, options, share, device, True) for share in shares]
        played = [episode for future in futures for episode in future.result()]
    return sorted(played)


def _play_shares(
    policy: Path, task: str, options: dict[str, Any], groups: list[range], device: str, alone: bool = False
) -> list[Episode]:
    import torch

    from tsac.runs.agents import load_agent, predictor

    if alone:
        torch.set_num_threads(1)
    model, normalizer, _ = load_agent(policy, device)
    evaluator = Evaluator(task, options)
    played = [episode for group in groups for episode in evaluator.play(predictor(model, normalizer), group)]
    evaluator.close()
    return played
