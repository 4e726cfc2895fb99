"""Environments that tests name by `module:function`, or make in other processes.

Nothing here imports TensorFlow, since every process of environments imports this.
"""

import os
import pathlib
import sys
import time

import gymnasium
import numpy as np

from agents.tools import spaces


class Counting(gymnasium.Env):
    """Observes the number of steps of its episode and a random number."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 25}

    def __init__(self, length=10, render_mode=None):
        self.observation_space = gymnasium.spaces.Box(-1e3, 1e3, (2,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.render_mode = render_mode
        self._length, self._steps, self._total = length, 0, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = 0
        return self._observation(), {}

    def step(self, action):
        self._steps += 1
        self._total += 1
        return self._observation(), 1.0, self._steps == self._length, False, {}

    def _observation(self):
        return np.array([self._steps, self.np_random.uniform()], np.float32)

    def render(self):
        """Picture with odd sides whose brightness is the number of steps."""
        assert "tensorflow" not in sys.modules
        return np.full((61, 91, 3), 40 + 4 * self._steps, np.uint8)


def counting(render_mode=None, length=10):
    return Counting(length, render_mode=render_mode)


def without_render_mode():
    return Counting()


def without_limit():
    """Episodes that nothing ends for certain."""
    return Counting()


class Pictures(Counting):
    """Observes a picture and a number, in episodes that nothing ends for certain."""

    def __init__(self):
        super().__init__()
        picture = gymnasium.spaces.Box(0, 255, (36, 40, 3), np.uint8)
        parts = {"camera": picture, "number": self.observation_space}
        self.observation_space = gymnasium.spaces.Dict(parts)

    def _observation(self):
        camera = np.full((36, 40, 3), self._steps, np.uint8)
        return {"camera": camera, "number": super()._observation()}


def pictures(num_envs, fps=20):
    """Vector environment of several, whose pictures are as bright as in `render`."""

    class Bright(Pictures):
        metadata = {"render_fps": fps}

        def _observation(self):
            found = super()._observation()
            return {**found, "camera": 40 + 4 * found["camera"]}

    return gymnasium.vector.SyncVectorEnv([Bright] * num_envs)


class Moved(gymnasium.Wrapper):
    """Robot of MuJoCo that is carried 10 meters away in every step."""

    def step(self, action):
        inner = self.unwrapped
        position = inner.data.qpos.copy()
        position[0] += 10.0
        inner.set_state(position, inner.data.qvel)
        return super().step(action)


def draws_nothing(render_mode=None):
    env = Counting(render_mode=render_mode)
    env.render = lambda: None
    return env


def raises():
    raise ZeroDivisionError("the constructor fails")


def hangs():
    time.sleep(1000)


def exits():
    sys.exit(4)


def unsupported_space():
    env = Counting()
    env.observation_space = gymnasium.spaces.Text(10)
    return env


class Failing(Counting):
    """Fails at step 15 of the run if its first episode had this seed."""

    def __init__(self, seed, what):
        super().__init__()
        self._bad_seed, self._what, self._bad = seed, what, False

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self._bad, self._total = seed == self._bad_seed, 0
        return super().reset(seed=seed, options=options)

    def step(self, action):
        observation, reward, *rest = super().step(action)
        if self._bad and self._total == 15:
            if self._what == "reward":
                reward = float("inf")
            if self._what == "observation":
                observation[1] = float("nan")
            if self._what == "outside":
                observation[1] = 2e3
            if self._what == "exception":
                raise ZeroDivisionError("the step fails")
            if self._what == "exit":
                sys.exit(4)
        return observation, reward, *rest


def failing(seed, what):
    return Failing(seed, what)


class Gated(gymnasium.Wrapper):
    """Stands still where a file says so, until that is gone.

    It says which file has the reports of the run, how many of them there must be, and
    the steps that are made after that.
    """

    def __init__(self, env, gate):
        super().__init__(env)
        self._gate, self._steps = pathlib.Path(gate), 0

    def step(self, action):
        while self._stands():
            time.sleep(0.01)
        return super().step(action)

    def _stands(self):
        try:
            path, reports, steps = self._gate.read_text().splitlines()
            written = pathlib.Path(path).read_text().count("\n")
        except FileNotFoundError:
            return False
        self._steps += written >= int(reports)
        return self._steps > int(steps)


def gated(id, gate):
    return Gated(gymnasium.make(id), gate)


def __getattr__(name):
    """Functional environments, which need TensorFlow, when they are asked for."""
    if name not in ("Impure", "Drawn", "DrawsNothing"):
        raise AttributeError(name)
    import tensorflow as tf

    from agents.environments import functional

    class Impure(functional.CartPole):
        def __init__(self):
            self.calls = 0

        def terminal(self, state):
            self.calls += 1
            return super().terminal(state)

    class Drawn(functional.Catch):
        """Draws a picture that is as bright as the row of the ball."""

        render_fps = 12

        def render(self, state):
            level = 40 + 4 * self.row(state).numpy()
            ones = np.ones((len(level), 60, 90, 3), np.uint8)
            return ones * level[:, None, None, None].astype(np.uint8)

        @tf.function
        def row(self, state):
            for _ in tf.range(3):
                state = tf.reduce_max([state, state], 0)
            return state[:, 0]

    class DrawsNothing(functional.Catch):
        def render(self, state):
            return state

    return {"Impure": Impure, "Drawn": Drawn, "DrawsNothing": DrawsNothing}[name]


class Told(gymnasium.Env):
    """Rewards are the level; observes it, the wind, and a random number."""

    made = 0

    def __init__(self, level=0.0, length=3):
        Told.made += 1
        self.observation_space = gymnasium.spaces.Box(-1e6, 1e6, (4,), np.float64)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.level, self.wind, self._length = float(level), 0.0, length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._time = 0
        return self._observe(), {}

    def step(self, action):
        self._time += 1
        return self._observe(), self.level, self._time == self._length, False, {}

    def _observe(self):
        return np.array([self.level, self.wind, self.np_random.uniform(), Told.made])


class Shown(Told):
    """The same with pictures."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}

    def __init__(self, level=0.0, render_mode=None):
        super().__init__(level)
        self.render_mode = render_mode

    def render(self):
        return np.zeros((48, 48, 3), np.uint8)


