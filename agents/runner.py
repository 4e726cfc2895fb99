"""Loop of an agent and its environments, for programs without their own loop."""

import contextlib
import dataclasses
import functools
import numbers
import operator
import pathlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gymnasium
import numpy as np
import tensorflow as tf

from agents import agent as agent_
from agents import environments
from agents.environments import make
from agents.experiments import display
from agents.tools import batch_env, calls, loop, spaces

WINDOW = 100
"""Number of episodes in `mean_return`."""


@dataclasses.dataclass(frozen=True)
class Result:
    """Outcome of one call of `Runner.run`.

    Attributes:
      episode_returns: Returns of finished episodes, in the order of their ends.
      episode_lengths: Numbers of steps of these episodes.
      evaluation_returns: Mean returns of the evaluations.
      evaluation_steps: Value of `Runner.steps` at each evaluation.
      steps: Environment steps of all rows together.
      seconds: Wall time including evaluations.
    """

    episode_returns: list[float]
    episode_lengths: list[int]
    evaluation_returns: list[float]
    evaluation_steps: list[int]
    steps: int
    seconds: float


class Runner:
    """Loop that trains an agent in environments, episode after episode.

        with agents.Runner(agent, "CartPole-v1") as runner:
            result = runner.run(num_episodes=200)

    Finished rows are reset automatically. The agent gets the true last observation of
    every step. Further calls of `run` continue the running episodes, so nothing else
    may call the agent's `act` and `observe` in between.

    Attributes:
      agent: The agent.
      episode_returns: Returns of all finished episodes, floats.
      episode_lengths: Numbers of steps of these episodes.
      evaluation_returns: Mean returns of the evaluations within `run`.
      evaluation_steps: Value of `steps` at each evaluation.
      steps: Environment steps so far, of all rows together.
    """

    def __init__(
        self,
        agent: agent_.Agent,
        environment: str | Callable | gymnasium.Env | Sequence[gymnasium.Env],
        max_episode_steps: int | None = None,
        evaluation_environment: str | Callable | gymnasium.Env | None = None,
        seed: int | None = None,
    ) -> None:
        """Create or take one environment for each row of the agent.

        Args:
          agent: Agent to train; its running episodes are abandoned.
          environment: Registered id, function that returns an environment, environment,
            or list of environments.
          max_episode_steps: Steps to truncate episodes after; none for the id's limit.
          evaluation_environment: Environment of `evaluate`; by default another one of
            the id or function.
          seed: Seed of the first episodes; none for random ones.

        Raises:
          AgentError: for other types, a wrong number of environments, one environment
            in several places, or other spaces than those of the agent.
          EnvDataError: if the spaces of the environments differ.
        """
        self.agent = agent
        self.episode_returns: list[float] = []
        self.episode_lengths: list[int] = []
        self.evaluation_returns: list[float] = []
        self.evaluation_steps: list[int] = []
        self.steps = 0
        _require_positive(max_episode_steps=max_episode_steps)
        self._limit = max_episode_steps
        if evaluation_environment is None and _makes(environment):
            evaluation_environment = environment
        self._evaluation_environment, self._evaluation = evaluation_environment, None
        self._best, self._saved, self._stopping = -np.inf, None, False
        decide = functools.partial(calls.decide, agent.algorithm)
        self._best_action = tf.function(decide, autograph=False)
        rows = agent.num_agents
        self._rows = np.arange(rows)
        self._close = contextlib.ExitStack()
        self._batch = self._open(environment, rows)
        self._seeds = self._evaluation_seeds = None
        if seed is not None:
            self._seeds = loop.phase_seeds(seed, 0, rows)
            self._evaluation_seeds = loop.phase_seeds(seed, 1, 1)
        specs = spaces.spec(self._batch.observation_space)
        self._observation = spaces.transform(lambda x: x.zeros(rows), specs)
        self._returns, self._lengths = np.zeros(rows), np.zeros(rows, int)
        self._abandon()

    @property
    def episodes(self) -> int:
        """Number of finished episodes."""
        return len(self.episode_returns)

    @property
    def mean_return(self) -> float:
        """Mean of the last 100 returns, or of all if fewer; nan without any."""
        returns = self.episode_returns[-WINDOW:]
        return float(np.mean(returns)) if returns else float("nan")

    def __repr__(self) -> str:
        returns = f", mean return {self.mean_return:,.1f}" if self.episodes else ""
        return f"Runner({self.steps:,} steps, {self.episodes:,} episodes{returns})"

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Abandon the running episodes, and close the environments created here."""
        self._abandon()
        self._close.close()

    def run(
        self,
        num_episodes: int | None = None,
        num_steps: int | None = None,
        callback: Callable[["Runner"], Any] | None = None,
        evaluate_every: int | None = None,
        evaluation_episodes: int = 10,
        save_best: str | pathlib.Path | None = None,
        progress: bool = True,
    ) -> Result:
        """Train until the first limit or Ctrl-C; a second Ctrl-C interrupts at once.

        Args:
          num_episodes: Episodes to finish; all those of the last step count.
          num_steps: Environment steps, rounded up to a multiple of the rows.
          callback: Called with this runner after every episode; a false result other
            than None ends the run after this step.
          evaluate_every: Environment steps between evaluations; none for no evaluation.
          evaluation_episodes: Episodes per evaluation.
          save_best: Directory to save the agent to whenever the mean return of an
            evaluation is the best so far; without evaluations, the mean over the last
            100 episodes counts. It must be new or empty, unless the last run had it.
          progress: Whether to show a progress bar, on terminals only.

        Raises:
          AgentError: without a limit, or for impossible arguments.
        """
        if num_episodes is None and num_steps is None:
            raise agent_.AgentError("a run needs an end: num_episodes or num_steps.")
        _require_positive(
            num_episodes=num_episodes,
            num_steps=num_steps,
            evaluate_every=evaluate_every,
            evaluation_episodes=evaluation_episodes,
        )
        self._prepare(num_episodes, evaluate_every, save_best)
        before = self.episodes, len(self.evaluation_returns), self.steps
        start, self._stopping = time.perf_counter(), False
        last_episode = np.inf if num_episodes is None else self.episodes + num_episodes
        last_step = np.inf if num_steps is None else self.steps + num_steps
        counted = "steps" if num_episodes is None else "episodes"
        done = getattr(self, counted)
        bar = display.counting(self, num_episodes or num_steps, counted, progress)
        with self._interruptible(), bar as show:
            while not self._stopping:
                self._step(callback)
                self._judge(evaluate_every, evaluation_episodes, save_best)
                self._stopping |= self.episodes >= last_episode
                self._stopping |= self.steps >= last_step
                show(getattr(self, counted) - done)
        return Result(
            self.episode_returns[before[0] :],
            self.episode_lengths[before[0] :],
            self.evaluation_returns[before[1] :],
            self.evaluation_steps[before[1] :],
            self.steps - before[2],
            time.perf_counter() - start,
        )

    def evaluate(self, num_episodes: int = 10) -> list[float]:
        """Return the returns of episodes of the best actions, without learning.

        They happen in a separate environment with separate recurrent state, so running
        episodes of training are not affected.

        Raises:
          AgentError: without an environment for it, or for less than one episode.
          AlgorithmError: if the policy remembers something in variables.
        """
        _require_positive(num_episodes=num_episodes)
        batch = self._evaluation_batch()
        returns = []
        for _ in range(int(num_episodes)):
            seeds, self._evaluation_seeds = self._evaluation_seeds, None
            observation = batch.reset(seeds=seeds)
            state = self.agent.algorithm.initial_state(1)
            total, done = 0.0, False
            while not done:
                action, state = self._best_action(observation, state)
                action = tf.nest.map_structure(lambda x: x.numpy(), action)
                observation, reward, terminated, truncated, _ = batch.step(action)
                total += float(reward[0])
                done = terminated[0] or truncated[0]
            returns.append(total)
        return returns

    # Internals.

    def _step(self, callback: Callable | None) -> None:
        """Step every row; record the episodes that end."""
        try:
            self._begin(np.flatnonzero(self._new))
            action = self.agent.act(self._observation, self._rows)
            following, reward, terminated, truncated, _ = self._batch.step(action)
            self.agent.observe(reward, terminated, truncated, self._rows, following)
        except BaseException:
            self._abandon()
            raise
        self._observation, self._new = following, terminated | truncated
        self._returns += reward
        self._lengths += 1
        self.steps += len(self._rows)
        ended = list(np.flatnonzero(self._new))
        try:
            while ended:
                self._record(ended.pop(0))
                answer = callback(self) if callback else None
                self._stopping |= answer is not None and not answer
        finally:  # Also those after the one whose callback has raised.
            for row in ended:
                self._record(row)

    def _record(self, row: int) -> None:
        """Record the episode that has ended in a row."""
        self.episode_returns.append(float(self._returns[row]))
        self.episode_lengths.append(int(self._lengths[row]))

    def _begin(self, rows: np.ndarray) -> None:
        """Reset the environments of rows, with seeds at the very first step."""
        if not len(rows):
            return
        seeds, self._seeds = self._seeds, None
        first = self._batch.reset(rows, seeds)
        # The agent's view of the last step must not change.
        self._observation = spaces.transform(np.copy, self._observation)
        leaves = spaces.flatten(self._observation), spaces.flatten(first)
        for leaf, new in zip(*leaves, strict=True):
            leaf[rows] = new
        self._returns[rows] = self._lengths[rows] = 0

    def _abandon(self) -> None:
        """Begin new episodes in all rows at the next step."""
        self.agent.reset()
        self._new = np.ones(len(self._rows), bool)

    def _judge(self, every: int | None, num_episodes: int, directory: Any) -> None:
        """Evaluate if it is time; save the agent if it is the best so far."""
        if every and self.steps % every < len(self._rows):
            score = float(np.mean(self.evaluate(num_episodes)))
            self.evaluation_returns.append(score)
            self.evaluation_steps.append(self.steps)
        elif not every and self._new.any() and self.episodes >= WINDOW:
            score = self.mean_return
        else:
            return
        if directory is not None and score > self._best:
            self._best = score
            self.agent.save(directory)

    def _prepare(self, num_episodes, evaluate_every, save_best) -> None:
        """Prepare evaluations and saving; raise AgentError if they are impossible."""
        if evaluate_every:
            self._evaluation_batch()
        if save_best is None:
            return
        few = num_episodes is not None and self.episodes + num_episodes < WINDOW
        if few and not evaluate_every:
            raise agent_.AgentError(
                f"save_best needs evaluate_every, or at least {WINDOW} episodes."
            )
        path = pathlib.Path(save_best).absolute()
        if path == self._saved:
            return
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise agent_.AgentError(
                f"save_best needs a directory that is new or empty, {save_best} is not."
            )
        self._best, self._saved = -np.inf, path

    def _open(
        self, environment: Any, rows: int, *others: batch_env.Backend
    ) -> batch_env.Backend:
        """Create or take a batch beside others; `close` closes created ones."""
        with contextlib.ExitStack() as stack:
            if _makes(environment):
                batch = make.batch(
                    environments.Environment(
                        environment, "serial", rows, max_length=self._limit
                    )
                )
                stack.callback(batch.close)
            else:
                batch = self._take(environment, rows)
            self._require_fit(*others, batch)
            self._close.push(stack.pop_all())
        return batch

    def _take(self, environment: Any, rows: int) -> batch_env.Backend:
        """Make a batch of given environments."""
        single = isinstance(environment, gymnasium.Env)
        envs = [environment] if single else environment
        if not isinstance(envs, list | tuple):
            raise agent_.AgentError(
                "environment must be a Gymnasium environment, its id, a function that "
                f"makes it, or a list of environments, got {environment!r}."
            )
        if len(envs) != rows:
            raise agent_.AgentError(
                f"the agent acts for {rows} environments, got {len(envs)}; make it with "
                f"num_agents={len(envs)}, or give as many environments."
            )
        if self._limit is not None:
            envs = [gymnasium.wrappers.TimeLimit(env, self._limit) for env in envs]
        return batch_env.BatchEnv(envs, blocking=True)

    def _require_fit(self, *batches: batch_env.Backend) -> None:
        """Raise AgentError unless environments differ and have the agent's spaces."""
        envs = [batch[row].unwrapped for batch in batches for row in range(len(batch))]
        if len({id(x) for x in envs}) < len(envs):
            raise agent_.AgentError(
                "every row, and the evaluation, needs an environment of its own, but one "
                f"is in several places: {envs[-1]!r}."
            )
        for kind, fits in (("action", operator.eq), ("observation", _alike)):
            ours, theirs = (
                getattr(x, f"{kind}_space") for x in (self.agent, batches[-1])
            )
            if not fits(ours, theirs):
                raise agent_.AgentError(
                    f"the agent has the {kind} space {ours}, but the environment has "
                    f"{theirs}."
                )

    def _evaluation_batch(self) -> batch_env.Backend:
        """Return the batch with the one environment of evaluations."""
        if self._evaluation_environment is None:
            raise agent_.AgentError(
                "evaluation needs an environment of its own; give "
                "evaluation_environment, or environment as an id or a function."
            )
        if self._evaluation is None:
            self._evaluation = self._open(self._evaluation_environment, 1, self._batch)
        return self._evaluation

    @contextlib.contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Let the step finish at the first Ctrl-C; raise at the second.

        An exception at any other place would leave steps half observed.
        """
        if threading.current_thread() is not threading.main_thread():
            yield  # Other threads cannot handle signals.
            return

        def stop(*_):
            self._stopping = True
            signal.signal(signal.SIGINT, previous)

        previous = signal.signal(signal.SIGINT, stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, previous)


def _alike(ours: gymnasium.Space, theirs: gymnasium.Space) -> bool:
    """Return whether the parts of two spaces have the same names and shapes."""
    specs = (spaces.by_keys(spaces.spec(x)) for x in (ours, theirs))
    one, other = ({key: x.shape for key, x in spec.items()} for spec in specs)
    return one == other


def _require_positive(**counts: float | None) -> None:
    """Raise AgentError for counts that are not positive integers; 1e6 is one."""
    for name, value in counts.items():
        whole = isinstance(value, numbers.Real) and float(value).is_integer()
        if value is not None and not (whole and value >= 1):
            raise agent_.AgentError(
                f"{name} must be a positive integer, got {value!r}."
            )


def _makes(environment: Any) -> bool:
    """Return whether this is the id of environments or a function that creates them."""
    return isinstance(environment, str) or callable(environment)
