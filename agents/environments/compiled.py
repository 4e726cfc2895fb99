"""Environments in TensorFlow, in one program with the algorithm."""

import traceback
from typing import Any

import numpy as np
import tensorflow as tf

from agents.environments import config
from agents.environments.functional import functional_env
from agents.tools import checks, errors, ranges, spaces, steps


class FunctionError(config.BackendError):
    """Functional environment that breaks the rules, with the rule as text."""


class Compiled(steps.Continued, tf.Module):
    """Batch of functional environments, with the interface of `InGraphBatchEnv`.

    States are variables. `tools.simulate` compiles everything by XLA.

    Args:
      env: Functional environment.
      num_envs: Number of rows.
      max_length: Steps after which to truncate episodes; by default its own limit.

    Raises:
      FunctionError: if its functions do not fit its spaces or have side effects, or
        its first observations are not finite or not in a discrete space. Later
        observations are not checked, because a program cannot raise midway.
    """

    parts = 1
    compiled = True
    error = called = None

    def __init__(
        self,
        env: functional_env.FunctionalEnv,
        num_envs: int,
        max_length: int | None = None,
    ) -> None:
        super().__init__()
        self._env = env
        self._size = num_envs
        self._max_length = max_length or env.max_length
        check(env)
        seed = tf.zeros([2], tf.int32)
        initial = _tensors(env.initial(num_envs, seed))
        _require_rows(env, initial, num_envs)
        _require_inside(env, initial)
        self._state = tf.nest.map_structure(_variable, initial)
        self._score = _variable(tf.zeros([num_envs], tf.float64))
        self._length = _variable(tf.zeros([num_envs], tf.int32))
        entropy = np.random.SeedSequence().generate_state(1)
        self._seed = _variable(tf.constant(entropy.astype(np.int32)[0]))
        self._count = _variable(tf.constant(0))  # Number of uses of the seed.
        self.steps = 0

    def __len__(self) -> int:
        return self._size

    @property
    def observation_space(self):
        """Observation space of one environment."""
        return self._env.observation_space

    @property
    def action_space(self):
        """Action space of one environment."""
        return self._env.action_space

    def discontinue(self, seeds: np.ndarray | None = None) -> None:
        """Abandon all episodes; the next ones depend on the seeds, integers `[N]`."""
        self.current = None
        if seeds is not None:
            mixed = np.random.SeedSequence(seeds.tolist()).generate_state(1)
            self._seed.assign(mixed.astype(np.int32)[0])
            self._count.assign(0)

    @tf.function(autograph=False, jit_compile=True)
    def begin(self) -> steps.Before:
        """Begin episodes in all rows."""
        return self._restart(tf.ones([self._size], tf.bool))

    def simulate(
        self, before: steps.Before, action: Any
    ) -> tuple[steps.After, steps.Before]:
        """Step all environments once; see `InGraphBatchEnv.simulate`."""
        new, after = self.step(action)
        return after, self.go_on(new, after.done)

    @property
    def state(self) -> Any:
        """Current states of all rows."""
        return _read(self._state)

    def step(self, action: Any) -> tuple[Any, steps.After]:
        """Compute new states, true last ones where done; `go_on` must follow."""
        state = self.state
        new = self._env.transition(state, action, self._draw())
        reward = self._env.reward(state, action, new)
        terminated = self._env.terminal(new)
        self._score.assign_add(tf.cast(reward, tf.float64))
        self._length.assign_add(tf.ones_like(self._length))
        truncated = self._length >= self._max_length
        score = tf.cast(self._score.read_value(), tf.float32)
        after = steps.After(
            self._env.observation(new),
            reward,
            terminated,
            truncated,
            steps.record(terminated, truncated, score, self._length),
        )
        return new, after

    def go_on(self, state: Any, done: tf.Tensor) -> steps.Before:
        """Continue with these states, and with new episodes in rows that are done."""
        tf.nest.map_structure(lambda x, value: x.assign(value), self._state, state)
        return self._restart(done)

    def close(self) -> None:
        """Do nothing, because nothing is open."""

    def _restart(self, rows: tf.Tensor) -> steps.Before:
        """Begin episodes in these rows, bool `[N]`; return all rows before acting."""
        new = _tensors(self._env.initial(self._size, self._draw()))
        tf.nest.map_structure(
            lambda x, value: x.assign(_where(rows, value, x)), self._state, new
        )
        self._score.assign(tf.where(rows, tf.zeros_like(self._score), self._score))
        self._length.assign(tf.where(rows, 0, self._length))
        observation = self._env.observation(self.state)
        return steps.Before(observation, rows)

    def _draw(self) -> tf.Tensor:
        """Return an unused seed, int32 `[2]`."""
        seed = tf.stack([self._seed.read_value(), self._count.read_value()])
        self._count.assign_add(1)
        return seed


