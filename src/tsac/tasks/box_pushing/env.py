"""Box-Pushing: a Panda arm with a rod pushes an open box to a goal pose within 100 steps."""

from __future__ import annotations

from importlib import resources
from typing import Any

import gymnasium as gym
import mujoco
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from tsac.tasks.box_pushing import kinematics
from tsac.tasks.box_pushing.rewards import COEFFICIENTS, KINDS, Outcome, distances, reward

Array = NDArray[np.float64]

EPISODE_LENGTH = 100
SUBSTEPS = 10
TORQUE_PER_ACTION = 10.0
TORQUE_LIMIT = np.array([90.0, 90.0, 90.0, 90.0, 12.0, 12.0, 12.0])
POSITION_LOW, POSITION_HIGH = np.array([0.3, -0.45, -0.01]), np.array([0.6, 0.45, -0.01])
LEAST_SEPARATION = 0.3
HAND_ABOVE_BOX = np.array([0.0, 0.0, 0.15])
HAND_DOWN = np.array([0.0, 1.0, 0.0, 0.0])
FIXED_BOX = np.array([0.4, 0.3, -0.01, 0.0, 0.0, 0.0, 1.0])
SUCCESS_METRES, SUCCESS_RADIANS = 0.05, 0.5
UNSTABLE_REWARD = -50.0
UNSTABLE_WARNINGS = (
    mujoco.mjtWarning.mjWARN_BADQPOS,
    mujoco.mjtWarning.mjWARN_BADQVEL,
    mujoco.mjtWarning.mjWARN_BADQACC,
)


class BoxPushing(gym.Env[Array, Array]):
    """Seven torques on top of gravity compensation, 28 observations, success at the last step only.

    Two habits of the original environment are kept, because the published numbers were reached with them: the gravity
    compensation and the poses in observations and rewards are those of one substep (2 ms) ago.

    :param rewards: ``dense``, ``sparse`` or ``spatial``
    :param coefficients: of the rewards: ``published`` or ``printed``
    :param random_box: draw the box's initial pose; otherwise it always starts at the same place
    :param render_mode: ``rgb_array`` or None
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 50}
    episode_length = EPISODE_LENGTH

    def __init__(
        self,
        rewards: str = "dense",
        coefficients: str = "published",
        random_box: bool = True,
        render_mode: str | None = None,
    ) -> None:
        if rewards not in KINDS:
            raise ValueError(f"rewards must be one of {', '.join(KINDS)}; got {rewards!r}.")
        if coefficients not in COEFFICIENTS:
            raise ValueError(f"coefficients must be one of {', '.join(COEFFICIENTS)}; got {coefficients!r}.")
        self.rewards, self.coefficients, self.random_box, self.render_mode = (
            rewards,
            coefficients,
            random_box,
            render_mode,
        )
        scene = resources.files("tsac.tasks.box_pushing").joinpath("scene.xml").read_text("utf-8")
        self.model = mujoco.MjModel.from_xml_string(scene)
        self.data = mujoco.MjData(self.model)
        self._tcp, self._rod_tip = self.model.site("tcp").id, self.model.site("rod_tip").id
        self._rod, self._box = self.model.body("push_rod").id, self.model.body("box").id
        self._renderer: Any = None
        self._steps = 0
        self.observation_space = spaces.Box(-np.inf, np.inf, (28,), np.float64)
        self.action_space: Any = spaces.Box(-1.0, 1.0, (7,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        mujoco.mj_resetData(self.model, self.data)
        box = self._draw_pose() if self.random_box else FIXED_BOX
        goal = self._draw_pose()
        while np.linalg.norm(goal[:2] - box[:2]) < LEAST_SEPARATION:
            goal = self._draw_pose()
        joints, _ = kinematics.solve(self.model, self.data, self._tcp, box[:3] + HAND_ABOVE_BOX, HAND_DOWN)
        self.set_state(np.concatenate([joints, np.zeros(2), box]), np.zeros(15), goal)
        return self._observe(), {"success": False}

    def set_state(self, qpos: Array, qvel: Array, goal: Array) -> None:
        """Put the scene into a state, as at the start of an episode. ``goal``: position and quaternion of the box."""
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:], self.data.qvel[:] = qpos, qvel
        self.data.mocap_pos[0], self.data.mocap_quat[0] = goal[:3], goal[3:]
        mujoco.mj_forward(self.model, self.data)
        self._steps = 0

    def _draw_pose(self) -> Array:
        position = self.np_random.uniform(POSITION_LOW, POSITION_HIGH)
        theta = self.np_random.uniform(0.0, 2.0 * np.pi)
        return np.concatenate([position, [np.sin(theta / 2.0), 0.0, 0.0, np.cos(theta / 2.0)]])

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        torques = TORQUE_PER_ACTION * np.clip(np.asarray(action, dtype=np.float64), -1.0, 1.0)
        if not np.isfinite(torques).all():
            raise ValueError(f"An action of Box-Pushing must be finite; got {action}.")
        # The bias is the one that the last substep started from: one substep old, as in the original.
        self.data.ctrl[:] = np.clip(torques + self.data.qfrc_bias[:7], -TORQUE_LIMIT, TORQUE_LIMIT)
        mujoco.mj_step(self.model, self.data, nstep=SUBSTEPS)
        self._steps += 1
        last = self._steps == EPISODE_LENGTH
        if any(self.data.warning[kind].number for kind in UNSTABLE_WARNINGS):
            # MuJoCo has reset the scene by itself: nothing of the state is left to look at.
            return self._observe(), UNSTABLE_REWARD, True, False, {"success": False, "unstable": True}
        outcome = self.outcome(torques)
        metres, radians = distances(outcome)
        success = last and metres < SUCCESS_METRES and radians < SUCCESS_RADIANS
        value = reward(outcome, self.rewards, last, self.coefficients)
        info = {"success": success, "is_success": success, "box_goal_metres": metres, "box_goal_radians": radians}
        return self._observe(), value, success, last and not success, info

    def outcome(self, torques: Array) -> Outcome:
        data = self.data
        return Outcome(
            joints=data.qpos[:7],
            speeds=data.qvel[:7],
            torques=torques,
            rod_tip=data.site_xpos[self._rod_tip],
            rod_quaternion=data.xquat[self._rod],
            box_position=data.xpos[self._box],
            box_quaternion=data.xquat[self._box],
            goal_position=data.mocap_pos[0],
            goal_quaternion=data.mocap_quat[0],
        )

    def _observe(self) -> Array:
        data = self.data
        box, goal = (data.xpos[self._box], data.xquat[self._box]), (data.mocap_pos[0], data.mocap_quat[0])
        return np.concatenate([data.qpos[:7], data.qvel[:7], *box, *goal])

    def render(self) -> Any:
        if self.render_mode != "rgb_array":
            return None
        if self._renderer is None:
            self._renderer = mujoco.Renderer(self.model, height=480, width=640)
        self._renderer.update_scene(self.data)
        return self._renderer.render()

    def close(self) -> None:
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
