"""Agent for programs with their own loop: `act`, `observe`."""

import dataclasses
import functools
import io
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import tensorflow as tf

from agents import offline
from agents.environments import make
from agents.experiments import config as experiment
from agents.experiments import named, policy, runs
from agents.tools import (
    actions,
    calls,
    checkpoint,
    checks,
    config_files,
    errors,
    files,
    recordings,
    sections,
    simulation,
    space_codec,
    spaces,
)
from agents.tools import algorithm as algorithm_
from agents.tools import config as config_
from agents.tools import leaves as leaves_
from agents.tools import rows as rows_


class AgentError(errors.Mistake):
    """Mistake of the caller of an agent, in one line."""


class Agent:
    """Algorithm for programs that own their environments.

        agent = Agent.create("cartpole_dqn", env.observation_space, env.action_space)
        observation, _ = env.reset()
        while ...:
            action = agent.act(observation)
            observation, reward, terminated, truncated, _ = env.step(action)
            agent.observe(reward, terminated, truncated, next_observation=observation)
            if terminated or truncated:
                observation, _ = env.reset()

    An agent calls the four functions of the algorithm in the order of `simulate`, with
    equal results for equal data. Learning happens in `act`, which receives the outcome
    of the last step, and in `observe` at the end of episodes.

    An agent for one environment, and calls with a single index, take and return values
    without a batch dimension. All other values are `[K, ...]`, with one row for each
    index, or by default for each environment.

    Attributes:
      algorithm: The algorithm.
      config: Config of the agent.
      num_agents: Number of environments.
      observation_space, action_space: Spaces of one environment.
    """

    def __init__(
        self,
        config: experiment.Config,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
    ) -> None:
        """Create the algorithm of a config for `config.environment.num_agents` rows.

        Use `create` instead, which accepts configs in every form.
        """
        self.config, self.num_agents = config, config.environment.num_agents
        self.observation_space, self.action_space = observation_space, action_space
        description = make.Description(
            observation_space, action_space, config.environment.max_length
        )
        self.algorithm: algorithm_.Algorithm = config.create_learner(description)
        self._observation = leaves_.Leaves(observation_space, "observation", AgentError)
        self._following = leaves_.Leaves(
            observation_space, "next_observation", AgentError
        )
        self._action = leaves_.Leaves(action_space, "action", AgentError, within=True)
        self._split = actions.splitter(action_space)
        self._masks = checks.MaskChecker(observation_space, action_space)
        size = self.num_agents
        self._everyone = np.arange(size, dtype=np.int32)
        self._new = np.ones(size, bool)  # Rows whose next step begins an episode.
        self._acted = np.zeros(size, bool)  # Rows that wait for `observe`.
        self._training = np.zeros(size, bool)  # Rows whose step is for learning.
        self._pending = np.zeros(size, bool)  # Rows with a step to learn from.
        self._known = np.zeros(size, bool)  # Rows with a known next observation.
        self._after = self._observation.zeros(size)  # Next ones, else those acted on.
        self._facts = np.zeros([size, 3], np.float32)  # Reward, terminated, truncated.
        zeros = self._observation.zeros(size), self._action.zeros(size)
        self._before, self._done = (rows_.variables(x) for x in zeros)
        self._functions: dict[Any, Any] = {}
        self._update = tf.function(
            functools.partial(offline.update, self.algorithm), autograph=False
        )

    @classmethod
    def create(
        cls,
        config: str | dict | Any,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        num_agents: int = 1,
        max_length: int | None = None,
    ) -> "Agent":
        """Create an agent from a description in any form.

        Args:
          config: Name of an experiment, YAML or JSON file, mapping of one, mapping of
            an algorithm (`{"type": "dqn", ...}`), or dataclass of either.
          observation_space: Observations of one environment.
          action_space: Actions of one environment.
          num_agents: Number of environments.
          max_length: Longest episode, required by algorithms that learn from whole
            episodes; by default that of the config.

        Raises:
          ConfigError: if the config is wrong.
          AgentError: if a number is not a positive integer.
          Mistake: if the algorithm does not fit these spaces.
        """
        config = _config(config)
        sizes = {"num_agents": num_agents}
        if max_length is not None:
            sizes["max_length"] = max_length
        for name, value in sizes.items():
            sizes[name] = checks.positive_integer(name, value, AgentError)
        environment = dataclasses.replace(config.environment, **sizes)
        whole = getattr(config.algorithm, "whole_episodes", False)
        if whole and environment.max_length is None:
            raise AgentError(
                f"{config.algorithm.type} learns from whole episodes, so it needs to know "
                "how long they can be; give max_length."
            )
        config = dataclasses.replace(config, environment=environment)
        return cls(config, observation_space, action_space)

    # Interaction.

    def act(
        self,
        observation: Any,
        agent_indices: int | Sequence[int] | None = None,
        training: bool = True,
        independent: bool = False,
    ) -> Any:
        """Choose actions.

        Args:
          observation: Observations, in the structure of their space.
          agent_indices: Rows that act; none for all.
          training: Whether to explore, and to learn from the outcome. Otherwise the
            best actions are chosen; `observe` then only marks ends of episodes. A
            change within an episode ends or begins the training data at that step.
          independent: Whether to only return the best actions at this point of the
            episodes: without learning, memory, or a following `observe`.

        Returns:
          Actions in the structure of the action space.

        Raises:
          AgentError: for a row that has acted already, wrong indices, structures,
            shapes or types, values that are not finite or not in a discrete space, and
            masks that allow no action. Nothing changes in this case.
          AlgorithmError: for a mistake in the class of the algorithm, among them a
            `perform` that remembers something in variables if `independent`.
        """
        rows, single = self._rows(agent_indices)
        leaves = self._observation.batch(observation, len(rows), single)
        self._require_choice("observation", leaves, rows)
        new = self._new[rows]
        if independent:
            action = self._call(self._look_at, rows, new, leaves)
            return self._taken(action, single)
        if self._acted[rows].any():
            raise AgentError(
                f"{_name(rows[self._acted[rows]])} has acted already; call observe "
                "before it acts again."
            )
        pending = self._pending[rows]
        changed = ~new & (self._training[rows] != training)
        self._facts[rows[changed], 2] = 1.0  # Cut off.
        new = new | (changed & training)
        goes_on = pending.all() and not changed.any() and not new.any()
        if training and goes_on and self._is_next(rows, leaves):
            self._pending[rows] = False
            action = self._call(self._learn_and_act, rows, self._facts[rows], leaves)
        else:
            if pending.any():
                self._learn_of(rows[pending], [leaf[pending] for leaf in leaves])
            act = self._act_training if training else self._act
            action = self._call(act, rows, new, leaves)
        self._new[rows], self._acted[rows], self._training[rows] = False, True, training
        for stored, leaf in zip(self._after, leaves, strict=True):
            stored[rows] = leaf
        return self._taken(action, single)

    def observe(
        self,
        reward: Any,
        terminated: Any,
        truncated: Any = False,
        agent_indices: int | Sequence[int] | None = None,
        next_observation: Any = None,
    ) -> None:
        """Report the outcome of the actions.

        Args:
          reward: One number for each row.
          terminated: Whether the episode ended in a terminal state.
          truncated: Whether the episode was cut off before its end.
          agent_indices: Rows that acted; none for all.
          next_observation: Observations after the step, by default those of the next
            `act`. Needed only where episodes are cut off, because its value estimates
            the rewards to come. If missing there, the previous observation is used.

        Raises:
          AgentError: for a row that has not acted, and for wrong values as in `act`.
            Nothing changes in this case.
        """
        rows, single = self._rows(agent_indices)
        if not self._acted[rows].all():
            raise AgentError(
                f"{_name(rows[~self._acted[rows]])} has not acted; call act before "
                "observe."
            )
        size = len(rows)
        reward = leaves_.column(reward, "reward", size, np.float32, AgentError)
        terminated = leaves_.column(terminated, "terminated", size, bool, AgentError)
        truncated = leaves_.column(truncated, "truncated", size, bool, AgentError)
        truncated = truncated & ~terminated
        over = terminated | truncated
        after = None
        if next_observation is not None:
            after = self._following.batch(next_observation, size, single)
            on = [leaf[~over] for leaf in after]
            self._require_choice("next_observation", on, rows[~over])
        self._acted[rows], self._new[rows] = False, over
        learning = self._training[rows]
        self._facts[rows] = np.stack([reward, terminated, truncated], 1)
        self._pending[rows] = learning
        self._known[rows] = over | (after is not None)
        if after is not None:
            for stored, leaf in zip(self._after, after, strict=True):
                stored[rows] = leaf
        if over.all() and learning.all():
            self._learn_of(rows)

    def reset(self, agent_indices: int | Sequence[int] | None = None) -> None:
        """Abandon episodes; the rows begin new ones at their next step.

        Raises:
          AgentError: for rows that do not exist or repeat.
        """
        rows, _ = self._rows(agent_indices)
        self._learn_of_known(rows)
        self._pending[rows] = self._acted[rows] = False
        self._new[rows] = True

    def update(self, batch: dict[str, Any] | None = None) -> dict[str, float]:
        """Learn once, in addition to the learning of `act` and `observe`.

        Args:
          batch: Steps from any source in order of time, `[B, ...]` each, as from
            `recordings.load`: `observation`, `action`, `reward`, `terminated`,
            `truncated`, `next_observation`. For steps from several sources, integers
            `sequence_indices` group them into fragments, which may contain ends of
            episodes. The value of the last `next_observation` estimates the rewards
            after a fragment, and likewise after a step whose next observation is not
            the observation of the following step. Policy gradients treat all actions as
            those of their current policy. Statistics for normalization learn from the
            batch. By default, the update uses the memory, after the algorithm has got
            all observed steps whose next observation is known.

        Returns:
          Metrics of this update.

        Raises:
          AgentError: for a batch with other parts, structures or shapes, values that
            are not finite, actions outside of their space or forbidden by a mask, and
            if the memory holds too little data.
        """
        if batch is None:
            self._learn_of_known(self._everyone)
        before = self.algorithm.metrics.take()
        try:
            if batch is None:
                offline.learn_from_memory(self.algorithm)
            else:
                fragments = self._fragments(batch)
                self._update(*tf.nest.map_structure(tf.constant, fragments))
        except (NotImplementedError, ValueError) as error:
            raise AgentError(str(error)) from None
        finally:
            metrics = self.algorithm.metrics.result()
            self.algorithm.metrics.add(before)
        return metrics

    def require_allowed(self, steps: dict[str, Any]) -> None:
        """Raise AgentError if the mask of a step of a batch forbids its action."""
        if not self._masks.needed:
            return
        leaves = spaces.flatten(steps["observation"])
        lowest, _ = spaces.integer_range(self.action_space)
        wrong = self._masks.forbidden(leaves, steps["action"] - lowest)
        if wrong.any():
            raise AgentError(
                f"action {steps['action'][wrong][0]} of step {np.argmax(wrong)} is not "
                f"allowed by observation {spaces.ACTION_MASK}."
            )

    # Weights and files.

    def get_weights(self) -> list[np.ndarray]:
        """Return the values of all variables that acting reads."""
        return [np.asarray(x) for x in self.algorithm.acting()]

    def set_weights(self, weights: Sequence[np.ndarray]) -> None:
        """Assign the result of `get_weights` of an equal agent.

        Raises:
          AgentError: if they do not fit or are not finite; then none is assigned.
        """
        variables = self.algorithm.acting()
        shapes = [tuple(x.shape) for x in variables]
        arrays = [checks.array(x) for x in weights]
        given = [x.shape for x in arrays]
        if shapes != given:
            raise AgentError(f"weights must have the shapes {shapes}, got {given}.")
        dtypes = [tf.as_dtype(x.dtype).as_numpy_dtype for x in variables]
        arrays = [
            leaves_.stored(value, f"weights[{index}]", np.dtype(dtype), AgentError)
            for index, (value, dtype) in enumerate(zip(arrays, dtypes, strict=True))
        ]
        for variable, value in zip(variables, arrays, strict=True):
            variable.assign(value)

    def save(self, directory: str | pathlib.Path) -> None:
        """Write everything that `load` needs to a directory, replacing an earlier save.

        Saving changes nothing, so steps that the next `act` will learn from are not
        saved, nor are running episodes. If the process ends meanwhile, the earlier save
        remains; other processes that save there wait.

        Raises:
          AgentError: if the config holds Python objects, or the directory has
            checkpoints of another kind.
          RunError: if the directory is a file, or nothing can be written there.
          SpaceCodecError: if a space of a custom class cannot be pickled.
          WriteError: if there is no room; the earlier save remains.
        """
        directory = pathlib.Path(directory)
        both = self.observation_space, self.action_space
        encoded = [*map(space_codec.encode, both)]
        state = {"config": _yaml(sections.to_dict(self.config)), "spaces": encoded}
        runs.make_writable(directory)
        checkpoints = checkpoint.Checkpoints(directory / "checkpoints", keep=1)
        if checkpoints.names():
            _saved(checkpoints)
        with files.alone(directory, wait=True):
            last = checkpoints.names()[-1:]
            number = sum(int(x.rpartition("-")[2]) + 1 for x in last)
            checkpoints.save(number, self.algorithm.persistent(), state)

    @classmethod
    def load(cls, directory: str | pathlib.Path, allow_pickle: bool = False) -> "Agent":
        """Load an agent that `save` wrote.

        Only load trusted files: the config may name code, which is imported.

        Args:
          directory: Directory of `save`.
          allow_pickle: Whether to read spaces of classes other than Gymnasium's.

        Raises:
          AgentError: if there is no save, or one of another version.
        """
        checkpoints = checkpoint.Checkpoints(pathlib.Path(directory) / "checkpoints")
        try:
            state = _saved(checkpoints)
            config = _config(config_files.parse(state["config"], "its config"))
            found = [space_codec.decode(x, allow_pickle) for x in state["spaces"]]
            agent = cls(config, *found)
            checkpoints.restore(agent.algorithm.persistent())
        except (OSError, ValueError) as error:
            raise AgentError(
                f"no agent can be loaded from {directory}: {error}"
            ) from None
        return agent

    def export(self, directory: str | pathlib.Path, kind: str = "saved_model") -> None:
        """Write the policy so that it runs without this package; see `agents export`.

        Args:
          directory: New or empty directory.
          kind: `saved_model`, `onnx` or `litert`.

        Raises:
          RunError: if the policy cannot be exported.
          AlgorithmError: if the policy remembers something in variables.
        """
        exported = policy.ExportablePolicy(
            self.algorithm, self.observation_space, self.action_space
        )
        facts = {"algorithm": self.config.algorithm.type, "config": self.config.name}
        exported.write(directory, kind, facts)

    # Internals.

    def _rows(self, indices: Any) -> tuple[np.ndarray, bool]:
        """Return rows int32 `[K]`, and whether there is no batch dimension."""
        if indices is None:
            return self._everyone, self.num_agents == 1
        rows = np.atleast_1d(checks.array(indices))
        valid = rows.ndim == 1 and len(rows) and np.issubdtype(rows.dtype, np.integer)
        if not valid or not ((rows >= 0) & (rows < self.num_agents)).all():
            raise AgentError(
                f"agent_indices must be from 0 to {self.num_agents - 1}, got {indices}."
            )
        if len(set(rows.tolist())) < len(rows):
            raise AgentError(f"agent_indices name a row twice: {indices}.")
        return rows.astype(np.int32), np.ndim(indices) == 0

    def _fragments(self, batch: dict[str, Any]) -> tuple[dict[str, Any], np.ndarray]:
        """Check a batch; return fragments `[F, T, ...]`, and their valid steps."""
        optional = "sequence_indices"
        if not isinstance(batch, Mapping):
            raise AgentError(f"a batch is a mapping, got {type(batch).__name__}.")
        wanted, given = recordings.NAMES, set(batch)
        if given - {optional} != set(wanted):
            raise AgentError(
                f"a batch has the parts {', '.join(wanted)} and, if there are several "
                f"fragments, {optional}; got {', '.join(sorted(map(str, given)))}."
            )
        rows = np.size(batch["reward"])
        if not rows:
            raise AgentError("a batch needs at least one step.")
        steps = {
            part.name: part.unflatten(part.batch(batch[part.name], rows, single=False))
            for part in (self._observation, self._action, self._following)
        }
        for name, dtype in recordings.FLAGS.items():
            steps[name] = leaves_.column(batch[name], name, rows, dtype, AgentError)
        indices = batch.get(optional, 0)
        indices = leaves_.column(indices, optional, rows, np.int64, AgentError)
        self.require_allowed(steps)
        return recordings.fragments(steps, indices)

    def _require_choice(
        self, name: str, leaves: list[np.ndarray], rows: np.ndarray
    ) -> None:
        """Raise AgentError if observations of rows `[K, ...]` allow no action."""
        found = self._masks.forbidding(leaves) if self._masks.needed else None
        if found is not None:
            raise AgentError(f"{_name(rows[[found[0]]])}: {name} {found[1]}")

    def _is_next(self, rows: np.ndarray, leaves: list[np.ndarray]) -> bool:
        """Return whether the observed steps of rows led to these observations."""
        known = self._known[rows]
        if not known.any():
            return True
        pairs = zip(self._after, leaves, strict=True)
        return all(np.array_equal(x[rows][known], y[known]) for x, y in pairs)

    def _learn_of(self, rows: np.ndarray, leaves: list | None = None) -> None:
        """Let the algorithm learn from the observed steps of rows.

        The given observations complete those that are unknown so far.
        """
        self._pending[rows] = False
        after = [x[rows] for x in self._after]
        if leaves is not None:
            unknown = ~self._known[rows]
            for known, leaf in zip(after, leaves, strict=True):
                known[unknown] = leaf[unknown]
        self._call(self._learn, rows, self._facts[rows], after)

    def _learn_of_known(self, rows: np.ndarray) -> None:
        """Let the algorithm learn from those observed steps that are complete."""
        known = rows[self._pending[rows] & self._known[rows]]
        if len(known):
            self._learn_of(known)

    def _taken(self, leaves: list[np.ndarray], single: bool) -> Any:
        """Convert actions to members of their space, for one environment or many."""
        if single:
            return self._split(leaves)[0]
        return actions.typed(self.action_space, leaves)

    def _call(self, function: Any, rows: np.ndarray, given: np.ndarray, leaves: list):
        """Call one of the functions below, traced once, and return arrays.

        A concrete function is called several times faster than a `tf.function`, which
        has to look up the right one.
        """
        name = function.__name__
        if name not in self._functions:
            kind, specs = tf.as_dtype(given.dtype), self._observation.specs
            signature = [
                tf.TensorSpec([None], tf.int32),
                tf.TensorSpec([None, *given.shape[1:]], kind),
                *(tf.TensorSpec([None, *x.shape], x.dtype) for x in specs),
            ]
            graph = tf.function(function, input_signature=signature, autograph=False)
            self._functions[name] = graph.get_concrete_function()
        try:
            result = self._functions[name](*map(tf.constant, (rows, given, *leaves)))
        except tf.errors.OpError as error:
            if "longer than the memory" not in str(error):
                calls.locate(self.algorithm, error)
                raise
            raise AgentError(
                f"{_name(rows)} is ahead of what {self.config.algorithm.type} can "
                "remember: rows must step equally often where it learns from unrolls, "
                "and episodes must not be longer than max_length."
            ) from None
        return [x.numpy() for x in result]

    def _learn(self, rows, facts, *after) -> list[tf.Tensor]:
        """Learn from steps with facts `[K, 3]` that led to these observations."""
        reward, terminated, truncated = tf.unstack(facts, axis=1)
        terminated, truncated = terminated > 0, truncated > 0
        self._experience(rows, reward, terminated, truncated, after)
        simulation.end_episodes(self.algorithm, rows, terminated | truncated)
        return []

    def _act(self, rows, new, *leaves) -> list[tf.Tensor]:
        simulation.begin_episodes(self.algorithm, rows, new, training=False)
        return self._perform(rows, leaves, training=False)

    def _act_training(self, rows, new, *leaves) -> list[tf.Tensor]:
        simulation.begin_episodes(self.algorithm, rows, new, training=True)
        return self._perform(rows, leaves, training=True)

    def _learn_and_act(self, rows, facts, *leaves) -> list[tf.Tensor]:
        """Learn from steps in running episodes, and act on their next observations."""
        over = tf.zeros_like(rows, tf.bool)
        self._experience(rows, facts[:, 0], over, over, leaves)
        return self._perform(rows, leaves, training=True)

    def _experience(self, rows, reward, terminated, truncated, after) -> None:
        """Tell the algorithm the outcome of the stored actions."""
        calls.call(
            self.algorithm,
            "experience",
            rows,
            self._observation.unflatten(rows_.gather(self._before, rows)),
            self._action.unflatten(rows_.gather(self._done, rows)),
            reward,
            terminated,
            truncated,
            self._observation.unflatten(list(after)),
        )

    def _perform(self, rows, leaves, training) -> list[tf.Tensor]:
        """Choose actions; in training, store them for `experience`."""
        observation = self._observation.unflatten(list(leaves))
        action = calls.perform(
            self.algorithm, rows, observation, training, self.action_space
        )
        pairs = zip(spaces.flatten(action), self._action.specs, strict=True)
        action = [tf.cast(leaf, spec.dtype) for leaf, spec in pairs]
        if training:
            rows_.write(self._before, rows, list(leaves))
            rows_.write(self._done, rows, action)
        return action

    def _look_at(self, rows, new, *leaves) -> list[tf.Tensor]:
        """Choose the best actions without changing any state."""
        running = self.algorithm.running_state(rows)
        initial = self.algorithm.initial_state(tf.size(rows))
        state = rows_.choose(new, initial, running)
        observation = self._observation.unflatten(list(leaves))
        return spaces.flatten(calls.decide(self.algorithm, observation, state)[0])


