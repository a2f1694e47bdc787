"""The rewards of Box-Pushing, from what a step leaves behind.

``published`` coefficients are those of the environment that the paper's numbers came from; ``printed`` are the paper's
formulas. They differ by two orders of magnitude in the dense case: returns around -65 are only possible with the
published ones.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tsac.tasks.box_pushing.kinematics import JOINT_HIGH, JOINT_LOW

Array = NDArray[np.float64]

SPEED_HIGH = np.array([2.175, 2.175, 2.175, 2.175, 2.61, 2.61, 2.61])
HAND_DOWN = np.array([0.0, 1.0, 0.0, 0.0])
KINDS = ("dense", "sparse", "spatial")
COEFFICIENTS = ("published", "printed")


class Outcome(NamedTuple):
    """What the rewards look at, after a step."""

    joints: Array
    speeds: Array
    torques: Array  # commanded, without the gravity compensation
    rod_tip: Array
    rod_quaternion: Array
    box_position: Array
    box_quaternion: Array
    goal_position: Array
    goal_quaternion: Array


def angle_between(a: Array, b: Array) -> float:
    """Of the rotation between two orientations, 0 to pi. Clamped: equal quaternions must not give NaN by rounding."""
    return 2.0 * math.acos(min(abs(float(a @ b)), 1.0))


def distances(outcome: Outcome) -> tuple[float, float]:
    """Of the box from its goal, in metres and radians."""
    metres = float(np.linalg.norm(outcome.box_position - outcome.goal_position))
    return metres, angle_between(outcome.box_quaternion, outcome.goal_quaternion)


def limit_penalty(outcome: Outcome) -> float:
    over = np.maximum(outcome.joints - JOINT_HIGH, 0.0) + np.maximum(JOINT_LOW - outcome.joints, 0.0)
    return float(over.sum() + np.maximum(np.abs(outcome.speeds) - SPEED_HIGH, 0.0).sum())


def reward(outcome: Outcome, kind: str, last: bool, coefficients: str = "published") -> float:
    """
    :param kind: ``dense``, ``sparse`` (the goal counts on the last step only) or ``spatial`` (and only near it)
    :param last: whether this is the last step of the episode
    """
    metres, radians = distances(outcome)
    to_rod = float(np.linalg.norm(outcome.box_position - outcome.rod_tip))
    tilt = angle_between(outcome.rod_quaternion, HAND_DOWN)  # the full rotation: turning the hand counts too
    energy = float(outcome.torques @ outcome.torques)
    total = -limit_penalty(outcome)
    if coefficients == "printed":
        total -= np.clip(to_rod, 0.05, 10.0) + np.clip(tilt / np.pi, 0.25, 2.0) + 0.02 * energy
        if kind == "dense" or last:
            total -= 350.0 * metres + 200.0 * radians / (2.0 * np.pi)
        return float(total)
    total -= 2.0 * np.clip(to_rod, 0.05, 100.0) + (tilt / np.pi if tilt > np.pi / 4.0 else 0.0)
    turned = radians / np.pi
    if kind == "dense":
        return float(total - 3.5 * metres - turned - 0.0005 * energy)
    total -= 0.02 * energy
    if last and kind == "sparse":
        total -= 350.0 * metres + 100.0 * turned + 50.0 * np.linalg.norm(outcome.speeds)
    if last and kind == "spatial" and metres < 0.1:
        total += 300.0 + np.clip(-1050.0 * metres, -100.0, 0.0) + np.clip(-150.0 * turned, -100.0, 0.0)
    return float(total)
