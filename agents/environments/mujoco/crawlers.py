"""Crawlers: Ant."""

import dataclasses

import numpy as np

from agents.environments.mujoco import task


@dataclasses.dataclass(eq=False)
class Ant(task.Task):
    """Four legs that walk in any direction: Ant-v5."""

    xml_file: str = "ant.xml"
    frame_skip: int = 5
    forward_reward_weight: float = 1
    ctrl_cost_weight: float = 0.5
    contact_cost_weight: float = 5e-4
    healthy_reward: float = 1.0
    main_body: int | str = 1
    terminate_when_unhealthy: bool = True
    healthy_z_range: tuple[float, float] = (0.2, 1.0)
    contact_force_range: tuple[float, float] = (-1.0, 1.0)
    reset_noise_scale: float = 0.1
    exclude_current_positions_from_observation: bool = True
    include_cfrc_ext_in_observation: bool = True

    forces = True
    normal_velocities = True

    def before(self, data):
        return data.body(self.main_body).xpos[:, 0]

    def observation(self, data):
        first = 2 * self.exclude_current_positions_from_observation
        parts = [data.qpos[:, first:], data.qvel]
        if self.include_cfrc_ext_in_observation:
            parts.append(self._contacts(data)[:, 1:].reshape(len(data), -1))
        return np.concatenate(parts, 1)

    def reward(self, before, action, data):
        velocity = (data.body(self.main_body).xpos[:, 0] - before) / data.dt
        healthy = self._healthy(data) * self.healthy_reward
        rewards = velocity * self.forward_reward_weight + healthy
        control = self.ctrl_cost_weight * task.squares(action)
        contact = self.contact_cost_weight * task.squares(self._contacts(data))
        return rewards - (control + contact)

    def terminal(self, data):
        return ~self._healthy(data) & bool(self.terminate_when_unhealthy)

    def _contacts(self, data):
        """Return clipped forces on bodies, `[N, nbody, 6]`."""
        return np.clip(data.cfrc_ext, *self.contact_force_range)

    def _healthy(self, data):
        """Return which rows have a torso at a healthy height."""
        low, high = self.healthy_z_range
        height = data.qpos[:, 2]
        finite = np.isfinite(data.qpos).all(1) & np.isfinite(data.qvel).all(1)
        return finite & (low <= height) & (height <= high)