class Growing(Told):
    def __init__(self, size):
        super().__init__()
        self.observation_space = gymnasium.spaces.Box(-1, 1, (size,), np.float64)

    def reset(self, *, seed=None, options=None):
        return np.zeros(self.observation_space.shape), {}


def kernels(event):
    """Report whether TensorFlow uses the kernels of oneDNN where it would not."""
    if event.kind == "update":
        return {"onednn": float(os.environ.get("TF_ENABLE_ONEDNN_OPTS", 0))}
    return None


class Strict(gymnasium.Env):
    """Environment that allows one action of each part, and refuses all others."""

    def __init__(self, action_space):
        self.observation_space = gymnasium.spaces.Box(-1, 1, (2,))
        self.action_space = action_space
        self._low, counts = spaces.integer_range(action_space)
        self._counts = counts.ravel()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._time = 0
        return self._view()

    def step(self, action):
        expected = (self._choice + self._low.ravel()).reshape(self.action_space.shape)
        if not np.array_equal(action, expected):
            raise ValueError(f"{action} is not allowed.")
        self._time += 1
        observation, info = self._view()
        return observation, 1.0, self._time == 7, False, info

    def _view(self):
        self._choice = self.np_random.integers(self._counts)
        mask = [
            np.arange(n) == x for n, x in zip(self._counts, self._choice, strict=True)
        ]
        return np.zeros(2, np.float32), {"action_mask": np.concatenate(mask)}
