"""Our ids in Gymnasium's registry, there as soon as ``tsac`` is imported."""

from __future__ import annotations

import gymnasium as gym

from tsac.tasks.metaworld import TASKS as METAWORLD_TASKS

BOX_PUSHING = {
    "tsac/BoxPushingDense-v0": "dense",
    "tsac/BoxPushingSparse-v0": "sparse",
    "tsac/BoxPushingTemporalSpatialSparse-v0": "spatial",
}


def register() -> None:
    for name, rewards in BOX_PUSHING.items():
        if name not in gym.registry:
            gym.register(name, entry_point="tsac.tasks.box_pushing.env:BoxPushing", kwargs={"rewards": rewards})
    for task in METAWORLD_TASKS:
        name = f"metaworld/{task}-v3"
        if name not in gym.registry:
            gym.register(
                name,
                entry_point="tsac.tasks.metaworld:MetaWorldTask",
                kwargs={"name": f"{task}-v3"},
                disable_env_checker=True,  # it would warn of goal coordinates that a task keeps constant
            )
