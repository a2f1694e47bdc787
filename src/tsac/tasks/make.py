"""Every task behind one call."""

from __future__ import annotations

import difflib
import warnings
from typing import Any

import gymnasium as gym

from tsac.tasks import disturbances
from tsac.tasks.registration import register
from tsac.tasks.rendering import render_without_screen
from tsac.tasks.suites import PAPER_TASKS

register()

INSTALL = 'pip install "tsac[tasks]"'


def make_task(
    name: str,
    seed: int | None = None,
    *,
    observation_noise: float = 0.0,
    action_noise: float = 0.0,
    false_ends: float = 0.0,
    false_ends_per: Any = "episode",
    hidden: float = 0.0,
    **options: Any,
) -> gym.Env[Any, Any]:
    """A task as a Gymnasium environment.

    :param name: one of ``tsac.tasks.PAPER_TASKS`` or any id that Gymnasium knows
    :param seed: of the first reset that is given none; later resets go on from there
    :param observation_noise: deviation of the noise on observations (the paper's study: 0.05)
    :param action_noise: deviation of the noise on actions, relative to half their range (0.05)
    :param false_ends: probability of a false end (0.1)
    :param false_ends_per: ``"episode"`` or ``"step"``
    :param hidden: share of the observation, from its end, that is removed (0.5)
    :param options: passed to the environment, such as ``render_mode="rgb_array"``
    """
    if ":" in name:  # Gymnasium would import a module of that name: a file could make us execute anything
        raise ValueError(f"There is no task {name!r}: what is before a colon is never imported for its name.")
    if options.get("render_mode"):
        render_without_screen()
    try:
        with warnings.catch_warnings():
            # The paper's suite is v4; that there is a v5 is no news to who asked for it by name.
            warnings.filterwarnings("ignore", message=".*is out of date.*")
            env: gym.Env[Any, Any] = gym.make(name, disable_env_checker=True, **options)
    except (gym.error.DependencyNotInstalled, ModuleNotFoundError) as error:
        missing = getattr(error, "name", None) or str(error).split(" is not installed")[0]
        raise ModuleNotFoundError(f"The task {name} needs {missing}, which is not installed: {INSTALL}") from error
    except gym.error.Error as error:
        raise ValueError(unknown_task(name)) from error
    if action_noise:
        env = disturbances.ActionNoise(env, action_noise)
    if false_ends:
        env = disturbances.FalseEnds(env, false_ends, false_ends_per)
    if observation_noise:
        env = disturbances.ObservationNoise(env, observation_noise)
    if hidden:
        env = disturbances.HiddenObservations(env, hidden)
    return _FirstSeed(env, seed)


def unknown_task(name: str) -> str:
    """What to say where there is no such task: the nearest names there are."""
    known = list(dict.fromkeys([*PAPER_TASKS, *gym.registry]))
    simple = {candidate.split("/")[-1].lower(): candidate for candidate in reversed(known)}
    near = difflib.get_close_matches(name.split("/")[-1].lower(), simple, n=3, cutoff=0.4)
    hint = f" Did you mean {' or '.join(simple[match] for match in near)}?" if near else ""
    return f"There is no task {name!r}.{hint}"


class _FirstSeed(gym.Wrapper[Any, Any, Any, Any]):
    def __init__(self, env: gym.Env[Any, Any], seed: int | None) -> None:
        super().__init__(env)
        self._seed = seed

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is None:
            seed = self._seed
        self._seed = None
        return self.env.reset(seed=seed, options=options)
