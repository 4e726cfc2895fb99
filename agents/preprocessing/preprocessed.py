"""Algorithms with preprocessed observations, for any kind of run."""

from typing import Any

import gymnasium
import tensorflow as tf

from agents.preprocessing import stages
from agents.tools import algorithm, config, rows, spaces


class Preprocessing(tf.Module):
    """Function of all stages of all parts of an observation.

    Attributes:
      space: Space of the results.
      learns: Whether a stage has statistics, which change in training.
      kept: Variables for checkpoints.
    """

    def __init__(self, space: gymnasium.Space, declared: dict | list | tuple) -> None:
        """Create the stages.

        Args:
          space: Observation space.
          declared: List of stages, see `stages.create`, or for structured observations
            a mapping from the paths of parts, `camera/left`, to lists.

        Raises:
          ConfigError: if parts or stages are unknown or do not fit.
        """
        super().__init__()
        paths, leaves = spaces.paths(spaces.spec(space)), spaces.flatten(space)
        if not isinstance(declared, dict):
            declared = {"": declared}
        declared = {str(path): value for path, value in declared.items()}
        for path in declared:
            if path not in paths:
                what = repr(path) if path else "a list"
                raise config.ConfigError(
                    f"config key 'preprocessing' has {what}, but what is observed "
                    f"has the parts {', '.join(map(repr, paths))}."
                )
            if path.partition("/")[0] == spaces.ACTION_MASK:
                raise config.ConfigError(
                    f"config key 'preprocessing' has stages for {path!r}, which must stay "
                    "as it is."
                )
            if not isinstance(declared[path], list | tuple):
                raise config.ConfigError(
                    "config key 'preprocessing' must have a list of stages for "
                    f"{path!r}, got {declared[path]!r}."
                )
        self._stages, results = [], []
        for path, leaf in zip(paths, leaves, strict=True):
            chain = []
            for declaration in declared.get(path, ()):
                chain.append(stages.create(declaration, leaf))
                leaf = stages.result(chain[-1], leaf)
            self._stages.append(chain)
            results.append(leaf)
        self.space = spaces.unflatten(space, results)
        every = [stage for chain in self._stages for stage in chain]
        self.learns = any(stage.variables for stage in every)
        self.kept = [variable for stage in every for variable in stage.kept]

    def initial_state(self, size: int) -> list[list[Any]]:
        """Return the states of all stages at the beginning of `size` episodes."""
        return [[x.initial_state(size) for x in chain] for chain in self._stages]

    def __call__(
        self,
        observation: Any,
        state: list[list[Any]],
        learn: tf.Tensor | None = None,
    ) -> tuple[Any, list[list[Any]]]:
        """Apply the stages to observations `[K, ...]`; return results and next state.

        Then statistics learn from the rows where `learn`, bool `[K]`, is true.
        """
        leaves, following = [], []
        parts = zip(tf.nest.flatten(observation), self._stages, state, strict=True)
        for leaf, chain, states in parts:
            after = []
            for stage, before in zip(chain, states, strict=True):
                given = leaf
                leaf, new = stage(given, before)
                after.append(new)
                if learn is not None:
                    stage.update(given, learn)
            leaves.append(leaf)
            following.append(after)
        return tf.nest.pack_sequence_as(observation, leaves), following

    def learn(self, fragments: dict[str, Any], mask: tf.Tensor) -> None:
        """Let statistics learn from the observations of fragments, in order of time.

        They change as in training, one step after another.

        Args:
          fragments: Structures `[F, T, ...]`, see `offline.update`.
          mask: Valid steps, bool `[F, T]`.
        """
        if not self.learns:
            return
        initial = self.initial_state(tf.shape(mask)[0])
        inputs = fragments["observation"], _first(fragments), mask

        def step(time, state):
            now, first, valid = tf.nest.map_structure(lambda x: x[:, time], inputs)
            _, state = self(now, rows.choose(first, initial, state), valid)
            return time + 1, state

        steps = tf.shape(mask)[1]
        tf.while_loop(
            lambda time, _: time < steps, step, (0, initial), parallel_iterations=1
        )

    def see(self, fragments: dict[str, Any]) -> dict[str, Any]:
        """Apply the stages to the observations of fragments `[F, T, ...]`.

        All stages use their current statistics.
        """
        first = _first(fragments)
        initial = self.initial_state(tf.shape(first)[0])

        def step(carried, inputs):
            now, following, first = inputs
            state = rows.choose(first, initial, carried[2])
            seen, state = self(now, state)
            next_seen, _ = self(following, state)
            return seen, next_seen, state

        nothing = spaces.transform(
            lambda x: tf.zeros([tf.shape(first)[0], *x.shape], x.dtype),
            spaces.spec(self.space),
        )
        names = ("observation", "next_observation")
        inputs = rows.swap_time((*(fragments[name] for name in names), first))
        *seen, _ = tf.scan(step, inputs, (nothing, nothing, initial))
        return {**fragments, **dict(zip(names, rows.swap_time(seen), strict=True))}


