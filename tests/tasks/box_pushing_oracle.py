"""Compare Box-Pushing with recorded transitions of the original environment.

    python tests/tasks/box_pushing_oracle.py FILE.npz

prints the quantiles of the errors per group of steps and exits 1 where a tolerance is missed. Every step starts from
the recorded state and gets the recorded torques; resets start from the recorded seed. Steps with a contact that a scene
without meshes cannot have are left out.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import mujoco
import numpy as np

from tsac.tasks.box_pushing.env import SUBSTEPS, TORQUE_PER_ACTION, BoxPushing
from tsac.tasks.box_pushing.rewards import Outcome, distances, reward

NOT_IN_A_MESH_FREE_SCENE = ("mesh_box", "finger_box", "rod_static", "mesh_static", "finger_static", "self_robot")
FLAT = np.cos(1e-3)  # a box tilted by less than this is flat


class Row(NamedTuple):
    group: str
    errors: np.ndarray
    largest: float  # tolerance of the maximum
    most: float = np.inf  # tolerance of the 95 % quantile

    def missed(self) -> bool:
        return len(self.errors) > 0 and (
            not np.isfinite(self.errors).all()
            or self.errors.max() > self.largest
            or np.quantile(self.errors, 0.95) > self.most
        )

    def __str__(self) -> str:
        if len(self.errors) == 0:
            return f"{self.group:<44} no such steps in this file"
        median, most, nearly_all = np.quantile(self.errors, [0.5, 0.95, 0.99])
        numbers = " ".join(f"{value:9.1e}" for value in (median, most, nearly_all, self.errors.max()))
        tolerance = f"max {self.largest:.0e}" + ("" if np.isinf(self.most) else f", 95 % {self.most:.0e}")
        verdict = "MISSED" if self.missed() else "ok"
        return f"{self.group:<44} {len(self.errors):>6} {numbers}   {tolerance:<24} {verdict}"


def one_step_errors(env: BoxPushing, file: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Largest error of every step, of the arm's angles and of the box's position."""
    episodes, steps = file["action"].shape[:2]
    errors = {name: np.zeros((episodes, steps)) for name in ("arm", "box")}
    data = env.data
    for episode in range(episodes):
        goal = np.concatenate([file["target_pos"][episode, 0, 3:], file["target_quat"][episode, 0, 4:]])
        for step in range(steps):
            env.set_state(file["qpos_before"][episode, step], file["qvel_before"][episode, step], goal)
            data.qacc_warmstart[:] = file["qacc_warmstart_before"][episode, step]
            data.qfrc_bias[:] = file["qfrc_bias_before"][episode, step]  # one substep old, as step() finds it
            env.step(file["action"][episode, step])
            np.testing.assert_allclose(data.ctrl, file["ctrl"][episode, step], atol=1e-9)
            after = file["qpos_after"][episode, step]
            errors["arm"][episode, step] = np.abs(data.qpos[:7] - after[:7]).max()
            errors["box"][episode, step] = np.abs(data.qpos[9:12] - after[9:12]).max()
    return errors


def reward_errors(file: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Of the three rewards, from the recorded poses."""
    recorded = {"dense": "reward_dense", "sparse": "reward_tsparse", "spatial": "reward_tspatial"}
    episodes, steps = file["action"].shape[:2]
    errors = {kind: np.zeros((episodes, steps)) for kind in recorded}
    for episode in range(episodes):
        for step in range(steps):
            outcome = Outcome(
                joints=file["qpos_after"][episode, step, :7],
                speeds=file["qvel_after"][episode, step, :7],
                torques=TORQUE_PER_ACTION * np.clip(file["action"][episode, step], -1.0, 1.0),
                rod_tip=file["rod_tip_xpos"][episode, step],
                rod_quaternion=file["push_rod_xquat"][episode, step],
                box_position=file["box_xpos"][episode, step],
                box_quaternion=file["box_xquat"][episode, step],
                goal_position=file["target_pos"][episode, step, 3:],
                goal_quaternion=file["target_quat"][episode, step, 4:],
            )
            for kind, name in recorded.items():
                value = reward(outcome, kind, last=step == steps - 1)
                errors[kind][episode, step] = abs(value - file[name][episode, step])
            metres, radians = distances(outcome)
            success = step == steps - 1 and metres < 0.05 and radians < 0.5
            if success != file["is_success"][episode, step]:
                errors["dense"][episode, step] = np.inf
    return errors


def compare(path: str | Path) -> list[Row]:
    with np.load(path) as arrays:
        file = {key: arrays[key] for key in arrays.files}
    env = BoxPushing()
    rows = []

    arm, box, goal = [], [], []
    for episode, seed in enumerate(file["ep_seed"]):
        observation, _ = env.reset(seed=int(seed))
        expected = file["ep_reset_obs"][episode]
        arm.append(np.abs(env.data.qpos[:7] - file["ep_reset_qpos"][episode, :7]).max())
        box.append(np.abs(observation[14:21] - expected[14:21]).max())
        goal.append(np.abs(observation[21:] - expected[21:]).max())
    rows.append(Row("reset: arm angles [rad]", np.array(arm), 1e-6))
    rows.append(Row("reset: box pose", np.array(box), 1e-15))
    rows.append(Row("reset: goal pose", np.array(goal), 1e-15))

    errors = one_step_errors(env, file)
    categories = [str(name) for name in file["contact_categories"]]
    touched = {name: file["contact_substeps"][:, :, number] > 0 for number, name in enumerate(categories)}
    simulated = ~np.any([touched[name] for name in NOT_IN_A_MESH_FREE_SCENE], axis=0)
    first = np.zeros_like(simulated)
    first[:, 0] = True
    rod = touched["rod_box"]
    up = 1.0 - 2.0 * np.square(file["box_xquat"][..., 1:3]).sum(axis=-1)  # cosine of the box's tilt
    flat = (np.abs(up) > FLAT) & (up > 0)
    pushing = np.isin(file["ep_kind"], ["push"])[:, None] & simulated
    rows.append(Row("no rod contact: arm [rad]", errors["arm"][simulated & ~rod], 1e-9))
    rows.append(Row("no rod contact, first step: box [m]", errors["box"][simulated & ~rod & first], 1e-7))
    rows.append(Row("no rod contact, flat: box [m]", errors["box"][simulated & ~rod & ~first & flat], 1e-6))
    rows.append(Row("no rod contact, tilted: box [m]", errors["box"][simulated & ~rod & ~first & ~flat], 2e-3))
    rows.append(Row("rod contact, random: arm [rad]", errors["arm"][simulated & rod & ~pushing], 1e-3, 1e-5))
    rows.append(Row("rod contact, random: box [m]", errors["box"][simulated & rod & ~pushing], 1e-3, 1e-5))
    rows.append(Row("rod contact, pushing: arm [rad]", errors["arm"][rod & pushing], 1e-9))
    rows.append(Row("rod contact, pushing: box [m]", errors["box"][rod & pushing], 1e-9))
    for kind, error in reward_errors(file).items():
        rows.append(Row(f"reward, {kind}", error.ravel(), 1e-10))
    return rows


def main() -> int:
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_file():
        print("usage: python tests/tasks/box_pushing_oracle.py FILE.npz", file=sys.stderr)
        return 2
    print(f"MuJoCo {mujoco.__version__}, {SUBSTEPS} substeps")
    print(f"{'group':<44} {'steps':>6} {'median':>9} {'95 %':>9} {'99 %':>9} {'max':>9}   tolerance")
    rows = compare(sys.argv[1])
    for row in rows:
        print(row)
    return 1 if any(row.missed() for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
