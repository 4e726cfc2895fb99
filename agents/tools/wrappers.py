"""Environments in separate processes, and wrappers that Gymnasium lacks.

Gymnasium itself has these wrappers of this toolkit's predecessors:

- `ActionRepeat`: `RepeatAction(num_repeats)`, `MaxAndSkipObservation`
- `AutoReset`: `Autoreset`; not needed here, because batches own their resets
- `CacheSpaces`: not needed; batches read the spaces once
- `ClipAction`: `ClipAction`
- `FrameHistory`: `FrameStackObservation` for consecutive frames
- `LimitDuration`: `TimeLimit(max_episode_steps)`
- `RangeNormalize`: `RescaleAction`, `RescaleObservation` when bounds are known
"""

import copy
import inspect
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from agents.tools import actions, checks, external_process, spaces

ExternalProcess = external_process.ExternalProcess


class RandomStart(gymnasium.Wrapper):
    """Wrapper that begins episodes with up to `max_steps - 1` random actions.

    Their number is uniform and, like the actions, a function of the last seed. Actions
    obey masks in observations or infos. If the episode ends during them, a new one
    begins.
    """

    def __init__(self, env: gymnasium.Env, max_steps: int):
        super().__init__(env)
        if max_steps < 1:
            raise ValueError(f"Expected positive max_steps, got {max_steps}.")
        self._max_steps = max_steps
        self._random = np.random.default_rng()
        # Environments may share a space and with it the random numbers.
        self._actions = copy.deepcopy(env.action_space)
        both = env.observation_space, env.action_space
        self._maskable = spaces.choices(env.action_space) is not None
        self._observed = self._maskable and spaces.mask_sizes(*both)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        if seed is not None:
            self._random = np.random.default_rng([seed, 2])  # The environment has seed.
            self._actions.seed(int(self._random.integers(2**31)))
        observation, info = self.env.reset(seed=seed, options=options)
        for _ in range(self._random.integers(self._max_steps)):
            action = self._sample(observation, info)
            observation, _, terminated, truncated, info = self.env.step(action)
            if terminated or truncated:
                observation, info = self.env.reset(options=options)
        return observation, info

    def _sample(self, observation: Any, info: dict) -> Any:
        """Draw a random action that the mask, if any, allows."""
        mask = (observation if self._observed else info).get(spaces.ACTION_MASK)
        if mask is None or not self._maskable:
            return self._actions.sample()
        return actions.sample_allowed(self.action_space, mask, self._random)


class FrameDelta(gymnasium.ObservationWrapper):
    """Wrapper that observes differences between frames, and first the frame itself."""

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        low = env.observation_space.low.astype(np.float32)
        high = env.observation_space.high.astype(np.float32)
        # The first frame may lie outside of the extreme differences.
        low, high = np.minimum(low, low - high), np.maximum(high, high - low)
        self.observation_space = gymnasium.spaces.Box(low, high, dtype=np.float32)
        self._last = np.float32(0)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        self._last = np.float32(0)
        return super().reset(seed=seed, options=options)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        last, self._last = self._last, np.array(observation, np.float32)
        return self._last - last


class FrameHistory(gymnasium.ObservationWrapper):
    """Wrapper that observes the frames at several offsets into the past.

    The history of a new episode is filled with its first frame.

    Args:
      env: Environment with frames `[...]` in a Box.
      past_indices: Distinct offsets that contain 0, the current frame.
      flatten: Join the frames along their last axis, `[..., K * C]`, rather than
        stacking them along a new first one, `[K, ...]`.
    """

    def __init__(
        self, env: gymnasium.Env, past_indices: Sequence[int], flatten: bool = False
    ):
        super().__init__(env)
        if 0 not in past_indices or min(past_indices) < 0:
            raise ValueError(f"Expected offsets with 0, got {list(past_indices)}.")
        self._past = np.array(past_indices)
        self._flatten = flatten
        self._frames = None
        self._step = 0
        space = env.observation_space
        low, high = (
            self._join([x] * len(past_indices)) for x in (space.low, space.high)
        )
        self.observation_space = gymnasium.spaces.Box(low, high, dtype=space.dtype)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        self._frames = None
        return super().reset(seed=seed, options=options)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        if self._frames is None:
            frames = np.stack([observation] * (self._past.max() + 1))
            self._frames = frames.astype(self.observation_space.dtype)
        self._step = (self._step + 1) % len(self._frames)
        self._frames[self._step] = observation
        return self._join(self._frames[(self._step - self._past) % len(self._frames)])

    def _join(self, frames: Sequence[np.ndarray]) -> np.ndarray:
        """Join several frames to one array."""
        return np.concatenate(list(frames), -1) if self._flatten else np.stack(frames)


