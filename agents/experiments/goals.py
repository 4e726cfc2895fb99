"""Hindsight for environments with goals: options, and outcomes of other goals."""

import dataclasses
import json
from typing import Any

import gymnasium
import numpy as np

from agents import environments
from agents.environments import curriculum, make
from agents.tools import bounds, errors, spaces
from agents.tools import config as config_

ACHIEVED, DESIRED = "achieved_goal", "desired_goal"
_REWARD_WRAPPERS = gymnasium.RewardWrapper, gymnasium.wrappers.NormalizeReward


@dataclasses.dataclass(frozen=True)
class HindsightConfig:
    """Change of goals in replayed transitions; see `memories.hindsight.Hindsight`."""

    share: bounds.FractionFloat = 0.0
    """Probability that a replayed transition gets a goal that was achieved later in its
    episode; Andrychowicz et al. (2017) use 0.8. Zero for none."""
    outcome: str | None = None
    """Import path `module:function` of a TensorFlow function of achieved and desired
    goals `[B, ...]` that returns rewards float32 `[B]` and terminations bool `[B]`; none
    for `compute_reward` and, if defined, `compute_terminated` of the environment."""

    def __post_init__(self) -> None:
        bounds.require(self)

    def without_effect(self) -> dict[str, str]:
        """Map each field without effect to the reason; see `bounds.require_effect`."""
        return {} if self.share else {"outcome": "with share 0"}


def subclass(
    cls: type,
    hindsight: HindsightConfig,
    environment: environments.Environment,
    space: gymnasium.Space,
) -> type:
    """Create a subclass of an algorithm whose replay memory has hindsight.

    Raises:
      ConfigError: if the algorithm has no replay memory, or if the environment computes
        outcomes although it cannot, or it or the updates are to be compiled by XLA.
      UnsupportedSpaceError: if observations have no goals.
    """
    from agents.memories import hindsight as memory

    if not hasattr(cls, "create_memory") or not hasattr(cls, "draw"):
        raise config_.ConfigError(
            f"{cls.__name__} has no replay memory, which hindsight needs; use dqn, "
            "apex, sac or td3, or set hindsight.share=0."
        )
    _require_goals(space)
    path = hindsight.outcome
    outcome = config_.find(path) if path else _Outcome(environment, space[DESIRED])
    share = hindsight.share

    def init(self, observation_space, action_space, num_agents, length, config, *rest):
        for key, needed in {"n_step": 1, "stack": None}.items():
            given = getattr(config, key, needed)
            if given != needed:
                raise config_.ConfigError(
                    f"config key 'algorithm.{key}' must be {json.dumps(needed)} with "
                    f"hindsight, got {given}."
                )
        if config.jit and not path:
            raise config_.ConfigError(
                "algorithm.jit compiles updates by XLA, which cannot ask the environment "
                "for outcomes; leave it out, or declare hindsight.outcome."
            )
        if config.jit is None and not path:
            config = dataclasses.replace(config, jit=False)
        spaces_ = observation_space, action_space
        super(derived, self).__init__(*spaces_, num_agents, length, config, *rest)

    def create_memory(self, *arguments):
        def clipped(achieved, desired):
            reward, terminated = outcome(achieved, desired)
            return self.clipped(reward), terminated

        return memory.Hindsight(*arguments, share=share, outcome=clipped)

    members = {
        "__init__": init,
        "create_memory": create_memory,
        "__doc__": cls.__doc__,
    }
    derived = type(cls.__name__, (cls,), members)
    return derived


def _require_goals(space: gymnasium.Space) -> None:
    """Raise UnsupportedSpaceError unless observations have equal spaces of goals."""
    parts = getattr(space, "spaces", {})
    if not isinstance(parts, dict) or not {ACHIEVED, DESIRED} <= parts.keys():
        raise spaces.UnsupportedSpaceError(
            f"hindsight needs Dict observations with {ACHIEVED!r} and {DESIRED!r}, got "
            f"{space}; set hindsight.share=0."
        )
    one, other = parts[ACHIEVED], parts[DESIRED]
    if (one.shape, one.dtype) != (other.shape, other.dtype) or one.shape is None:
        raise spaces.UnsupportedSpaceError(
            f"{ACHIEVED!r} and {DESIRED!r} must be arrays alike, got {one} and {other}."
        )


