"""Robots of the tests."""

import gymnasium
import numpy as np

from agents.environments import mujoco

MODEL = """
<mujoco>
  <option timestep="0.01"/>
  <worldbody>
    <camera pos="0 -3 1" xyaxes="1 0 0 0 0 1"/>
    <geom name="floor" type="plane" size="9 9 1" friction="0.5 0.01 0.01"/>
    <body name="cart" pos="0 0 1">
      <joint name="rail" type="slide" axis="1 0 0" damping="0.3"/>
      <geom name="box" type="box" size=".2 .1 .1" mass="1"/>
      <body name="pole">
        <joint name="hinge" type="hinge" axis="0 1 0"/>
        <geom name="rod" type="capsule" fromto="0 0 0 0 0 .6" size=".03" mass=".1"/>
        <site name="tip" pos="0 0 .6"/>
      </body>
    </body>
    <body name="ball" pos="0 2 .2">
      <freejoint name="free"/>
      <geom name="sphere" size=".1" mass=".2"/>
    </body>
  </worldbody>
  <actuator><motor name="push" joint="rail" gear="5" ctrlrange="-1 1"/></actuator>
  <sensor>
    <jointpos name="angle" joint="hinge"/><framepos name="place" objtype="site"
      objname="tip"/>
  </sensor>
</mujoco>
"""


class CartPole(mujoco.Robot):
    """Pole to balance, next to a ball that falls."""

    model = MODEL
    frame_skip = 2
    max_length = 30

    def __init__(self, scale=0.5):
        self.scale = scale

    def initial(self, data, random):
        data.joint("rail").qpos = random.uniform(-1, 1)
        data.joint("hinge").qpos = random.normal(0, self.scale)
        data.joint("free").qpos[:, 2] = 0.3
        data.qvel += random.uniform(-self.scale, self.scale, data.model.nv)

    def before(self, data):
        return {"tip": data.site("tip").xpos}

    def observation(self, data):
        place = data.sensor("place") - data.body("ball").xpos
        return {"state": np.concatenate([data.qpos, data.qvel], 1), "place": place}

    def reward(self, before, action, data):
        speed = (data.site("tip").xpos - before["tip"])[:, 0] / data.dt
        return np.cos(data.joint("hinge").qpos) - abs(speed) - action[:, 0] ** 2

    def terminal(self, data):
        return abs(data.joint("hinge").qpos) > 1.2


class Calm(CartPole):
    """The same in episodes that are as long as they may be."""

    def terminal(self, data):
        return np.zeros(len(data), bool)


class Switch(CartPole):
    """The same with two actions."""

    action_space = gymnasium.spaces.Discrete(2)

    def control(self, action):
        return 2.0 * action[:, None] - 1

    def reward(self, before, action, data):
        return super().reward(before, self.control(action), data)


class Varied(CartPole):
    """The same with other masses, friction and gains in every episode."""

    varied = ("body_mass", "body_inertia", "geom_friction", "actuator_gear")

    def vary(self, model, random):
        factor = random.uniform(0.5, 2)
        model.body("pole").mass *= factor
        model.body("pole").inertia *= factor[:, None]
        model.geom("floor").friction[:, 0] = random.uniform(0.1, 1)
        model.actuator("push").gear[:, 0] += random.normal()