class RangeNormalize(gymnasium.Wrapper):
    """Wrapper that maps observations and actions linearly to [-1, 1].

    Args:
      env: Environment with spaces that are boxes, at least those to map.
      observation: Whether to map observations: None maps them if all bounds are finite,
        True requires that, False leaves them.
      action: Likewise for actions.

    Raises:
      ValueError: if a space that must be mapped is not a box, or not finite.
    """

    def __init__(
        self,
        env: gymnasium.Env,
        observation: bool | None = None,
        action: bool | None = None,
    ):
        super().__init__(env)
        self._observation_range = _range(env.observation_space, observation)
        self._action_range = _range(env.action_space, action)
        if self._observation_range:
            shape = env.observation_space.shape
            self.observation_space = gymnasium.spaces.Box(-1, 1, shape, np.float32)
        if self._action_range:
            shape = env.action_space.shape
            self.action_space = gymnasium.spaces.Box(-1, 1, shape, np.float32)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        observation, info = self.env.reset(seed=seed, options=options)
        return self._normalize(observation), info

    def step(self, action: Any):
        if self._action_range:
            low, span = self._action_range
            space = self.env.action_space
            action = low + (np.asarray(action) + 1) / 2 * span
            if space.dtype.kind in "iu":
                action = np.rint(action)
            action = action.clip(space.low, space.high).astype(space.dtype)
        observation, *rest = self.env.step(action)
        return self._normalize(observation), *rest

    def _normalize(self, observation: Any) -> Any:
        """Map an observation to [-1, 1], if observations are mapped."""
        if not self._observation_range:
            return observation
        low, span = self._observation_range
        scaled = 2 * (np.asarray(observation) - low) / np.where(span > 0, span, 1) - 1
        return scaled.astype(np.float32)


class ActionMask(gymnasium.Wrapper):
    """Wrapper that moves `info["action_mask"]` into the observation, for networks.

    Observations become `{"observation": ..., "action_mask": ...}`; a Dict gets the key.
    The mask is int8, one where an action is allowed: `[n]` for Discrete(n), `[sum of
    nvec]` for MultiDiscrete, whose parts may come as a tuple. At the end of an episode,
    where no action follows, the info may lack the mask.

    Raises:
      UnsupportedSpaceError: for other action spaces, and if the key exists.
      EnvDataError: from `reset` and `step` if the info has no fitting mask.
    """

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        sizes = spaces.choices(env.action_space)
        if sizes is None:
            raise spaces.UnsupportedSpaceError(
                f"Action masks need a Discrete or MultiDiscrete action space, got "
                f"{env.action_space}."
            )
        self._size = sum(sizes)
        inner = env.observation_space
        self._nested = isinstance(inner, gymnasium.spaces.Dict)
        children = dict(inner.spaces) if self._nested else {"observation": inner}
        if spaces.ACTION_MASK in children:
            raise spaces.UnsupportedSpaceError(
                f"Observation space {inner} has the key {spaces.ACTION_MASK} already."
            )
        children[spaces.ACTION_MASK] = gymnasium.spaces.MultiBinary(self._size)
        self.observation_space = gymnasium.spaces.Dict(children)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        observation, info = self.env.reset(seed=seed, options=options)
        return self._join(observation, info), info

    def step(self, action: Any):
        observation, reward, terminated, truncated, info = self.env.step(action)
        done = terminated or truncated
        observation = self._join(observation, info, done)
        return observation, reward, terminated, truncated, info

    def _join(self, observation: Any, info: dict, done: bool = False) -> dict:
        """Add the mask of an info to an observation."""
        mask = info.get(spaces.ACTION_MASK)
        if mask is None and done:
            mask = np.ones(self._size)
        if mask is None:
            raise checks.EnvDataError(
                f"{type(self.unwrapped).__name__} gives no info['action_mask'], as the "
                f"wrapper ActionMask needs (config key environment.action_mask); its "
                f"info has {sorted(map(str, info))}."
            )
        mask = np.concatenate([np.atleast_1d(x) for x in spaces.flatten(mask)])
        if mask.shape != (self._size,):
            raise checks.EnvDataError(
                f"{type(self.unwrapped).__name__} gives an info['action_mask'] of shape "
                f"{list(mask.shape)}, expected [{self._size}] for {self.action_space}."
            )
        mask = (mask != 0).astype(np.int8)
        children = observation if self._nested else {"observation": observation}
        return {**children, spaces.ACTION_MASK: mask}


class ConvertTo32Bit(gymnasium.Wrapper):
    """Wrapper that converts 64-bit observations and rewards to float32 or int32.

    Raises:
      ValueError: for observations or rewards that are not finite, or integers that do
        not fit.
    """

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        self.observation_space = _space_to_32_bit(env.observation_space)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        observation, info = self.env.reset(seed=seed, options=options)
        return spaces.transform(_to_32_bit, observation), info

    def step(self, action: Any):
        observation, reward, *rest = self.env.step(action)
        observation = spaces.transform(_to_32_bit, observation)
        return observation, _to_32_bit(np.float32(reward)), *rest


