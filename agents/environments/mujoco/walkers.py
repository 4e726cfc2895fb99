"""Runners and swimmers in the plane: HalfCheetah, Hopper, Walker2d, Swimmer."""

import dataclasses
import math

import numpy as np

from agents.environments.mujoco import task


@dataclasses.dataclass(eq=False)
class HalfCheetah(task.Task):
    """Two-legged body that never falls: HalfCheetah-v5."""

    xml_file: str = "half_cheetah.xml"
    frame_skip: int = 5
    forward_reward_weight: float = 1.0
    ctrl_cost_weight: float = 0.1
    reset_noise_scale: float = 0.1
    exclude_current_positions_from_observation: bool = True

    positions = 1
    """Number of positions to exclude."""
    normal_velocities = True

    def before(self, data):
        return data.qpos[:, 0]

    def observation(self, data):
        first = self.exclude_current_positions_from_observation * self.positions
        return np.concatenate([data.qpos[:, first:], data.qvel], 1)

    def reward(self, before, action, data):
        forward = self._forward(before, data)
        return forward - self.ctrl_cost_weight * task.squares(action)

    def _forward(self, before, data):
        """Return the reward of the speed."""
        return self.forward_reward_weight * ((data.qpos[:, 0] - before) / data.dt)


@dataclasses.dataclass(eq=False)
class Swimmer(HalfCheetah):
    """Chain of three links in a fluid: Swimmer-v5."""

    xml_file: str = "swimmer.xml"
    frame_skip: int = 4
    ctrl_cost_weight: float = 1e-4

    positions = 2
    normal_velocities = False


@dataclasses.dataclass(eq=False)
class Walker2d(Swimmer):
    """Two legs that can fall: Walker2d-v5."""

    xml_file: str = "walker2d_v5.xml"
    ctrl_cost_weight: float = 1e-3
    healthy_reward: float = 1.0
    terminate_when_unhealthy: bool = True
    healthy_z_range: tuple[float, float] = (0.8, 2.0)
    healthy_angle_range: tuple[float, float] = (-1.0, 1.0)
    reset_noise_scale: float = 5e-3

    positions = 1

    def observation(self, data):
        first = self.exclude_current_positions_from_observation * self.positions
        velocity = np.clip(data.qvel, -10, 10)
        return np.concatenate([data.qpos[:, first:], velocity], 1)

    def reward(self, before, action, data):
        healthy = self._healthy(data) * self.healthy_reward
        rewards = self._forward(before, data) + healthy
        return rewards - self.ctrl_cost_weight * task.squares(action)

    def terminal(self, data):
        return ~self._healthy(data) & bool(self.terminate_when_unhealthy)

    def _healthy(self, data):
        """Return which rows stand upright."""
        z, angle = data.qpos[:, 1], data.qpos[:, 2]
        return _between(z, self.healthy_z_range) & _between(
            angle, self.healthy_angle_range
        )


@dataclasses.dataclass(eq=False)
class Hopper(Walker2d):
    """One leg that can fall: Hopper-v5."""

    xml_file: str = "hopper.xml"
    healthy_state_range: tuple[float, float] = (-100.0, 100.0)
    healthy_z_range: tuple[float, float] = (0.7, math.inf)
    healthy_angle_range: tuple[float, float] = (-0.2, 0.2)

    def _healthy(self, data):
        states = [data.qpos[:, 2:], data.qvel]
        within = [_between(x, self.healthy_state_range).all(1) for x in states]
        return super()._healthy(data) & within[0] & within[1]


def _between(values, limits):
    low, high = limits
    return (low < values) & (values < high)
