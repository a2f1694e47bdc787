"""One line per algorithm. Each is a Stable-Baselines3 algorithm; the libraries are imported when one is asked for."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tsac.near import nearest

if TYPE_CHECKING:
    from stable_baselines3.common.base_class import BaseAlgorithm


@dataclass(frozen=True)
class Algorithm:
    name: str
    place: str  # module and class
    summary: str
    fixed: dict[str, Any] = field(default_factory=dict)  # constructor arguments that make it this algorithm

    def load(self) -> type[BaseAlgorithm]:
        module, name = self.place.split(":")
        try:
            found: type[BaseAlgorithm] = getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                f'The algorithm {self.name} needs {error.name}, which is not installed: pip install "tsac[baselines]"'
            ) from error
        return found


ALGORITHMS: dict[str, Algorithm] = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm("tsac", "tsac.agent.tsac:TSAC", "Transformer-based Soft Actor-Critic"),
        Algorithm("sac", "stable_baselines3:SAC", "Soft Actor-Critic, of stable-baselines3"),
        Algorithm("td3", "stable_baselines3:TD3", "twin delayed DDPG, of stable-baselines3"),
        Algorithm("ppo", "stable_baselines3:PPO", "Proximal Policy Optimization, of stable-baselines3"),
        Algorithm("gsde", "stable_baselines3:PPO", "PPO with state-dependent exploration", {"use_sde": True}),
        Algorithm("gtrxl", "tsac.baselines.gtrxl:GTrXL", "PPO with a Gated Transformer-XL"),
        Algorithm("crossq", "sb3_contrib:CrossQ", "CrossQ, of sb3-contrib"),
    )
}


def find_algorithm(name: str) -> Algorithm:
    if name not in ALGORITHMS:
        raise ValueError(f"There is no algorithm {name!r}.{nearest(name, ALGORITHMS)}")
    return ALGORITHMS[name]
