"""The paper's settings, as data: one YAML file per column of its hyper-parameter tables."""

from __future__ import annotations

import difflib
from importlib import resources
from typing import Any

import yaml
from stable_baselines3.common.utils import LinearSchedule

READINGS = ("published", "paper")


def preset_names() -> list[str]:
    files = resources.files(__name__).iterdir()
    return sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml"))


def read_preset(name: str, reading: str = "published") -> dict[str, Any]:
    """The preset's file, with the values of the printed table put in where ``reading`` is ``paper``."""
    if name not in preset_names():
        near = difflib.get_close_matches(name, preset_names(), n=1, cutoff=0.0)
        raise ValueError(
            f"There is no preset {name!r}; the nearest is {near[0]!r}, all are {', '.join(preset_names())}."
        )
    if reading not in READINGS:
        raise ValueError(f"reading must be one of {', '.join(READINGS)}; got {reading!r}.")
    preset: dict[str, Any] = yaml.safe_load(resources.files(__name__).joinpath(f"{name}.yaml").read_text("utf-8"))
    printed = preset.pop("paper", {})
    return _merge(preset, printed) if reading == "paper" else preset


def _merge(preset: dict[str, Any], printed: dict[str, Any]) -> dict[str, Any]:
    """The preset with the printed values put in; sections are merged, a schedule or a list is replaced whole."""
    sections = ("agent", "policy_kwargs")
    return {**preset, **{k: _merge(preset[k], v) if k in sections else v for k, v in printed.items()}}


def agent_arguments(preset: dict[str, Any]) -> dict[str, Any]:
    """The preset's ``agent`` section as constructor arguments of ``TSAC``."""
    arguments = dict(preset["agent"])
    for key in ("learning_rate", "critic_learning_rate"):
        if isinstance(arguments.get(key), dict):
            arguments[key] = LinearSchedule(**arguments[key])
    for key in ("critic_betas", "actor_betas"):
        arguments[key] = tuple(arguments[key])
    return arguments