def subclass(cls: type, declared: dict | list | tuple) -> type:
    """Create a subclass of an algorithm that preprocesses its observations.

    It gets observations of the environment, and stores the state of the stages for
    every row; memory and network only see the results of the stages.
    """
    members = {
        "declared": declared,
        "performs": cls.perform is not algorithm.Algorithm.perform,
        "decides": cls.decide is not algorithm.Algorithm.decide,
        "__doc__": cls.__doc__,
    }
    return type(cls.__name__, (_Preprocessed, cls), members)


class _Preprocessed:
    """Mixin that preprocesses observations before the algorithm sees them."""

    declared: dict | list | tuple
    performs: bool
    """True if the algorithm defines `perform` itself."""
    decides: bool
    """True if it defines `decide` itself, which is otherwise made of `perform`."""

    def __init__(self, observation_space, action_space, num_agents, *args, **kwargs):
        self.preprocessing = Preprocessing(observation_space, self.declared)
        space = self.preprocessing.space
        state = self.preprocessing.initial_state(num_agents)
        self._stages_state = rows.variables(state)
        self._seen = rows.variables(
            spaces.transform(lambda x: x.zeros(num_agents), spaces.spec(space))
        )
        super().__init__(space, action_space, num_agents, *args, **kwargs)

    def begin_episodes(self, agent_indices, training=True):
        zeros = self.preprocessing.initial_state(tf.size(agent_indices))
        rows.write(self._stages_state, agent_indices, zeros)
        super().begin_episodes(agent_indices, training)

    def perform(self, agent_indices, observation, training=True):
        if self.performs:
            observation = self._see(agent_indices, observation, training)
        return super().perform(agent_indices, observation, training)

    def explore(self, agent_indices, observation):
        seen = self._see(agent_indices, observation, training=True)
        return super().explore(agent_indices, seen)

    def _see(self, agent_indices, observation, training):
        state = rows.gather(self._stages_state, agent_indices)
        learn = tf.ones_like(agent_indices, tf.bool) if training else None
        seen, state = self.preprocessing(observation, state, learn)
        rows.write(self._stages_state, agent_indices, state)
        if training:
            rows.write(self._seen, agent_indices, seen)
        return seen

    def experience(self, agent_indices, observation, *following):
        *following, next_observation = following
        del observation  # Its result is stored.
        state = rows.gather(self._stages_state, agent_indices)
        next_seen, _ = self.preprocessing(next_observation, state)
        seen = rows.gather(self._seen, agent_indices)
        super().experience(agent_indices, seen, *following, next_seen)

    def decide(self, observation, state, generator=None):
        stages, inner = state
        seen, stages = self.preprocessing(observation, stages)
        if self.performs and (generator is None or not self.decides):
            if generator is not None:
                self.require_stochastic()
            everyone = tf.range(tf.shape(tf.nest.flatten(seen)[0])[0])
            action = super().perform(everyone, seen, training=False)
        else:
            action, inner = super().decide(seen, inner, generator)
        return action, (stages, inner)

    def initial_state(self, size):
        return self.preprocessing.initial_state(size), super().initial_state(size)

    def running_state(self, agent_indices):
        stages = rows.gather(self._stages_state, agent_indices)
        return stages, super().running_state(agent_indices)

    def go_on(self, agent_indices, state):
        stages, inner = state
        rows.write(self._stages_state, agent_indices, stages)
        super().go_on(agent_indices, inner)

    def acting(self):
        return [*super().acting(), *self.preprocessing.kept]

    def persistent(self):
        return {**super().persistent(), "preprocessing": self.preprocessing.kept}


def _first(fragments: dict[str, Any]) -> tf.Tensor:
    """Return the steps that begin an episode or a fragment, bool `[F, T]`."""
    return rows.before(fragments["terminated"] | fragments["truncated"], True)
