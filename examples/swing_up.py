"""Your own robot, from text: swing a pole up and balance it on a cart.

    agents train --config examples/swing_up.yaml

The cart pushes itself along a rail of two meters, and the pole starts hanging down.
MuJoCo steps all rows in native threads. Each function below handles all rows at once.
"""

import numpy as np

from agents.environments import mujoco

MODEL = """
<mujoco model="cart-pole">
  <compiler angle="radian"/>
  <option timestep="0.01" integrator="RK4"/>
  <default><geom contype="0" conaffinity="0"/></default>
  <worldbody>
    <camera pos="0 -4 0.5" xyaxes="1 0 0 0 0 1"/>
    <light pos="0 -2 4"/>
    <geom type="capsule" fromto="-1.2 0 0 1.2 0 0" size="0.02" rgba="0.4 0.4 0.4 1"/>
    <body name="cart">
      <joint name="rail" type="slide" axis="1 0 0" damping="0.1"
        limited="true" range="-1 1"/>
      <geom type="box" size="0.12 0.08 0.06" mass="1" rgba="0.2 0.4 0.8 1"/>
      <body name="pole">
        <joint name="hinge" type="hinge" axis="0 1 0" damping="0.002"/>
        <geom type="capsule" fromto="0 0 0 0 0 0.6" size="0.03" mass="0.1"
          rgba="0.9 0.5 0.1 1"/>
      </body>
    </body>
  </worldbody>
  <actuator>
    <motor name="push" joint="rail" gear="10" ctrlrange="-1 1"/>
  </actuator>
</mujoco>
"""


class SwingUp(mujoco.Robot):
    """Pole that hangs on a cart; the reward of a step is at most one."""

    model = MODEL
    frame_skip = 2
    max_length = 500

    def initial(self, data, random):
        data.joint("rail").qpos = random.uniform(-0.5, 0.5)
        data.joint("hinge").qpos = np.pi + random.uniform(-0.5, 0.5)

    def observation(self, data):
        angle = data.joint("hinge").qpos
        angles = np.stack([np.sin(angle), np.cos(angle)], 1)
        return np.concatenate([angles, data.qpos[:, :1], data.qvel], 1)

    def reward(self, before, action, data):
        upright = (1 + np.cos(data.joint("hinge").qpos)) / 2
        centered = 1 - data.joint("rail").qpos ** 2 / 2
        return upright * centered - 0.01 * action[:, 0] ** 2
