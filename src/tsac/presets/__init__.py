"""Settings as data: one YAML file per hyper-parameter table of the paper, with a section for every algorithm in it.

A section holds fields of ``tsac.runs.spec.RunSpec``. Inside it, ``paper`` holds what the printed table says where the
published configuration says otherwise, and ``laptop`` is a setting of its own, for two CPU cores; what it leaves out is
the algorithm's default.
"""

from __future__ import annotations

import re
from importlib import resources
from typing import Any, Literal

import yaml

from tsac.near import nearest

Reading = Literal["published", "paper"]
Scale = Literal["full", "laptop"]
READINGS: tuple[Reading, ...] = ("published", "paper")
SCALES: tuple[Scale, ...] = ("full", "laptop")
COMMON = ("suite", "steps")  # what a file says for all its algorithms


class _Loader(yaml.SafeLoader):
    """YAML in which 1e-3 is a number."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def parse_yaml(text: str) -> Any:
    return yaml.load(text, _Loader)


def preset_names() -> list[str]:
    files = resources.files(__name__).iterdir()
    return sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml"))


def read_table(name: str) -> dict[str, Any]:
    """The preset's file as it is."""
    if name not in preset_names():
        raise ValueError(f"There is no preset {name!r}.{nearest(name, preset_names())}")
    table: dict[str, Any] = parse_yaml(resources.files(__name__).joinpath(f"{name}.yaml").read_text("utf-8"))
    return table


def preset_algorithms(name: str) -> list[str]:
    return [key for key in read_table(name) if key not in COMMON]


def read_preset(name: str, reading: str = "published", algorithm: str = "tsac", scale: str = "full") -> dict[str, Any]:
    """The settings of an algorithm on a suite.

    :param reading: ``published``: the configuration that the paper's numbers came from; ``paper``: the printed table
    :param scale: ``full``: the paper's; ``laptop``: for two CPU cores
    """
    for word, value, choices in (("reading", reading, READINGS), ("scale", scale, SCALES)):
        if value not in choices:
            raise ValueError(f"{word} must be one of {', '.join(choices)}; got {value!r}.")
    table = read_table(name)
    if algorithm not in preset_algorithms(name):
        raise ValueError(
            f"The preset {name} has no settings for {algorithm!r}; it has some for "
            f"{', '.join(preset_algorithms(name))}."
        )
    common = {key: table[key] for key in COMMON}
    section = table[algorithm]
    printed, laptop = section.pop("paper", {}), section.pop("laptop", {})
    if scale == "laptop":
        return {**common, "agent": {}, **laptop}
    preset = {**common, **section}
    return merge(preset, printed) if reading == "paper" else preset


def merge(settings: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The settings with the changes put in; sections are merged, a schedule or a list is replaced whole."""
    sections = ("agent", "policy_kwargs", "normalization", "disturbances")

    def merged(key: str, value: Any) -> Any:
        old = settings.get(key)
        return merge(old, value) if key in sections and isinstance(old, dict) and isinstance(value, dict) else value

    return {**settings, **{key: merged(key, value) for key, value in changes.items()}}


def agent_arguments(preset: dict[str, Any]) -> dict[str, Any]:
    """The preset's ``agent`` section as constructor arguments of ``TSAC``."""
    from stable_baselines3.common.utils import LinearSchedule

    arguments = dict(preset["agent"])
    for key in ("learning_rate", "critic_learning_rate"):
        if isinstance(arguments.get(key), list):
            arguments[key] = LinearSchedule(arguments[key][0], arguments[key][1], end_fraction=1.0)
    for key in ("critic_betas", "actor_betas"):
        if key in arguments:
            arguments[key] = tuple(arguments[key])
    return arguments