class _Outcome:
    """Function of goals that asks an environment."""

    def __init__(
        self, environment: environments.Environment, goal: gymnasium.Space
    ) -> None:
        self._environment, self._goal = environment, goal
        try:
            self._make = make.constructor(environment)
        except environments.BackendError as error:
            raise config_.ConfigError(
                f"environment {environment.id!r} is a TensorFlow function, which cannot "
                "be asked for outcomes; declare hindsight.outcome."
            ) from error
        self._reward, self._terminated = self._functions()

    def __call__(self, achieved: Any, desired: Any) -> tuple[Any, Any]:
        """Return rewards float32 `[B]` and terminations bool `[B]` as tensors."""
        import tensorflow as tf

        reward, terminated = tf.numpy_function(
            self.compute, [achieved, desired], [tf.float32, tf.bool], stateful=False
        )
        reward.set_shape(achieved.shape[:1])
        terminated.set_shape(achieved.shape[:1])
        return reward, terminated

    def compute(
        self, achieved: np.ndarray, desired: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return rewards float32 `[B]` and terminations bool `[B]`."""
        return (
            self._reward(achieved, desired).astype(np.float32),
            self._terminated(achieved, desired).astype(bool),
        )

    def _functions(self) -> tuple[Any, Any]:
        """Functions of goals `[B, ...]` for rewards and terminations `[B]`."""
        what = f"environment {self._environment.id!r}"
        if changing := list(curriculum.schedules_of(self._environment.kwargs)):
            raise config_.ConfigError(
                f"environment.kwargs.{changing[0]} changes in training, but hindsight "
                "asks an environment that stays as it is; declare hindsight.outcome."
            )
        env = self._make()
        reward = _attribute(env, "compute_reward")
        if reward is None:
            raise config_.ConfigError(
                f"{what} has no compute_reward, which hindsight needs; declare "
                "hindsight.outcome."
            )
        terminated = _attribute(env, "compute_terminated") or (lambda *_: False)
        self._goal.seed(0)
        examples = [np.stack([self._goal.sample() for _ in range(4)]) for _ in "ad"]
        try:
            functions = _batched(reward, examples), _rowwise(terminated)
            functions[1](*examples)
        except Exception as error:
            raise config_.ConfigError(
                f"{what} cannot compute outcomes of sampled goals without an info: "
                f"{errors.reason(error)}; declare hindsight.outcome."
            ) from error
        return functions


def _attribute(env: gymnasium.Env, name: str) -> Any:
    """Return the outermost attribute of this name, or None.

    Raises:
      ConfigError: if a wrapper outside of it changes rewards.
    """
    layer = env
    while isinstance(layer, gymnasium.Wrapper) and not hasattr(layer, name):
        if isinstance(layer, _REWARD_WRAPPERS):
            raise config_.ConfigError(
                f"the wrapper {type(layer).__name__} changes rewards, but not those that "
                f"{name} computes for hindsight; declare hindsight.outcome."
            )
        layer = layer.env
    return getattr(layer, name, getattr(layer.unwrapped, name, None))


def _rowwise(function: Any) -> Any:
    """Return a function of goals `[B, ...]` that calls one of single goals."""

    def call(achieved, desired):
        pairs = zip(achieved, desired, strict=True)
        return np.array([function(x, y, {}) for x, y in pairs])

    return call


def _batched(function: Any, examples: list[np.ndarray]) -> Any:
    """Return a function of goals `[B, ...]`: the given one, if it takes batches."""
    rowwise = _rowwise(function)
    achieved, desired = (np.concatenate([x, examples[1]]) for x in examples)
    expected = rowwise(achieved, desired)
    try:
        together = np.asarray(function(achieved, desired, {}))
    except Exception:
        return rowwise
    if together.shape == expected.shape and (together == expected).all():
        return lambda achieved, desired: np.asarray(function(achieved, desired, {}))
    return rowwise
