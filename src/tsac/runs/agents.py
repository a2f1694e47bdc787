"""Agents of any algorithm: made from a specification, kept in a file, brought back from it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from tsac.agent import files, saving
from tsac.baselines import find_algorithm
from tsac.runs.evaluation import Predict
from tsac.runs.settings import SpecError, constructor_arguments, from_mapping, settings_type
from tsac.runs.spec import RunSpec, task_options


def make_agent(spec: RunSpec, env: VecEnv) -> BaseAlgorithm:
    """The agent before its first step, or a ``SpecError`` where its constructor refuses."""
    kind = find_algorithm(spec.algorithm).load()
    if not isinstance(env.action_space, spaces.Box):
        raise SpecError(f"{spec.algorithm} needs continuous actions, a Box; {spec.task} has {env.action_space}.")
    arguments = constructor_arguments(spec.algorithm, spec.agent, int(np.prod(env.action_space.shape)))
    try:
        return kind(policy_for(env), env, seed=spec.seed, device=spec.device, **arguments)
    except Exception as error:  # libraries refuse in many ways; here nothing has been started that could be lost
        raise SpecError(f"{spec.algorithm} refuses these settings: {files.reason(error)}") from error


def predictor(model: BaseAlgorithm, normalizer: Normalizer) -> Predict:
    """The deterministic policy."""

    def predict(observation: Any, state: Any, starts: NDArray[np.bool_]) -> tuple[NDArray[Any], Any]:
        return model.predict(normalizer(observation), state, starts, deterministic=True)

    return predict


def policy_for(env: VecEnv) -> str:
    return "MultiInputPolicy" if isinstance(env.observation_space, spaces.Dict) else "MlpPolicy"


# ------------------------------------------------------------------------------------------ running statistics


def normalization_state(env: VecNormalize | None) -> dict[str, Any] | None:
    if env is None:
        return None
    kept: dict[str, Any] = {
        "rewards": _moments(env.ret_rms),
        "epsilon": env.epsilon,
        "clip": env.clip_obs,
        "norm_obs": env.norm_obs,
    }
    if env.norm_obs:
        rms = env.obs_rms
        kept["observations"] = {k: _moments(v) for k, v in rms.items()} if isinstance(rms, dict) else _moments(rms)
    return kept


def set_normalization_state(env: VecNormalize, state: dict[str, Any]) -> None:
    _set_moments(env.ret_rms, state["rewards"])
    if env.norm_obs:
        if isinstance(env.obs_rms, dict):
            for key, rms in env.obs_rms.items():
                _set_moments(rms, state["observations"][key])
        else:
            _set_moments(env.obs_rms, state["observations"])


def _moments(rms: Any) -> dict[str, Any]:
    return {"mean": np.asarray(rms.mean), "var": np.asarray(rms.var), "count": float(rms.count)}


def _set_moments(rms: Any, state: dict[str, Any]) -> None:
    rms.mean, rms.var, rms.count = state["mean"].copy(), state["var"].copy(), state["count"]


class Normalizer:
    """What VecNormalize did to the observations that a policy learned from."""

    def __init__(self, state: dict[str, Any] | None) -> None:
        self.state = state if state is not None and state["norm_obs"] else None

    def __call__(self, observation: Any) -> Any:
        if self.state is None:
            return observation
        moments = self.state["observations"]
        if isinstance(observation, dict):
            return {
                key: self._one(value, moments[key]) if key in moments else value for key, value in observation.items()
            }
        return self._one(observation, moments)

    def _one(self, value: NDArray[Any], moments: dict[str, Any]) -> NDArray[np.float32]:
        assert self.state is not None
        limit, epsilon = self.state["clip"], self.state["epsilon"]
        scaled = (value - moments["mean"]) / np.sqrt(moments["var"] + epsilon)
        clipped: NDArray[np.float32] = np.clip(scaled, -limit, limit).astype(np.float32)
        return clipped


# ------------------------------------------------------------------------------------------ files


def save_agent(path: Path, model: BaseAlgorithm, spec: RunSpec, step: int, statistics: dict[str, Any] | None) -> None:
    """The agent in one safe file. One of T-SAC is also read by ``TSAC.load``.

    :param statistics: what ``normalization_state`` gave
    """
    if spec.algorithm == "tsac":
        arguments = saving.constructor_arguments(model)
        del arguments["replay_buffer_class"]
    else:
        arguments = dataclasses.asdict(spec.agent)
    content = saving.agent_content(model, spec.algorithm, arguments)
    facts = {
        "task": spec.task,
        "disturbances": task_options(spec),
        "step": step,
        "normalization": statistics,
    }
    files.write(path, {**content, **facts})


def load_agent(path: Path, device: str = "auto") -> tuple[BaseAlgorithm, Normalizer, dict[str, Any]]:
    """The agent, what normalises its observations, and the file's other content."""
    content = files.read(path)
    try:
        algorithm = find_algorithm(content["algorithm"])
        dictionary = isinstance(content["observation_space"], spaces.Dict)
        policy = "MultiInputPolicy" if dictionary else "MlpPolicy"
        if not isinstance(content["action_space"], spaces.Box):
            raise files.FileError(f"{path} holds no agent with continuous actions.")
        if algorithm.name != "tsac":
            settings = from_mapping(settings_type(algorithm.name), content["arguments"], "agent")
            actions = int(np.prod(content["action_space"].shape))
            content["arguments"] = constructor_arguments(algorithm.name, settings, actions)
            if content["arguments"].get("target_entropy") == "auto":
                content["arguments"]["target_entropy"] = -float(actions)  # SB3 would ask an environment
        if not isinstance(content["arguments"], dict):
            raise files.FileError(f"{path} holds no agent.")
        if "buffer_size" in content["arguments"]:
            content["arguments"]["buffer_size"] = 1  # nothing is to be learned
        model = saving.restore_agent(algorithm.load(), content, path, policy, device=device)
        normalizer = Normalizer(content.get("normalization"))
        normalizer(model.observation_space.sample())
    except (files.FileError, SpecError, ModuleNotFoundError):
        raise
    except Exception as error:  # whatever a file may hold that we have not written
        raise files.FileError(f"{path} holds no agent: {files.reason(error)}") from error
    return model, normalizer, content