def check(env: functional_env.FunctionalEnv) -> None:
    """Raise FunctionError unless the functions of an environment can be compiled."""
    name, size = type(env).__name__, 3
    checks.positive_integer(f"{name}.max_length", env.max_length, FunctionError)
    before = dict(vars(env))
    action_spec = spaces.spec(env.action_space)

    @tf.function(autograph=False)
    def run():
        seed = tf.zeros([2], tf.int32)
        action = spaces.transform(
            lambda x: tf.zeros([size, *x.shape], x.dtype), action_spec
        )
        state = env.initial(size, seed)
        following = env.transition(state, action, seed)
        flags = env.reward(state, action, following), env.terminal(following)
        return state, following, env.observation(state), flags

    try:
        graph = run.get_concrete_function()
    except Exception as error:
        raise FunctionError(
            f"The functions of {name} fail when they are traced: "
            f"{errors.reason(error)}\n\n{traceback.format_exc()}"
        ) from error
    changed = sorted(
        {k for k, v in vars(env).items() if before.get(k, before) is not v}
    )
    if changed:
        raise FunctionError(
            f"{name} changes its attribute {changed[0]!r}. Its functions run once, "
            "when they are traced; put what changes into the state."
        )
    for operation in graph.graph.get_operations():
        if "PyFunc" in operation.type:
            raise FunctionError(
                f"{name} calls Python in the graph ({operation.type} at "
                f"{operation.name}), which cannot be compiled; use TensorFlow "
                "operations, or make it a Gymnasium environment for backend workers."
            )
    if any(x.dtype == tf.resource for x in graph.captured_inputs):
        raise FunctionError(f"{name} uses a variable; put what changes into the state.")
    state, following, observation, (reward, terminal) = graph.structured_outputs
    _require_rows(env, state, size)
    _expect(name, "transition", tf.nest.map_structure(_kind, state), following)
    specs = spaces.transform(
        lambda x: ([size, *x.shape], tf.as_dtype(x.dtype)),
        spaces.spec(env.observation_space),
    )
    _expect(name, "observation", specs, observation)
    _expect(name, "reward", ([size], tf.float32), reward)
    _expect(name, "terminal", ([size], tf.bool), terminal)


def _require_rows(env: functional_env.FunctionalEnv, state: Any, size: int) -> None:
    """Raise FunctionError unless all parts of an initial state have N rows."""
    for part in tf.nest.flatten(state):
        if part.shape.rank == 0 or part.shape[0] != size:
            raise FunctionError(
                f"{type(env).__name__}.initial gives a part of the state "
                f"{part.shape.as_list()} for {size} environments; expected "
                f"[{size}, ...]."
            )


def _require_inside(env: functional_env.FunctionalEnv, state: Any) -> None:
    """Raise FunctionError for bad first observations, or warn."""
    leaves = [np.asarray(x) for x in tf.nest.flatten(env.observation(state))]
    checker = ranges.RangeChecker(env.observation_space, 0)
    try:
        checker.require(leaves, range(len(leaves[0])))
    except checks.EnvDataError as error:
        raise FunctionError(f"{type(env).__name__}.observation: {error}") from None


def _expect(name: str, function: str, expected: Any, found: Any) -> None:
    """Raise FunctionError unless tensors have the expected shapes and dtypes."""
    found = tf.nest.map_structure(_kind, found)
    if found != expected:
        raise FunctionError(
            f"{name}.{function} gives {found} for 3 environments; expected {expected}."
        )


def _kind(tensor: Any) -> tuple[list, tf.DType]:
    return (tensor.shape.as_list(), tensor.dtype)


def _tensors(state: Any) -> Any:
    """Return a state of tensors, or of what can be converted to them."""
    return tf.nest.map_structure(tf.convert_to_tensor, state)


def _variable(value: tf.Tensor) -> tf.Variable:
    return tf.Variable(value, trainable=False)


def _read(variables: Any) -> Any:
    return tf.nest.map_structure(lambda x: x.read_value(), variables)


def _where(rows: tf.Tensor, new: tf.Tensor, old: tf.Tensor) -> tf.Tensor:
    """Select rows `[N, ...]` of the new tensor, else of the old one."""
    shape = [-1, *[1] * (new.shape.rank - 1)]
    return tf.where(tf.reshape(rows, shape), new, old)
