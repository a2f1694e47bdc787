"""Inverse kinematics for the reset: a posture whose hand points straight down above the box.

A velocity law with a null-space posture, integrated with an adaptive step. It stops early, as the original does: the
hand is left 6 mrad off, and starting states are distributed as in the published runs.
"""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Joint limits that the rewards and the inverse kinematics respect; narrower than the model's.
JOINT_HIGH = np.array([2.8973, 1.7628, 2.8973, -0.0698, 2.8973, 3.7525, 2.8973])
JOINT_LOW = np.array([-2.8973, -1.7628, -2.8973, -3.0718, -2.8973, -0.0175, -2.8973])

START = np.array([0.0, 0.0, 0.0, -1.5, 0.0, 1.5, 0.0])
POSTURE = np.array([0.0, 0.17453292, 0.0, -0.87266463, 0.0, 1.22173047, 0.785398126])
TASK_GAIN = np.array(
    [33.9403713446798, 30.9403713446798, 33.9403713446798, 27.69370238555632, 33.98706171459314, 30.9185531893281]
)
POSTURE_GAIN = 5.0 * np.array(
    [
        7.675519770796831,
        2.676935478437176,
        8.539040163444975,
        1.270446361314313,
        8.87752182480855,
        2.186782233762969,
        4.414432577659688,
    ]
)
LIMIT_MARGIN, LIMIT_GAIN = 0.1, 20.0
DAMPING = 1e-6 * np.eye(6)
CLOSE_ENOUGH = 1e-5
MOST_STEPS = 1000


def quaternion_error(current: Array, wanted: Array) -> Array:
    """The vector part of the rotation from ``current`` to ``wanted``."""
    a, b, c, d = current.tolist()  # written out: NumPy's cross product takes longer than everything else here
    e, f, g, h = wanted.tolist()
    return np.array([a * f - e * b - (g * d - h * c), a * g - e * c - (h * b - f * d), a * h - e * d - (f * c - g * b)])


def solve(model: Any, data: Any, site: int, position: Array, quaternion: Array) -> tuple[Array, int]:
    """Arm angles that bring a site to a pose, and the number of accepted steps. ``data`` is used as scratch paper.

    :raises RuntimeError: where no such posture is found
    """
    joints, velocity = START.copy(), np.zeros(7)
    step, best, accepted = 1e-3, np.inf, 0
    previous = joints
    jacobian = np.zeros((6, model.nv))
    error = np.zeros(6)
    current = np.zeros(4)
    for _ in range(10 * MOST_STEPS):
        joints = np.minimum(np.maximum(previous + step * velocity, JOINT_LOW), JOINT_HIGH)
        data.qpos[:7] = joints
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mju_mat2Quat(current, data.site_xmat[site])
        if current @ quaternion < 0.0:
            current = -current
        off_position = np.minimum(np.maximum(position - data.site_xpos[site], -0.1), 0.1)
        off_quaternion = current - quaternion
        measure = off_position @ off_position + off_quaternion @ off_quaternion
        if measure > best:
            step *= 0.7
            continue
        step, best, previous = step * 1.025, measure, joints
        if measure < CLOSE_ENOUGH:
            return joints, accepted
        if accepted == MOST_STEPS:
            break
        accepted += 1
        error[:3] = off_position
        error[3:] = np.minimum(np.maximum(quaternion_error(current, quaternion), -0.5), 0.5)
        mujoco.mj_jacSite(model, data, jacobian[:3], jacobian[3:], site)
        arm = jacobian[:, :7]
        null = POSTURE_GAIN * (POSTURE - joints)
        null += LIMIT_GAIN * np.maximum(JOINT_LOW + LIMIT_MARGIN - joints, 0.0)
        null -= LIMIT_GAIN * np.maximum(joints - (JOINT_HIGH - LIMIT_MARGIN), 0.0)
        task = TASK_GAIN * error - arm @ null
        velocity = arm.T @ np.linalg.solve(arm @ arm.T + DAMPING, task) + null
    raise RuntimeError(f"No arm posture reaches position {position.round(3)} (remaining error {best:.2e}).")
