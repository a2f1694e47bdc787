"""An agent as one safe file: its constructor's arguments, its spaces and its arrays. For any SB3 algorithm."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, TypeVar

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.type_aliases import GymEnv
from torch import Tensor

from tsac.agent import files

Agent = TypeVar("Agent", bound=BaseAlgorithm)

COUNTERS = ("num_timesteps", "_n_updates", "_episode_num", "_n_actor_updates", "_current_progress_remaining")


def agent_state(model: BaseAlgorithm) -> dict[str, Any]:
    """Everything that learning has changed: parameters, optimisers, counters."""
    _, variables = model._get_torch_save_params()
    return {
        "parameters": model.get_parameters(),
        "variables": {name: getattr(model, name).detach() for name in variables},
        "counters": {name: getattr(model, name) for name in COUNTERS if hasattr(model, name)},
    }


def set_agent_state(model: BaseAlgorithm, state: dict[str, Any]) -> None:
    model.set_parameters(state["parameters"], exact_match=True, device=model.device)
    for name, value in state["variables"].items():
        if not isinstance(getattr(model, name, None), Tensor):
            raise files.FileError(f"the agent has no variable {name!r}")
        getattr(model, name).data.copy_(value)
    for name, value in state["counters"].items():
        if name in COUNTERS:
            setattr(model, name, value)


def agent_content(model: BaseAlgorithm, algorithm: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """What a file of an agent holds.

    :param algorithm: the name to find the class by
    :param arguments: of its constructor; those that only code could bring back are left out and have to be given again
    """
    stored, missing = {}, []
    for name, value in arguments.items():
        try:
            files._pack(value, name, {})
        except files.NotStorableError:
            missing.append(name)
        else:
            stored[name] = value
    return {
        "algorithm": algorithm,
        "arguments": stored,
        "missing": missing,
        "observation_space": model.observation_space,
        "action_space": model.action_space,
        "n_envs": model.n_envs,
        "state": agent_state(model),
    }


def constructor_arguments(model: BaseAlgorithm) -> dict[str, Any]:
    """Of an algorithm that keeps each of them in an attribute of the same name and changes none."""
    names = list(inspect.signature(type(model).__init__).parameters)[1:]
    elsewhere = {"stats_window_size": "_stats_window_size"}
    skipped = ("policy", "env", "device", "_init_setup_model")
    return {name: getattr(model, elsewhere.get(name, name)) for name in names if name not in skipped}


def restore_agent(
    kind: type[Agent],
    content: dict[str, Any],
    path: str | Path,
    policy: Any = "MlpPolicy",
    env: GymEnv | None = None,
    device: Any = "auto",
    **overrides: Any,
) -> Agent:
    """The agent that a file describes. ``overrides`` replace constructor arguments."""
    try:
        arguments = {**content["arguments"], **overrides}
        absent = [name for name in content["missing"] if name not in overrides]
        if absent:
            raise files.FileError(
                f"{path} could not hold the argument {absent[0]}, which only code can make: give it to load() again."
            )
        model = kind(policy=policy, env=env, device=device, **arguments, _init_setup_model=False)  # type: ignore[call-arg]
        if env is None:
            model.observation_space = content["observation_space"]
            model.action_space = content["action_space"]
            model.n_envs = int(content["n_envs"])
        elif (model.observation_space, model.action_space) != (content["observation_space"], content["action_space"]):
            raise files.FileError(
                f"The agent in {path} was made for another task: it has {content['observation_space']} and "
                f"{content['action_space']}, this task has {model.observation_space} and {model.action_space}."
            )
        model._setup_model()
        set_agent_state(model, content["state"])
    except files.FileError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, AssertionError, IndexError) as error:
        if overrides:
            raise files.FileError(
                f"{path} cannot be loaded with another {', '.join(overrides)}: {files.reason(error)} (What decides how "
                "many networks and optimisers there are, and how large, cannot be replaced.)"
            ) from error
        raise files.FileError(
            f"{path} does not describe an agent of the kind {kind.__name__}: {files.reason(error)}"
        ) from error
    return model
