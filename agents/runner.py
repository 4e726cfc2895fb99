"""The loop around an agent and its environments, for those who do not write it."""

import contextlib
import dataclasses
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
from agents.environments import make
from agents.scripts import display
from agents.tools import batch_env, loop, spaces

WINDOW = 100
"""Episodes of which `mean_return` is the mean."""


@dataclasses.dataclass(frozen=True)
class Result:
    """What happened in one call of `Runner.run`.

    Attributes:
      episode_returns: Of the episodes that ended, in the order of their ends.
      episode_lengths: Their steps.
      evaluation_returns: Mean returns of the evaluations.
      evaluation_steps: Value of `Runner.steps` at each of them.
      steps: Environment steps, of all rows together.
      seconds: Wall time, evaluations included.
    """

    episode_returns: list[float]
    episode_lengths: list[int]
    evaluation_returns: list[float]
    evaluation_steps: list[int]
    steps: int
    seconds: float


class Runner:
    """Lets an agent learn in environments, episode after episode.

        with agents.Runner(agent, "CartPole-v1") as runner:
            result = runner.run(num_episodes=200)

    Rows that end are reset and go on by themselves. The agent is told of the true last
    observation of every step. Further calls of `run` go on with the running episodes,
    so nothing else may use the agent's `act` and `observe` in between.

    Attributes:
      agent: The agent.
      episode_returns: Of all episodes that ended, floats.
      episode_lengths: Their steps.
      evaluation_returns: Mean returns of the evaluations within `run`.
      evaluation_steps: Value of `steps` at each of them.
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
        """Make or take one environment for each row of the agent.

        Args:
          agent: Whose running episodes are abandoned.
          environment: Registered id, function that makes an environment, environment,
            or list of them.
          max_episode_steps: Where episodes are truncated; none for the limit of the id.
          evaluation_environment: What `evaluate` uses; by default another one of the id
            or function.
          seed: Of the first episodes; none for what the environments choose.

        Raises:
          AgentError: for anything else, or another number of them.
          ValueError: if they differ in their spaces.
        """
        self.agent = agent
        self.episode_returns: list[float] = []
        self.episode_lengths: list[int] = []
        self.evaluation_returns: list[float] = []
        self.evaluation_steps: list[int] = []
        self.steps = 0
        self._limit = max_episode_steps
        if evaluation_environment is None and _makes(environment):
            evaluation_environment = environment
        self._evaluation_environment, self._evaluation = evaluation_environment, None
        self._best, self._stopping = -np.inf, False
        self._best_action = tf.function(agent.algorithm.decide, autograph=False)
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
        """Number of episodes that ended."""
        return len(self.episode_returns)

    @property
    def mean_return(self) -> float:
        """Mean of the last 100 returns, of all if there are fewer; without any nan."""
        returns = self.episode_returns[-WINDOW:]
        return float(np.mean(returns)) if returns else float("nan")

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Abandon the running episodes, and close the environments made here."""
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
        """Train until the first limit is reached, or Ctrl-C pressed; twice: at once.

        Args:
          num_episodes: Episodes to finish; those that end in the same step count too.
          num_steps: Environment steps, rounded up to a multiple of the rows.
          callback: Called with this runner after every episode; if it returns something
            false, not None, the run ends after this step.
          evaluate_every: Environment steps between evaluations; none for no evaluation.
          evaluation_episodes: Episodes of each.
          save_best: Directory where the agent is saved when the mean return of an
            evaluation is the best so far; without evaluations that of the last 100
            episodes, when there are as many.
          progress: Show a progress bar, if the output is a terminal.

        Raises:
          AgentError: without a limit, or if something else asked for is impossible.
        """
        self._require(num_episodes, num_steps, evaluate_every, save_best)
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
        """Returns of episodes of the best actions, from which nothing is learned.

        They happen in an environment of their own, and their recurrent state is kept
        apart, so what is running in training goes on as if they had not been.

        Raises:
          AgentError: if there is no environment for it, or no episode asked for.
        """
        if num_episodes < 1:
            raise agent_.AgentError(f"evaluation needs episodes, got {num_episodes}.")
        batch = self._evaluation_batch()
        returns = []
        for _ in range(num_episodes):
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

    # Inside.

    def _step(self, callback: Callable | None) -> None:
        """Make a step of every row; record the episodes that end."""
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
        for row in np.flatnonzero(self._new):
            self.episode_returns.append(float(self._returns[row]))
            self.episode_lengths.append(int(self._lengths[row]))
            answer = callback(self) if callback else None
            self._stopping |= answer is not None and not answer

    def _begin(self, rows: np.ndarray) -> None:
        """Reset the environments of rows; at the very first step with seeds."""
        if not len(rows):
            return
        seeds, self._seeds = self._seeds, None
        first = self._batch.reset(rows, seeds)
        # What the agent was told of the last step must stay as it is.
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
        """Evaluate if it is time to; save the agent if it is better than before."""
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

    def _require(self, num_episodes, num_steps, evaluate_every, save_best) -> None:
        """Raise AgentError for what a run cannot do."""
        if num_episodes is None and num_steps is None:
            raise agent_.AgentError("a run needs an end: num_episodes or num_steps.")
        counts = {"num_episodes": num_episodes, "num_steps": num_steps}
        for name, value in {**counts, "evaluate_every": evaluate_every}.items():
            if value is not None and value < 1:
                raise agent_.AgentError(f"{name} must be positive, got {value}.")
        if evaluate_every:
            self._evaluation_batch()
        if save_best is None:
            return
        few = num_episodes is not None and self.episodes + num_episodes < WINDOW
        if few and not evaluate_every:
            raise agent_.AgentError(
                f"save_best needs evaluate_every, or at least {WINDOW} episodes."
            )
        path = pathlib.Path(save_best)
        if self._best == -np.inf and path.exists() and any(path.iterdir()):
            raise agent_.AgentError(
                f"save_best needs a directory that is new or empty, {path} is not."
            )

    def _open(self, environment: Any, rows: int) -> batch_env.Backend:
        """Batch of environments; those made here are closed by `close`."""
        if _makes(environment):
            batch = make.batch(environment, rows, "serial", max_length=self._limit)
            self._close.callback(batch.close)
            return batch
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

    def _evaluation_batch(self) -> batch_env.Backend:
        """Batch of the one environment of evaluations."""
        if self._evaluation_environment is None:
            raise agent_.AgentError(
                "evaluation needs an environment of its own; give "
                "evaluation_environment, or environment as an id or a function."
            )
        if self._evaluation is None:
            self._evaluation = self._open(self._evaluation_environment, 1)
        return self._evaluation

    @contextlib.contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Ctrl-C lets the step finish; another one raises.

        An exception at any place would leave steps half observed.
        """
        if threading.current_thread() is not threading.main_thread():
            yield  # Others cannot handle signals.
            return

        def stop(*_):
            self._stopping = True
            signal.signal(signal.SIGINT, previous)

        previous = signal.signal(signal.SIGINT, stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, previous)


def _makes(environment: Any) -> bool:
    """Whether this is the id of environments or a function that makes them."""
    return isinstance(environment, str) or callable(environment)
