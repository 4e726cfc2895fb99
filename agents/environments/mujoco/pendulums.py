"""Poles on carts: InvertedPendulum and InvertedDoublePendulum."""

import dataclasses

import numpy as np

from agents.environments.mujoco import task


@dataclasses.dataclass(eq=False)
class InvertedPendulum(task.Task):
    """One pole to balance: InvertedPendulum-v5."""

    xml_file: str = "inverted_pendulum.xml"
    frame_skip: int = 2
    reset_noise_scale: float = 0.01

    def observation(self, data):
        return np.concatenate([data.qpos, data.qvel], 1)

    def reward(self, before, action, data):
        return (~self.terminal(data)).astype(np.float64)

    def terminal(self, data):
        observation = self.observation(data)
        finite = np.isfinite(observation).all(1)
        return ~finite | (np.abs(observation[:, 1]) > 0.2)


@dataclasses.dataclass(eq=False)
class InvertedDoublePendulum(task.Task):
    """Pole on a pole to balance: InvertedDoublePendulum-v5."""

    xml_file: str = "inverted_double_pendulum.xml"
    frame_skip: int = 5
    healthy_reward: float = 10.0
    reset_noise_scale: float = 0.1

    normal_velocities = True

    def observation(self, data):
        angles = data.qpos[:, 1:]
        velocity = np.clip(data.qvel, -10, 10)
        force = np.clip(data.qfrc_constraint[:, :1], -10, 10)
        parts = data.qpos[:, :1], np.sin(angles), np.cos(angles), velocity, force
        return np.concatenate(parts, 1)

    def reward(self, before, action, data):
        # Scalars in Gymnasium are squared as by `pow`, which rounds differently.
        x, _, y = data.site(0).xpos.T
        first, second = np.float_power(data.qvel[:, 1:3], 2).T
        distance = 0.01 * np.float_power(x, 2) + np.float_power(y - 2, 2)
        velocity = 1e-3 * first + 5e-3 * second
        return self.healthy_reward * ~self.terminal(data) - distance - velocity

    def terminal(self, data):
        return data.site(0).xpos[:, 2] <= 1