class OldGym(gymnasium.Env):
    """Adapter for environments with the interface of the `gym` package.

    `reset` may return an observation only, `step` four values, and spaces may come from
    another package. Results in the new form pass unchanged.

    Args:
      env: Environment of any class.
      render_mode: Argument for a `render` that takes a mode; by default the attribute of
        the environment.
    """

    def __init__(self, env: Any, render_mode: str | None = None):
        self.env = env
        self.observation_space = _convert_space(env.observation_space)
        self.action_space = _convert_space(env.action_space)
        self.metadata = getattr(env, "metadata", {})
        self.render_mode = render_mode or getattr(env, "render_mode", None)

    @property
    def unwrapped(self) -> Any:
        """Environment that has the attributes, which is of another class."""
        return getattr(self.env, "unwrapped", self.env)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        if seed is not None and hasattr(self.env, "seed"):
            self.env.seed(seed)
            seed = None
        given = {"seed": seed, "options": options}
        known = inspect.signature(self.env.reset).parameters
        anything = any(x.kind == x.VAR_KEYWORD for x in known.values())
        taken = {k: v for k, v in given.items() if v is not None}
        result = self.env.reset(
            **{k: v for k, v in taken.items() if anything or k in known}
        )
        pair = isinstance(result, tuple) and len(result) == 2
        return result if pair and isinstance(result[1], dict) else (result, {})

    def step(self, action: Any):
        result = self.env.step(action)
        if len(result) == 5:
            return result
        observation, reward, done, info = result
        truncated = bool(done and info.get("TimeLimit.truncated", False))
        return observation, reward, bool(done) and not truncated, truncated, info

    def render(self) -> Any:
        known = inspect.signature(self.env.render).parameters
        if self.render_mode and "mode" in known:
            return self.env.render(mode=self.render_mode)
        return self.env.render()

    def close(self):
        if hasattr(self.env, "close"):
            self.env.close()


def _range(space: gymnasium.Space, wanted: bool | None) -> tuple | None:
    """Return low end and width of a box if it is to be mapped."""
    if wanted is False:
        return None
    if isinstance(space, gymnasium.spaces.Box):
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        # Some environments encode "unbounded" as the largest number of their dtype.
        limit = np.finfo(np.float32).max
        if (np.abs(low) < limit).all() and (np.abs(high) < limit).all():
            return low, high - low
    if wanted:
        raise ValueError(f"Cannot normalize the range of {space}: it is not finite.")
    return None


def _to_32_bit(value: Any) -> Any:
    """Convert a number or array to at most 32 bits per element."""
    array = np.asarray(value)
    smaller = {"float64": np.float32, "int64": np.int32}.get(array.dtype.name)
    if smaller is not None:
        given = array
        with np.errstate(over="ignore"):
            array = array.astype(smaller)
        if smaller is np.int32 and (array != given).any():
            raise ValueError(f"Environment returned a value beyond 32 bits: {value}.")
    if not np.isfinite(array).all():
        raise ValueError(f"Environment returned a value that is not finite: {value}.")
    return array if isinstance(value, np.ndarray) else array[()]


def _space_to_32_bit(space: gymnasium.Space) -> gymnasium.Space:
    """Return the space of converted observations."""
    if isinstance(space, gymnasium.spaces.Dict):
        children = {key: _space_to_32_bit(child) for key, child in space.items()}
        return gymnasium.spaces.Dict(children)
    if isinstance(space, gymnasium.spaces.Tuple):
        return gymnasium.spaces.Tuple([_space_to_32_bit(child) for child in space])
    if isinstance(space, gymnasium.spaces.Box) and space.dtype == np.float64:
        low, high = space.low.astype(np.float32), space.high.astype(np.float32)
        return gymnasium.spaces.Box(low, high, dtype=np.float32)
    if isinstance(space, gymnasium.spaces.Box) and space.dtype == np.int64:
        limits = np.iinfo(np.int32)
        low, high = (
            np.clip(x, limits.min, limits.max) for x in (space.low, space.high)
        )
        return gymnasium.spaces.Box(low, high, space.shape, np.int32)
    return space


def _convert_space(space: Any) -> gymnasium.Space:
    """Convert a space of another package to Gymnasium's."""
    if isinstance(space, gymnasium.Space):
        return space
    kind = type(space).__name__
    if kind == "Box":
        return gymnasium.spaces.Box(space.low, space.high, dtype=space.dtype)
    if kind == "Discrete":
        return gymnasium.spaces.Discrete(int(space.n), start=getattr(space, "start", 0))
    if kind == "MultiDiscrete":
        return gymnasium.spaces.MultiDiscrete(space.nvec)
    if kind == "MultiBinary":
        return gymnasium.spaces.MultiBinary(space.n)
    if kind == "Dict":
        children = {key: _convert_space(child) for key, child in space.spaces.items()}
        return gymnasium.spaces.Dict(children)
    if kind == "Tuple":
        return gymnasium.spaces.Tuple([_convert_space(child) for child in space.spaces])
    raise spaces.UnsupportedSpaceError(f"Space {space} is not supported.")