def _config(source: Any) -> experiment.Config:
    """Convert any description of a config to a config."""
    if isinstance(source, experiment.Config):
        return source
    if isinstance(source, str | pathlib.Path):
        source = str(source)
        if not source.endswith((".yaml", ".yml", ".json")):
            return named.load(source)
        source = config_files.load(source)
    if dataclasses.is_dataclass(source):
        if not hasattr(source, "type") and not hasattr(source, "algorithm"):
            raise config_.ConfigError(
                f"{type(source).__name__} needs a field 'type', which names its class as "
                "'module:Class'."
            )
        source = sections.to_dict(source)
    if not isinstance(source, dict):
        raise config_.ConfigError(
            "a config is the name of an experiment, a file, a mapping or a dataclass, "
            f"got {source!r}."
        )
    if "algorithm" not in source:
        source = {"algorithm": source}
    source = {"name": "agent", "train": {}, **source}
    environment = source.get("environment") or {}
    if isinstance(environment, dict):  # Else `complete` says what is wrong.
        source["environment"] = {"id": "none", **environment}
    config = experiment.resolve(experiment.complete(source))
    asks = config.hindsight.share and not config.hindsight.outcome
    if asks and config.environment.id == "none":
        raise config_.ConfigError(
            "hindsight.share has no environment to ask for outcomes; declare "
            "hindsight.outcome or environment.id."
        )
    return config


def _yaml(values: Any, path: str = "") -> str:
    """Return part `path` of a config as YAML; raise AgentError for Python objects."""
    text = io.StringIO()
    try:
        config_files.dump(values, text)
    except config_.ConfigError:
        for key, part in values.items() if isinstance(values, dict) else ():
            _yaml(part, f"{path}.{key}" if path else key)  # One of them raises.
        raise AgentError(
            f"cannot save config key '{path}', which is {values!r:.80}; describe it by "
            "text and numbers, such as an import path 'module:name'."
        ) from None
    return text.getvalue()


def _saved(checkpoints: checkpoint.Checkpoints) -> dict[str, Any]:
    """Return the state that `Agent.save` has written; raise AgentError for others."""
    state = checkpoints.state()
    if state.keys() != {"config", "spaces"}:
        raise AgentError(
            f"{checkpoints.directory} is not that of an agent, but of a run; `agents "
            "export` writes the policy of a run for programs."
        )
    return state


def _name(rows: np.ndarray) -> str:
    return f"agent {', '.join(map(str, rows))}"
