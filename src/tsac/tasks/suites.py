"""The paper's tasks, as lists of names."""

from __future__ import annotations

from tsac.tasks.metaworld import TASKS as METAWORLD_TASKS

SUITES: dict[str, tuple[str, ...]] = {
    "mujoco": ("Ant-v4", "HalfCheetah-v4", "Hopper-v4", "HumanoidStandup-v4", "Walker2d-v4"),
    "ml1": tuple(f"metaworld/{name}-v3" for name in METAWORLD_TASKS),
    "ml1-hard": tuple(f"metaworld/{name}-v3" for name in ("assembly", "disassemble", "hammer", "stick-pull")),
    "box-pushing": ("tsac/BoxPushingDense-v0", "tsac/BoxPushingSparse-v0"),
}
PAPER_TASKS: tuple[str, ...] = SUITES["mujoco"] + SUITES["ml1"] + SUITES["box-pushing"]
