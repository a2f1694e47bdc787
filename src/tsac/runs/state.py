"""Everything in memory that decides how a run goes on, as data: taken at a checkpoint, put back at a resumption."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import VecEnv

from tsac.agent import saving
from tsac.runs import replay
from tsac.runs.agents import normalization_state, set_normalization_state
from tsac.runs.chapters import Recorded

# What an agent remembers of the environments from one step to the next.
COLLECTING = ("_last_obs", "_last_original_obs", "_last_episode_starts", "_policy_state", "_memory")


def take(model: BaseAlgorithm) -> dict[str, Any]:
    """Of the agent; valid between two iterations."""
    logger = model.logger
    episodes: list[dict[str, Any]] = list(model.ep_info_buffer or [])
    return {
        "agent": saving.agent_state(model),
        "replay": replay.position(model),
        "normalization": normalization_state(model.get_vec_normalize_env()),
        "random": _take_random(model),
        "logged": {
            "values": dict(logger.name_to_value),
            "counts": dict(logger.name_to_count),
            "excluded": dict(logger.name_to_excluded),
            "sums": dict(getattr(model, "_metrics", {})),
            "returns": [float(episode["r"]) for episode in episodes],
            "lengths": [int(episode["l"]) for episode in episodes],
            "successes": [bool(success) for success in model.ep_success_buffer or []],
        },
    }


def put(model: BaseAlgorithm, state: dict[str, Any]) -> None:
    """All but the statistics of the normalisation."""
    saving.set_agent_state(model, state["agent"])
    replay.set_position(model, state["replay"])
    _put_random(model, state["random"])
    logged = state["logged"]
    model.logger.name_to_value.update(logged["values"])
    model.logger.name_to_count.update(logged["counts"])
    model.logger.name_to_excluded.update(logged["excluded"])
    if hasattr(model, "_metrics"):
        model._metrics = logged["sums"]
    window = model._stats_window_size
    episodes = zip(logged["returns"], logged["lengths"], strict=True)
    model.ep_info_buffer = deque([{"r": total, "l": length} for total, length in episodes], maxlen=window)
    model.ep_success_buffer = deque(logged["successes"], maxlen=window)


def put_normalization(model: BaseAlgorithm, state: dict[str, Any]) -> None:
    normalizer = model.get_vec_normalize_env()
    if normalizer is not None and state["normalization"] is not None:
        set_normalization_state(normalizer, state["normalization"])


def take_collecting(model: BaseAlgorithm, recorded: Recorded) -> dict[str, Any] | None:
    """Of the middle of a chapter; None at its start."""
    if not recorded.actions:
        return None
    normalizer = model.get_vec_normalize_env()
    return {
        "environments": recorded.state(),
        "remembered": {name: getattr(model, name) for name in COLLECTING if hasattr(model, name)},
        "discounted": None if normalizer is None else normalizer.returns,
    }


def put_collecting(model: BaseAlgorithm, recorded: Recorded, state: dict[str, Any]) -> None:
    recorded.repeat(state["environments"])
    for name in COLLECTING:
        if name in state["remembered"]:
            setattr(model, name, state["remembered"][name])
    normalizer = model.get_vec_normalize_env()
    if normalizer is not None:
        normalizer.returns = state["discounted"]


def _take_random(model: BaseAlgorithm) -> dict[str, Any]:
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(legacy=False),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "actions": model.action_space.np_random.bit_generator.state,
    }


def _put_random(model: BaseAlgorithm, state: dict[str, Any]) -> None:
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if state["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])
    model.action_space.np_random.bit_generator.state = state["actions"]


def share_statistics(old: VecEnv | None, new: VecEnv) -> None:
    """The environments of the next chapter go on with the statistics of the last one."""
    from stable_baselines3.common.vec_env import unwrap_vec_normalize

    before, after = None if old is None else unwrap_vec_normalize(old), unwrap_vec_normalize(new)
    if before is not None and after is not None:
        after.ret_rms = before.ret_rms
        if after.norm_obs:
            after.obs_rms = before.obs_rms
