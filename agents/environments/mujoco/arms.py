"""Arms: Reacher and Pusher."""

import dataclasses

import numpy as np

from agents.environments.mujoco import task


@dataclasses.dataclass(eq=False)
class Reacher(task.Task):
    """Arm with two joints that reaches for a target: Reacher-v5."""

    xml_file: str = "reacher.xml"
    frame_skip: int = 2
    reward_dist_weight: float = 1
    reward_control_weight: float = 1

    def initial(self, data, random):
        data.qpos += random.uniform(-0.1, 0.1, data.model.nq)
        data.qpos[:, -2:] = [_draw_target(x) for x in random]
        data.qvel += random.uniform(-0.005, 0.005, data.model.nv)
        data.qvel[:, -2:] = 0

    def observation(self, data):
        angles, goal = data.qpos[:, :2], data.qpos[:, 2:]
        parts = np.cos(angles), np.sin(angles), goal, data.qvel[:, :2]
        return np.concatenate([*parts, self._distance(data)[:, :2]], 1)

    def reward(self, before, action, data):
        distance = -task.norms(self._distance(data)) * self.reward_dist_weight
        return distance + -task.squares(action) * self.reward_control_weight

    def _distance(self, data):
        return data.body("fingertip").xpos - data.body("target").xpos


@dataclasses.dataclass(eq=False)
class Pusher(task.Task):
    """Arm that pushes a cylinder to a goal: Pusher-v5."""

    xml_file: str = "pusher_v5.xml"
    frame_skip: int = 5
    reward_near_weight: float = 0.5
    reward_dist_weight: float = 1
    reward_control_weight: float = 0.1

    def initial(self, data, random):
        data.qpos[:, -4:-2] = [_draw_cylinder(x) for x in random]
        data.qpos[:, -2:] = 0
        data.qvel += random.uniform(-0.005, 0.005, data.model.nv)
        data.qvel[:, -4:] = 0

    def observation(self, data):
        bodies = [data.body(x).xpos for x in ("tips_arm", "object", "goal")]
        return np.concatenate([data.qpos[:, :7], data.qvel[:, :7], *bodies], 1)

    def reward(self, before, action, data):
        tip, thing, goal = (data.body(x).xpos for x in ("tips_arm", "object", "goal"))
        near = -task.norms(thing - tip) * self.reward_near_weight
        distance = -task.norms(thing - goal) * self.reward_dist_weight
        control = -task.squares(action) * self.reward_control_weight
        return distance + control + near


def _draw_target(generator):
    """Draw a point in a circle."""
    while True:
        goal = generator.uniform(-0.2, 0.2, 2)
        if np.linalg.norm(goal) < 0.2:
            return goal


def _draw_cylinder(generator):
    """Draw a point that is not too near to the origin."""
    while True:
        x, y = generator.uniform(-0.3, 0, 1), generator.uniform(-0.2, 0.2, 1)
        point = np.concatenate([x, y])
        if np.linalg.norm(point) > 0.17:
            return point
