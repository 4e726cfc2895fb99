"""Humans: Humanoid and HumanoidStandup."""

import dataclasses
import math

import numpy as np

from agents.environments.mujoco import task


@dataclasses.dataclass(eq=False)
class _Human(task.Task):
    """Human with two arms and two legs, and its observation."""

    frame_skip: int = 5
    ctrl_cost_weight: float = 0.1
    reset_noise_scale: float = 1e-2
    exclude_current_positions_from_observation: bool = True
    include_cinert_in_observation: bool = True
    include_cvel_in_observation: bool = True
    include_qfrc_actuator_in_observation: bool = True
    include_cfrc_ext_in_observation: bool = True

    forces = True

    def observation(self, data):
        first = 2 * self.exclude_current_positions_from_observation
        parts = [data.qpos[:, first:], data.qvel]
        if self.include_cinert_in_observation:
            parts.append(data.cinert[:, 1:])
        if self.include_cvel_in_observation:
            parts.append(data.cvel[:, 1:])
        if self.include_qfrc_actuator_in_observation:
            parts.append(data.qfrc_actuator[:, 6:])
        if self.include_cfrc_ext_in_observation:
            parts.append(data.cfrc_ext[:, 1:])
        return np.concatenate([x.reshape(len(data), -1) for x in parts], 1)


@dataclasses.dataclass(eq=False)
class Humanoid(_Human):
    """Human that walks: Humanoid-v5."""

    xml_file: str = "humanoid.xml"
    forward_reward_weight: float = 1.25
    contact_cost_weight: float = 5e-7
    contact_cost_range: tuple[float, float] = (-math.inf, 10.0)
    healthy_reward: float = 5.0
    terminate_when_unhealthy: bool = True
    healthy_z_range: tuple[float, float] = (1.0, 2.0)

    def before(self, data):
        return self._center(data)

    def reward(self, before, action, data):
        velocity = (self._center(data) - before) / data.dt
        healthy = self._healthy(data) * self.healthy_reward
        rewards = self.forward_reward_weight * velocity + healthy
        control = self.ctrl_cost_weight * task.squares(data.ctrl)
        contact = self.contact_cost_weight * task.squares(data.cfrc_ext)
        return rewards - (control + np.clip(contact, *self.contact_cost_range))

    def terminal(self, data):
        return ~self._healthy(data) & bool(self.terminate_when_unhealthy)

    def _center(self, data):
        """Return the first coordinate of the center of mass."""
        return data.subtree_com[:, 0, 0]

    def _healthy(self, data):
        """Return which rows stand."""
        low, high = self.healthy_z_range
        return (low < data.qpos[:, 2]) & (data.qpos[:, 2] < high)


@dataclasses.dataclass(eq=False)
class HumanoidStandup(_Human):
    """Human that stands up: HumanoidStandup-v5."""

    xml_file: str = "humanoidstandup.xml"
    uph_cost_weight: float = 1
    impact_cost_weight: float = 5e-7
    impact_cost_range: tuple[float, float] = (-math.inf, 10.0)

    def reward(self, before, action, data):
        height = (data.qpos[:, 2] - 0) / data.model.opt.timestep
        control = self.ctrl_cost_weight * task.squares(data.ctrl)
        impact = self.impact_cost_weight * task.squares(data.cfrc_ext)
        return height - control - np.clip(impact, *self.impact_cost_range) + 1
