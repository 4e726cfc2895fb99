"""Batches of robots, which the threads of mjbatch step in this process."""

import concurrent.futures
import copy
import functools
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import seeding

from agents.environments import workers
from agents.environments.mujoco import functions, simulations
from agents.environments.mujoco import robot as robot_
from agents.tools import actions, batch_env, spaces, transitions


class Mujoco(batch_env.Backend):
    """Batch of one robot in N rows; the info of a step is empty.

    Args:
      robot: Functions and model of the environments.
      num_envs: Number of rows.
      num_threads: Threads that step them; by default one per processor.
      max_length: Steps after which to truncate episodes; by default the robot's limit.
      first_row: Offset of the row numbers in errors.
      overlap: Whether rows already move between `start` and `finish`. That needs one
        more thread; handing over to it takes longer than stepping a few small robots.

    Attributes:
      simulations: State and fields of the rows.

    Raises:
      Mistake: if the model does not load, or the robot's functions do not fit.
      EnvError: if a function of the robot raises.
    """

    def __init__(
        self,
        robot: robot_.Robot,
        num_envs: int,
        num_threads: int | None = None,
        max_length: int | None = None,
        first_row: int = 0,
        overlap: bool = False,
    ):
        self.first_row = first_row
        self.robot = robot
        self.max_length = max_length or robot.max_length
        self._elapsed = np.zeros(num_envs, np.int64)
        self._generators = [seeding.np_random(0)[0] for _ in range(num_envs)]
        count = min(num_threads or workers.num_cpus(), num_envs)
        self.simulations = simulations.Simulations(robot, num_envs, count)
        self._data = self.simulations.data
        self._shape = num_envs, self.simulations.model.nu
        found = self._probe()
        self._generators = [seeding.np_random()[0] for _ in range(num_envs)]
        super().__init__(*found, transitions.Buffers.create(*found, num_envs))
        self._thread = overlap and concurrent.futures.ThreadPoolExecutor(1, "mujoco")

    def __getitem__(self, index: int) -> Any:
        """Return the fields of all rows, since no row is an object of its own."""
        range(len(self))[index]  # noqa: B018
        return self._data

    def close(self):
        if self._thread:
            self._thread.shutdown()

    def _start(self, restart: bool):
        with functions.running(self.robot, "step"):
            self._action = actions.typed(self.action_space, self._buffers.action)
            step = functools.partial(self.simulations.step, self._act())
        self._wait = self._thread.submit(step).result if self._thread else step

    def _finish(self, restart: bool) -> dict:
        numbers = self._buffers.numbers
        with functions.running(self.robot, "step"):
            self._wait()
            self._elapsed += 1
            self._require_continued()
            reward, terminated = self._judge()
            self._observe(self._buffers.observation, slice(None))
        numbers[:, transitions.REWARD] = reward
        numbers[:, transitions.TERMINATED] = terminated
        if self.max_length:
            numbers[:, transitions.TRUNCATED] = self._elapsed >= self.max_length
        flags = numbers[:, transitions.FLAGS]
        if restart and np.count_nonzero(flags):
            self._begin(np.flatnonzero(flags.any(1)), self._buffers.following)
        return {}

    def _reset(self, rows: np.ndarray, seeds: np.ndarray | None):
        if seeds is not None:
            for row, seed in zip(rows.tolist(), seeds.tolist(), strict=True):
                self._generators[row] = seeding.np_random(seed)[0]
        self._begin(rows, self._buffers.observation)

    def _begin(self, rows: np.ndarray, targets: list[np.ndarray]):
        """Begin episodes in these rows; write their observations."""
        self._elapsed[rows] = 0
        with functions.running(self.robot, "reset"):
            self.simulations.begin(rows, [self._generators[row] for row in rows])
            self._observe(targets, rows)

    def _act(self) -> np.ndarray:
        """Return the controls of the actions, and store the inputs of the reward."""
        self._before = copy.deepcopy(self.robot.before(self._data))
        return functions.control(self.robot, self._action, self._shape)

    def _judge(self) -> tuple[np.ndarray, np.ndarray]:
        """Return rewards and flags of the step."""
        reward = self.robot.reward(self._before, self._action, self._data)
        terminal = self.robot.terminal(self._data)
        args = self.robot, len(self._data)
        return (
            functions.column(*args, "reward", reward),
            functions.column(*args, "terminal", terminal),
        )

    def _observe(self, targets: list[np.ndarray], rows: Any):
        """Write the observations of some rows."""
        observation = self.robot.observation(self._data)
        leaves = functions.leaves(self.robot, observation, targets)
        for target, leaf in zip(targets, leaves, strict=True):
            target[rows] = leaf[rows]

    def _require_continued(self):
        """Raise EnvDataError if MuJoCo could not make the step as it was."""
        failed = not self.robot.resumes and self.simulations.failed()
        if np.any(failed):
            self._complain_of(failed)

    def _complain(self, result: batch_env.Results):
        unstable = self.simulations.unstable()
        if unstable.any():
            self._complain_of(unstable)
        super()._complain(result)

    def _complain_of(self, unstable: np.ndarray):
        """Raise EnvDataError about rows, bool `[N]`, with unstable physics."""
        row = np.flatnonzero(unstable)[0]
        where = f"at step {self._elapsed[row]} of its episode"
        text = (
            f"unstable physics {where}; a smaller timestep of the model, weaker "
            "actuators or more damping may help."
        )
        if self.simulations.uncontrolled()[row]:
            text = f"controls {where} are not finite or huge; see the robot's control."
        raise batch_env.EnvDataError(f"Environment row {row + self.first_row}: {text}")

    def _probe(self) -> tuple[gymnasium.Space, gymnasium.Space]:
        """Call all functions once; return the spaces of one row."""
        rows = np.arange(len(self._data))
        with functions.running(self.robot, "start"):
            self.simulations.begin(rows, self._generators)
            observation = self.robot.observation(self._data)
            found = functions.observation_space(self.robot, observation)
            space = functions.action_space(self.robot, self.simulations.model)
            zeros = spaces.flatten(spaces.spec(space))
            self._action = actions.typed(space, [x.zeros(len(rows)) for x in zeros])
            self._act()
            self._judge()
            targets = [x.zeros(len(rows)) for x in spaces.flatten(spaces.spec(found))]
            functions.leaves(self.robot, observation, targets)
            functions.require_keys(self.robot, observation, found)
        return found, space
